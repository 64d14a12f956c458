"""The log of events, as a store keeps it while somebody reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = ["EventKind", "EventPage", "LoggedEvent"]


class EventKind(StrEnum):
    """What has happened to a job. `aioqueue.events` has a class for each."""

    ENQUEUED = "enqueued"
    STARTED = "started"
    PROGRESS = "progress"
    PHASE_STARTED = "phase_started"
    PHASE_COMPLETED = "phase_completed"
    RETRYING = "retrying"
    """An attempt has failed, or the job was revived by hand: it's pending again."""
    RESCHEDULED = "rescheduled"
    """It's pending at another time, without an attempt having been used: also where a claim was given back."""
    COMPLETED = "completed"
    CONTINUED = "continued"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REAPED = "reaped"
    """Its worker is gone: it's written as one of the others next."""
    BLOCKED = "blocked"
    """It was stored, and waits for others."""
    UNBLOCKED = "unblocked"
    DELETED = "deleted"
    DELIVERED = "delivered"
    """Its webhook was delivered."""
    UNDELIVERED = "undelivered"
    """The delivery of its webhook was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """One row of the log.

    Attributes:
        sequence: Greater than that of any event of the same job before.
        kind: What has happened.
        at: When, by the database's clock; UTC.
        job_id, chain_id: Whose.
        job_type: The full name of its type.
        attempt, claims: The job's numbers at that time; 0 where the kind has none.
        body: A small JSON object with what else the kind tells: `delay` (seconds), `next_id`, `error` (type and message),
            `outcome`, `percent`, `message`, `phase`, `reason`.
    """

    sequence: int
    kind: EventKind
    at: datetime
    job_id: UUID
    chain_id: UUID
    job_type: str
    attempt: int
    claims: int
    body: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class EventPage:
    """What has become visible in the log since the last look.

    Attributes:
        events: By their sequence.
        cursor: For the next look.
        reset: Whether something may be missing before these: the reader was away for longer than the log reaches.
    """

    events: tuple[LoggedEvent, ...]
    cursor: str
    reset: bool = False
