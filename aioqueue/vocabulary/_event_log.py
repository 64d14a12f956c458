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
    """What has happened to a job. `aioqueue.events` has a class for each. Behind each stands what its body has."""

    ENQUEUED = "enqueued"
    """It was stored, or another one has taken its place: an insert, a chain's next job, a child. `{}`."""
    BLOCKED = "blocked"
    """The same, and it waits for others; also one that was revived, and waits again. `{}`."""
    UNBLOCKED = "unblocked"
    """It waits for nothing any more. `{}`."""
    STARTED = "started"
    """A worker has claimed it. `{}`."""
    PROGRESS = "progress"
    """`{"percent", "message", "phase"}`; the last two may be null."""
    PHASE_STARTED = "phase_started"
    """`{"phase"}`."""
    PHASE_COMPLETED = "phase_completed"
    """`{"phase"}`."""
    RETRYING = "retrying"
    """An attempt has failed, or the job was revived by hand: it's pending again. `{"delay", "error"}`; `error` is null where
    there was none.
    """
    RESCHEDULED = "rescheduled"
    """It's pending at another time, without an attempt having been used: also where a claim was given back, and where somebody
    has changed when it's due. `{"delay"}`.
    """
    COMPLETED = "completed"
    """`{"outcome"}`; null without one."""
    CONTINUED = "continued"
    """`{"next_id", "outcome"}`. The next job's own event follows."""
    FAILED = "failed"
    """`{"error"}`."""
    CANCELLED = "cancelled"
    """`{"error"}`: also where it has expired."""
    REAPED = "reaped"
    """Its worker is gone. It comes just before what became of it, which the same settlement writes. `{}`."""
    DELETED = "deleted"
    """It was removed, by hand or since it was old. One for each step of a chain. `{}`."""
    DELIVERED = "delivered"
    """Its webhook was delivered. `{"status"}`."""
    UNDELIVERED = "undelivered"
    """The delivery of its webhook was given up. `{"status"}`; null without an answer."""


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
        body: A small JSON object with what else the kind tells: see `EventKind`. `delay` is in seconds; `error` is an object
            with `type` and `message`, of which the first `store_rules._events.MESSAGE_CHARACTERS` are kept.
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
