"""What wakes the main loop: anybody's word, a timer, or both; waking is all that others can do to the loop.

A new reason to wake it is a call of `wake` or `wake_in`, by whoever knows of it.
"""

from __future__ import annotations

import asyncio
import contextvars

__all__ = ["Wakeup"]


class Wakeup:
    """An event with a timer. The loop waits on it; everything else sets it.

    Attributes:
        more_may_be_due: Whether the last claim got all that it asked for, so that there may be something for the next slot that
            is free. After a claim that got less, the store tells when something is due: looking earlier would be in vain.
    """

    def __init__(self) -> None:
        self.more_may_be_due = True
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._context = contextvars.Context()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # a handle of uvloop doesn't tell it where the time has come already
        self._error: Exception | None = None

    def wake(self) -> None:
        """Have the loop look again."""
        self._woken.set()

    def fail(self, error: Exception) -> None:
        """Have the loop end with an error that somebody else has met, and that trying again doesn't mend. The first counts."""
        if self._error is None:
            self._error = error
        self._woken.set()

    def slot_freed(self) -> None:
        """Have the loop look again for a slot that is free, or for an outcome that was written, if that may bring something."""
        if self.more_may_be_due:
            self._woken.set()

    def wake_in(self, delay: float) -> None:
        """Wake the loop at the latest in `delay` seconds. Waking early does no harm, so the timer is moved only forward."""
        when = self._loop.time() + delay
        if self._timer is not None:
            # Its time may have passed without its having gone off: the loop was blocked, or the process frozen.
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._went_off, context=self._context)

    def _went_off(self) -> None:
        self._timer = None
        self._woken.set()

    def begin_turn(self) -> None:
        """Forget what has woken the loop so far. Called before it looks, so that nothing that happens later is missed.

        Raises:
            Exception: What was given to `fail`.
        """
        if self._error is not None:
            raise self._error
        self._woken.clear()

    async def pause(self, wait: float) -> None:
        """Sleep until something wakes the loop, for at most so many seconds; not at all if it was woken in this turn."""
        self.wake_in(wait)
        await self._woken.wait()

    def close(self) -> None:
        """Drop the timer: the loop has ended."""
        if self._timer is not None:
            self._timer.cancel()
