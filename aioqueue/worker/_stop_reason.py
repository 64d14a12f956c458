"""Why the worker stops an attempt, and what the attempt is told of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from aioqueue.vocabulary._cancel_reason import CancelReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import LostReason

__all__ = ["StopReason", "judged_by", "told_as"]


class StopReason(StrEnum):
    """Why the worker stops an attempt; in the order in which an attempt is told of them, where there are several."""

    LOST = "lost"
    CANCELLED = "cancelled"
    """Its chain was asked to end."""
    SHUTDOWN = "shutdown"
    EXIT = "exit"
    """A task or callback of the handler's has raised `SystemExit`."""
    TIMEOUT = "timeout"


_TOLD_AS = {
    StopReason.LOST: CancelReason.TAKEN,
    StopReason.CANCELLED: CancelReason.CANCELLED,
    StopReason.SHUTDOWN: CancelReason.SHUTDOWN,
    StopReason.EXIT: CancelReason.ERROR,
    StopReason.TIMEOUT: CancelReason.TIMEOUT,
}


def told_as(reasons: Sequence[StopReason], lost: LostReason | None) -> CancelReason:
    """What the attempt is told: the weightiest of the reasons, of which there is one at least."""
    if lost is not None:
        return CancelReason(lost.value)
    return next(_TOLD_AS[reason] for reason in StopReason if reason in reasons)


def judged_by(reasons: Sequence[StopReason]) -> StopReason | None:
    """What the attempt's end is judged by: a lost claim outdoes all; of the others the first counts.

    So an attempt has used up its time, also if it's a stop that ends it at last. A request to end outdoes the stop; whatever
    the end is judged by then, what would be tried again is cancelled, with its error.
    """
    if StopReason.LOST in reasons:
        return StopReason.LOST
    if StopReason.CANCELLED in reasons:
        reasons = [reason for reason in reasons if reason is not StopReason.SHUTDOWN]
    return reasons[0] if reasons else None
