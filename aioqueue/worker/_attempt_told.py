"""What the log and the span are told of an attempt's end that is known only once it's written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.worker._attempt_log import log_cancelled, log_end
from aioqueue.worker._attempt_span import end_span
from aioqueue.worker._outcome import unless_asked_to_end

if TYPE_CHECKING:
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._outcome import Outcome

__all__ = ["tell_at_last", "written_as_cancelled"]


def tell_at_last(slot: Slot, outcome: Outcome) -> None:
    """Tell how an attempt ended, if that had to wait until it was written."""
    if slot.told_late:
        slot.told_late = False
        end_span(slot, outcome)
        log_end(slot, outcome)


def written_as_cancelled(slot: Slot, outcome: Outcome) -> Outcome:
    """See what was written in place of an outcome, since the job's chain was asked to end before we heard of it, and tell that.

    Returns:
        It. Of an attempt that has continued its chain that's still the same: its next job is what was cancelled.
    """
    written = unless_asked_to_end(slot.job, outcome, "")
    if outcome.next is not None or (written is not outcome and not slot.told_late):
        log_cancelled(slot, outcome)
    return written
