"""What is kept of what happens to jobs while somebody reads it: for how long, and what the events of endings say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._phases import PhaseState
from aioqueue.vocabulary._webhooks import DeliveryState

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import AttemptError
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from aioqueue.vocabulary._webhooks import DeliveryTry

__all__ = [
    "DELIVERIES",
    "KEPT_SECONDS",
    "KINDS",
    "MESSAGE_CHARACTERS",
    "PHASES",
    "body_of_delivery",
    "body_of_end",
    "body_of_pending",
    "body_of_phase",
    "body_of_progress",
    "error_told",
]

KEPT_SECONDS = 300.0
"""How long an event stays in the log."""

MESSAGE_CHARACTERS = 500
"""How much of an error's message an event has."""

KINDS = {
    SettlementKind.COMPLETED: EventKind.COMPLETED,
    SettlementKind.CONTINUED: EventKind.CONTINUED,
    SettlementKind.FAILED: EventKind.FAILED,
    SettlementKind.CANCELLED: EventKind.CANCELLED,
    SettlementKind.RETRIED: EventKind.RETRYING,
    SettlementKind.RESCHEDULED: EventKind.RESCHEDULED,
}
"""What a settlement is told as. An archived job's state has the number of its settlement's kind."""

PHASES = {PhaseState.RUNNING: EventKind.PHASE_STARTED, PhaseState.COMPLETED: EventKind.PHASE_COMPLETED}
"""What is told of a phase; nothing of one that has failed, which its attempt's end says."""

DELIVERIES = {DeliveryState.DELIVERED: EventKind.DELIVERED, DeliveryState.FAILED: EventKind.UNDELIVERED}
"""What is told of a delivery's tries."""


def error_told(error: AttemptError | None) -> dict[str, str] | None:
    """What an event has of an error."""
    return None if error is None else {"type": error.type, "message": error.message[:MESSAGE_CHARACTERS]}


def body_of_end(
    kind: SettlementKind, *, outcome: str | None = None, error: AttemptError | None = None, next_id: UUID | None = None
) -> bytes:
    """The body of the event of a job that has finished."""
    if kind in (SettlementKind.FAILED, SettlementKind.CANCELLED):
        return orjson.dumps({"error": error_told(error)})
    if kind is SettlementKind.CONTINUED:
        return orjson.dumps({"next_id": next_id, "outcome": outcome})
    return orjson.dumps({"outcome": outcome})


def body_of_pending(kind: SettlementKind, run_at: datetime, now: datetime, error: AttemptError | None = None) -> bytes:
    """The body of the event of a job that is pending again.

    Arguments:
        kind: `RETRIED`, which has the error, or `RESCHEDULED`.
        run_at: When it's due.
        now: The database's time.
        error: Why it's tried again, if an attempt has failed.
    """
    told: dict[str, Any] = {"delay": max(0.0, (run_at - now).total_seconds())}
    if kind is SettlementKind.RETRIED:
        told["error"] = error_told(error)
    return orjson.dumps(told)


def body_of_phase(write: PhaseWrite) -> bytes:
    """The body of the event of a phase."""
    return orjson.dumps({"phase": write.name})


def body_of_progress(write: ProgressWrite) -> bytes:
    """The body of the event of progress."""
    return orjson.dumps({"percent": write.percent, "message": write.message, "phase": write.phase})


def body_of_delivery(what: DeliveryTry) -> bytes:
    """The body of the event of a delivery."""
    return orjson.dumps({"status": what.status})
