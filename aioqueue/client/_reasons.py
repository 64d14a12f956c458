"""The answer to why a job isn't running."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._job import Job, JobState

__all__ = ["Reason", "ReasonCode", "Why"]


class ReasonCode(StrEnum):
    """Why a job isn't running, or that it is."""

    NOT_FOUND = "not_found"
    COMPLETED = "completed"
    CONTINUED = "continued"
    """It has run, and its chain has gone on from it."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    """It was asked to end, and hasn't yet."""
    EXPIRED = "expired"
    """It wasn't started in time, and was discarded."""
    EXPIRES = "expires"
    """It wasn't started in time: the next worker that takes it discards it."""
    SCHEDULED = "scheduled"
    RETRY = "retry"
    """An attempt failed, and the next one waits for its time."""
    RESCHEDULED = "rescheduled"
    BLOCKED = "blocked"
    """It waits for the ends of other chains."""
    KEY_TAKEN_OVER = "key_taken_over"
    """It waits for the end of the chain from which it took its unique key over (`on_conflict="replace"`)."""
    UNANSWERED = "unanswered"
    """It waits to be completed from outside: no worker runs its type, which was only declared."""
    PAUSED = "paused"
    """Jobs of its type, with its key, or all are paused: one reason for each pause."""
    AT_LIMIT = "at_limit"
    """It waits for a place: as many run already as its type's limit, or a shared one, allows."""
    AT_RATE = "at_rate"
    """It waits for the next start that its type's rate allows."""
    IN_SEQUENCE = "in_sequence"
    """It isn't its turn in its sequence."""
    WAITS_FOR_TURN = "waits_for_turn"
    """It waits for the turn of its value of `fairness_by`."""
    HELD = "held"
    """It's held back, and not by a pause that is still there, nor at a gate; or in a state that this version doesn't know."""
    RUNNING = "running"
    WORKER_LOST = "worker_lost"
    """It counts as running, and its worker's lease has run out, or is gone: another worker will take it over."""
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_TYPE = "no_worker_for_type"
    TYPES_UNKNOWN = "types_unknown"
    """Workers of an older version are alive, which don't say what types they run."""
    SLOTS_BUSY = "slots_busy"
    JOBS_BEFORE = "jobs_before"
    ABOUT_TO_START = "about_to_start"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    Attributes:
        code: For programs.
        text: For people.
        advice: What to do about it; empty if there is nothing to be done.
    """

    code: ReasonCode
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a job isn't running.

    Attributes:
        id: The job's id.
        state: Its state; None if there is no such job, and no chain that began with it.
        reasons: At least one, the most important first.
        job: The job as it is stored; None if it isn't there, or isn't any more.
        chain_end: The live or last step of the chain, where that has gone on from the job: ask about it next. Otherwise None.
    """

    id: UUID
    state: JobState | None
    reasons: tuple[Reason, ...]
    job: Job | None
    chain_end: Job | None = None
