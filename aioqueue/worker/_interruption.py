"""What an attempt costs that was interrupted: nothing, unless it has itself ended the event loop that was to run it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aioqueue.runtime._exits import exits_in
from aioqueue.worker._event_loop_end import EventLoopEnd, event_loop_end
from aioqueue.worker._outcome import INTERRUPTED, interrupted_too_often, interruptions, raised
from aioqueue.worker._stop_reason import StopReason
from aioqueue.worker._text import described, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._outcome import Interrupted, Outcome
    from aioqueue.worker._policy import Policies

__all__ = ["Interruptions"]

logger = logging.getLogger("aioqueue.worker")

_MOST_INTERRUPTIONS = 5
"""How often a job may have been interrupted before it's suspected of ending the event loop, where nothing shows who did."""


class Interruptions:
    """Judges the attempts of one worker that were stopped before their end. `Attempts` asks it, and `Slots`.

    Arguments:
        policies: What counts for a job.
        ending: Whether the worker's own task was cancelled: the event loop's end cancels every task, attempts too.
    """

    def __init__(self, policies: Policies, ending: Callable[[], bool]) -> None:
        self._policies = policies
        self._ending = ending
        self._end = EventLoopEnd(None)
        self._own_exits: set[int] = set()  # ids of the exits with which an attempt's own body has ended last

    def look_for_an_exit(self) -> None:
        """See why the event loop has ended, if it has. Called when the worker is cancelled: later there may be less to see."""
        if self._end.error is None:
            self._end = event_loop_end()

    def explained(self, slot: Slot, error: BaseException) -> tuple[BaseException, StopReason | None]:
        """What has really ended an attempt's body, and what it's to be judged by.

        Arguments:
            slot: Whose attempt it was.
            error: With what its body has ended.
        """
        reason = slot.reason
        if slot.exit is not None and reason is StopReason.EXIT and isinstance(error, asyncio.CancelledError):
            return slot.exit, reason
        if exits := {id(each) for each in exits_in(error)}:
            self._own_exits = exits
            # Once the loop has ended, whoever raises an exit has ended it, and isn't interrupted by its end.
            return error, None if reason is StopReason.SHUTDOWN and self._ending() else reason
        if reason is None and self._ending():
            return error, StopReason.SHUTDOWN  # the loop's end cancels every task, also before we do
        return error, reason

    def judged(self, slot: Slot) -> Outcome | Interrupted:
        """What became of an attempt that was interrupted: nothing, unless it's the one that has ended the event loop.

        Called from a callback, while the slot still has its attempt.
        """
        attempt, task = slot.attempt, slot.task
        if not self._ending() or attempt is None or task is None:
            return INTERRUPTED
        self.look_for_an_exit()
        end = self._end
        if end.error is not None and end.attempt is attempt:
            _log_guilty(slot, end.error)
            return raised(slot.job, self._policies.of(slot.job), end.error, label=attempt.outcome, reason=None, timeout=None)
        known = end.known or id(end.error) in self._own_exits
        by_the_loop = task.cancelling() > len(slot.reasons)
        if by_the_loop and not known and interruptions(slot.job) >= _MOST_INTERRUPTIONS:
            return interrupted_too_often(slot.job, self._policies.of(slot.job))
        return INTERRUPTED


def _log_guilty(slot: Slot, error: BaseException) -> None:
    job = slot.job
    logger.error(
        "%s %s: attempt %d has ended the event loop and this worker: a task or callback that it has started has raised %s",
        one_line(job.type),
        job.id,
        job.attempt,
        described(error),
        extra=slot.event("attempt.ended_worker"),
    )
