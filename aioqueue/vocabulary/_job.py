"""The values that describe a job: the vocabulary that clients, workers and stores share. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Literal

import orjson

from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._job_attempts import JobAttempt, list_attempts
from aioqueue.vocabulary._new_job import Inserted, NewJob
from aioqueue.vocabulary._states import JobState, StoredState

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.errors import AioqueueError
    from aioqueue.vocabulary._blockers import EndedBlocker
    from aioqueue.vocabulary._origin import Origin
    from aioqueue.vocabulary._phases import Phase, Progress

__all__ = [
    "AttemptError",
    "Claim",
    "ClaimedJob",
    "Ending",
    "Inserted",
    "Job",
    "JobState",
    "LostReason",
    "NewJob",
    "Priority",
    "SettleResult",
    "Settlement",
    "SettlementKind",
    "StoredState",
    "was_discarded",
]

Priority = Literal[1, 2, 3, 4]
"""1 is the most urgent; 2 is the default."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One taking of a job by a lease: what every write of a worker is fenced by, together with the lease's id."""

    id: UUID
    claims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """One job that a worker has claimed.

    Attributes:
        id, type, payload, priority, key, tags, metadata, retry, timeout, max_attempts, trace: As inserted.
        attempt: The number of the attempt that this claim begins, from 1. It has been counted already.
        claims: How often the job was claimed, this time included: the fence.
        chain_id: The id of its chain's first job: its own, if it is that.
        position: Its place in the chain, from 0.
        lease_id: The lease that holds it.
        created_at, run_at, started_at: UTC, by the database's clock.
        expired: Whether it had to be started earlier, and must be discarded. Only at its first start.
        reschedules: How often it was rescheduled without using an attempt.
        blockers: The chains that it has waited for, in the order in which they were given.
        worker: Of a recovered one, the name of the worker that has lost it; empty where that isn't known, and for others.
        origin: The tick or the dry run that it's of; None for most.
    """

    id: UUID
    type: str
    payload: bytes
    priority: int
    attempt: int
    claims: int
    lease_id: int
    chain_id: UUID
    created_at: datetime
    run_at: datetime
    started_at: datetime
    max_attempts: int | None
    position: int = 0
    retry: bytes | None = None
    timeout: float | None = None
    expired: bool = False
    reschedules: int = 0
    key: str | None = None
    tags: tuple[str, ...] = ()
    metadata: bytes = b"{}"
    trace: str | None = None
    blockers: tuple[EndedBlocker, ...] = ()
    worker: str = ""
    origin: Origin | None = None

    @property
    def nominal_time(self) -> datetime | None:
        """The time of the schedule's tick that it's for, in UTC; None for a job that no schedule has enqueued."""
        return None if self.origin is None else self.origin.nominal_time

    @property
    def claim(self) -> Claim:
        """The id and the number of the claim: with the lease's id they fence each write about the job."""
        return Claim(self.id, self.claims)


class SettlementKind(IntEnum):
    """How an attempt ended, as far as the store is concerned."""

    COMPLETED = 4
    CONTINUED = 5
    """Finished, and its chain goes on with `Settlement.next`."""
    FAILED = 6
    CANCELLED = 7
    RETRIED = 8
    """Pending again after a delay; the attempt counts."""
    RESCHEDULED = 9
    """Pending again; the attempt doesn't count, `reschedules` goes up by one."""

    @property
    def finishes(self) -> bool:
        """Whether the job has finished, and goes to the archive; otherwise it is pending again."""
        return self < SettlementKind.RETRIED

    @property
    def ends_chain(self) -> bool:
        """Whether the job's chain has ended with it: whoever waits for the chain's result is told."""
        return self < SettlementKind.RETRIED and self is not SettlementKind.CONTINUED


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a worker writes about one claim.

    Attributes:
        id, claims, lease_id: The fence.
        kind: How the attempt ended.
        output: JSON, for a completed one.
        outcome: A short label for statistics.
        delay: Seconds from the database's now, for the kinds that make it pending. Not together with `run_at`.
        run_at: When it is due again, in UTC.
        error: Appended to the job's history.
        next: The chain's next job, where the kind is `CONTINUED`. It's stored as it is, except for what belongs to the chain:
            the store takes its id, the next position, key and unique key from the job that has finished. It may have blockers.
        children: Further jobs that are stored in the same transaction, and not at all if the settlement isn't written: each a
            chain of its own, after those of them that it waits for. Each has its own unique key, if it has one, but none that
            raises; those that are implied are stored if `next` or another one that is stored waits for them.
        yields: Whether the job is cancelled instead, where that was asked for meanwhile: so do failures that nobody chose.
            Settlements that would make it pending do so in any case.
        attempt: The number of the attempt that has ended, for its `logs`.
        logs: What its handler has logged: the `AttemptLog.lines_json` that is stored with it.
    """

    id: UUID
    claims: int
    lease_id: int
    kind: SettlementKind
    output: bytes | None = None
    outcome: str | None = None
    delay: float | None = None
    run_at: datetime | None = None
    error: AttemptError | None = None
    next: NewJob | None = None
    children: tuple[NewJob, ...] = ()
    yields: bool = False
    attempt: int = 0
    logs: bytes | None = None

    @property
    def size(self) -> int:
        """About how many bytes it writes: batches are cut by it."""
        size = 0 if self.output is None else len(self.output)
        if self.logs is not None:
            size += len(self.logs)
        if self.error is not None:
            size += len(self.error.message) + len(self.error.traceback)
        if self.children:
            size += sum(child.size for child in self.children)
        return size if self.next is None else size + self.next.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What somebody other than a worker says of a job that isn't finished: how it ends, whatever its state is.

    Attributes:
        id: The job's own id: of a chain, that of its live step.
        kind: `COMPLETED`, `CONTINUED`, `FAILED` or `CANCELLED`.
        output, outcome, error, next, children: As of a `Settlement`.
    """

    id: UUID
    kind: SettlementKind
    output: bytes | None = None
    outcome: str | None = None
    error: AttemptError | None = None
    next: NewJob | None = None
    children: tuple[NewJob, ...] = ()


class LostReason(StrEnum):
    """Why a worker's claim is no longer its own."""

    TAKEN = "taken_by_another_worker"
    COMPLETED = "already_completed"
    NOT_FOUND = "not_found"
    CANCELLED = "cancelled"
    LAPSED = "lease_lapsed"
    """The worker couldn't renew its lease, and it's over by the worker's own clock: others may have taken the job."""
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SettleResult:
    """What became of one settlement.

    Attributes:
        lost: None when it was written (also when an earlier call, whose answer was lost, wrote it), and when it's busy.
        message: What the database said, for `LostReason.ERROR`: the row itself was at fault, and nothing was written. Also
            where it's busy for another reason than a lock.
        busy: Somebody else has locked the row: nothing was written, and the claim is still what it was. Try again.
        refused: Why what was to be stored with it can't be: `BlockerNotFound` or `BlockerCycle` for its `next` or one of its
            `children`, `WrongJobType` for a child whose chosen id is another type's. Nothing was written, and the claim is
            still what it was: the attempt has failed.
        more: It was written, and not all who wait for the end of its chain were told: `Store.tend` goes on with that. A worker
            that hears of it calls that at once; otherwise they're told a few seconds later.
        cancelled: It was written as cancelled, or its `next` was, since the chain was asked to end.
    """

    lost: LostReason | None = None
    message: str = ""
    busy: bool = False
    refused: AioqueueError | None = None
    more: bool = False
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as it is stored: a snapshot.

    Attributes:
        id: The id, as its call or the enqueuing gave it.
        type: The full name of its type.
        state: See `JobState`.
        priority: 1 to 4.
        payload: The arguments as stored: a JSON object. `arguments` reads it.
        created_at, run_at: UTC. `run_at` is when it is or was due.
        started_at: When its newest attempt was claimed; None if never.
        finished_at: When it finished; None while it's live.
        attempt: How many attempts have been started (and counted).
        max_attempts: How many may be; None for no limit.
        worker: The name of the worker that holds it, while it's running; then of the one that ran it last, where that is
            known.
        output_json: The output as stored, of a completed job. `output` reads it.
        outcome: The label that the handler gave.
        errors: The newest errors, oldest first.
        key, tags, metadata_json: As enqueued.
        timeout: Seconds for one attempt, where the call gave one.
        expires_at: When it is discarded if it hasn't been started, in UTC.
        reschedules: How often it was rescheduled without using an attempt.
        trace: The trace context of whoever has enqueued it, as JSON text, if there was one.
        chain_id: The id of its chain's first job: its own, if it is that.
        position: Its place in the chain, from 0.
        open_blockers: For how many chains' ends it still waits.
        cancel_reason: Why its chain was asked to end, while that hasn't happened yet; None if it wasn't.
        progress: How far it had come when it said so last; None if it never did, and in listings.
        phases: Its phases, as far as they have begun; none in listings.
        purge_at: When it may be removed with its chain, where its call or its type says how long it's kept; UTC.
        webhook: The URL that is told of its chain's end; None for nobody.
        origin: The tick or the dry run that it's of; None for most.
        held_by: What keeps it from being claimed though it's due, such as `pause:customer 7` for a paused key; None for others.
    """

    id: UUID
    chain_id: UUID
    type: str
    state: JobState
    priority: int
    payload: bytes
    created_at: datetime
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    max_attempts: int | None = None
    worker: str | None = None
    output_json: bytes | None = None
    outcome: str | None = None
    errors: tuple[AttemptError, ...] = ()
    key: str | None = None
    tags: tuple[str, ...] = ()
    metadata_json: bytes = field(default=b"{}")
    timeout: float | None = None
    expires_at: datetime | None = None
    reschedules: int = 0
    trace: str | None = None
    position: int = 0
    open_blockers: int = 0
    cancel_reason: str | None = None
    progress: Progress | None = None
    phases: tuple[Phase, ...] = ()
    purge_at: datetime | None = None
    webhook: str | None = None
    origin: Origin | None = None
    held_by: str | None = None

    @property
    def nominal_time(self) -> datetime | None:
        """The time of the schedule's tick that it's for, in UTC; None for a job that no schedule has enqueued."""
        return None if self.origin is None else self.origin.nominal_time

    @property
    def last_error(self) -> AttemptError | None:
        """The newest error, if there is one."""
        return self.errors[-1] if self.errors else None

    @property
    def attempts(self) -> tuple[JobAttempt, ...]:
        """Its attempts, oldest first, as far as they're kept: those with one of the newest errors, and the newest of all.

        One that put the job off, or was given back, didn't count and isn't there.
        """
        if self.started_at is None or not self.attempt or was_discarded(self):
            return list_attempts(self.errors, None)
        newest = JobAttempt(number=self.attempt, worker=self.worker, started_at=self.started_at, ended_at=self.finished_at)
        pending = self.state is not JobState.RUNNING and not self.state.finished
        attempts = list_attempts(self.errors, newest)
        return attempts[:-1] if pending and attempts[-1].error is None else attempts

    @property
    def arguments(self) -> Any:
        """The arguments as plain JSON values.

        Raises:
            orjson.JSONDecodeError: Somebody stored something that isn't JSON.
        """
        return orjson.loads(self.payload)

    @property
    def output(self) -> Any:
        """The output as plain JSON values; None without one. `JobHandle.result` gives it in its declared type.

        Raises:
            orjson.JSONDecodeError: Somebody stored something that isn't JSON.
        """
        return None if self.output_json is None else orjson.loads(self.output_json)

    @property
    def metadata(self) -> Any:
        """The metadata as plain JSON values.

        Raises:
            orjson.JSONDecodeError: Somebody stored something that isn't JSON.
        """
        return orjson.loads(self.metadata_json)


def was_discarded(job: Job) -> bool:
    """Whether it expired before it could start: its last claim, which counts as an attempt, has only found that out."""
    return job.state is JobState.CANCELLED and job.last_error is not None and job.last_error.type == "Expired"
