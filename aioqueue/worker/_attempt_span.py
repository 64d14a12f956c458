"""The end of an attempt's span: what it says of the outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.telemetry._counters import AttemptOutcome
from aioqueue.worker._attempt_log import QUOTING, place_of
from aioqueue.worker._outcome import Interrupted

if TYPE_CHECKING:
    from aioqueue.worker._holdings import Slot
    from aioqueue.worker._outcome import Outcome

__all__ = ["end_span"]

_WELL = frozenset({AttemptOutcome.OK, AttemptOutcome.RESCHEDULED})


def end_span(slot: Slot, outcome: Outcome | Interrupted) -> None:
    """End the span of an attempt that has ended, or that is left behind. Does nothing where there is none, or none any more."""
    span, slot.span = slot.span, None
    if span is None:
        return
    if slot.lost is not None:
        span.end(AttemptOutcome.LOST, reason=slot.lost.value, succeeded=False)
    elif isinstance(outcome, Interrupted):
        reason = slot.reasons[0].value if slot.reasons else "the event loop has ended"
        span.end(AttemptOutcome.INTERRUPTED, reason=reason, succeeded=False)
    else:
        error = outcome.error
        if error is not None and error.type in QUOTING:
            error = replace(error, message=place_of(outcome), traceback="")
        span.end(outcome.counted_as, error, succeeded=outcome.counted_as in _WELL)
