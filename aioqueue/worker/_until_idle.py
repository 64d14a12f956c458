"""Running until nothing is due: a reading of what each turn of the main loop has come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._loop import Turn
    from aioqueue.worker._tending import Tending
    from aioqueue.worker._wakeup import Wakeup

__all__ = ["UntilIdle"]

_AS_GOOD_AS_NOW_SECONDS = 0.05
"""What is due within that is waited for: a retry without a wait may be due a fraction of a millisecond from now."""


class UntilIdle:
    """Says when a worker that is to run what is due has done so. `Loop.run` asks it; it changes nothing about the loop.

    It's done when nothing is due, nothing runs, nothing waits to be written, and nobody waits for an end that has come.

    Arguments:
        holdings: What the worker holds.
        wakeup: Wakes the loop when the last of that has ended.
        tending: Tells those who wait for chains that have ended.
    """

    def __init__(self, holdings: Holdings, wakeup: Wakeup, tending: Tending) -> None:
        self._holdings = holdings
        self._wakeup = wakeup
        self._tending = tending
        self._changes = tending.changes
        holdings.tell_when_idle(wakeup.wake)
        tending.tell_when_quiet(wakeup.wake)

    def reached(self, turn: Turn) -> bool:
        """Whether there is nothing more to do after this turn of the loop."""
        if not (self._holdings.idle and turn.certain and self._tending.quiet):
            return False
        if self._changes != (changes := self._tending.changes):
            self._changes = changes
            self._wakeup.wake()  # what waited may be due by now, and wasn't when that was asked
            return False
        if turn.claimed or not turn.began_idle:
            self._wakeup.wake()  # what has ended since may be due again already, and wasn't when that was asked
            return False
        return turn.due.job is None or turn.due.job > _AS_GOOD_AS_NOW_SECONDS
