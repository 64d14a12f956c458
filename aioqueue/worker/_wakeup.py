"""What wakes the main loop: anybody's word, a timer, or both; waking is all that others can do to the loop."""

from __future__ import annotations

import asyncio
import contextvars

__all__ = ["Wakeup"]


class Wakeup:
    """An event with a timer. The loop waits on it; everything else sets it.

    Attributes:
        hungry: Whether the last claim got all that it asked for, so that more may be due as soon as a slot is free. After
            a claim that got less, the store tells when something is due: looking again for a free slot would be in vain.
        until_idle: Whether the loop waits for the worker to be idle, to end then.
    """

    def __init__(self) -> None:
        self.hungry = True
        self.until_idle = False
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

    def freed(self, *, idle: bool) -> None:
        """A slot is free, or an outcome was written.

        Arguments:
            idle: Whether nothing runs any more, and nothing waits to be written.
        """
        if self.hungry or (idle and self.until_idle):
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
        """Drop the timer."""
        if self._timer is not None:
            self._timer.cancel()
