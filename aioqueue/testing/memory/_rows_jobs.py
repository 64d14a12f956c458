"""The row of a job, as the store in memory keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._deliveries import ChainEnding
from aioqueue.vocabulary._job import Claim, ClaimedJob, StoredState
from aioqueue.vocabulary._origin import Origin, decode_origin
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._blockers import EndedBlocker
    from aioqueue.vocabulary._job import AttemptError, NewJob, Settlement

__all__ = ["FOR_EVER", "Row", "as_dry_run", "is_late", "kept_hash", "later", "stored_origin"]

FOR_EVER = datetime.max.replace(tzinfo=UTC)
"""Stands for an infinite time."""

_FINISHED = frozenset({StoredState.COMPLETED, StoredState.CONTINUED, StoredState.FAILED, StoredState.CANCELLED})


@dataclass(slots=True)
class Row:
    """One job, live or finished.

    Attributes:
        new: As it was inserted, or as another job has become it that took its place.
        unique_hash: Stands for its unique key, if it has one.
        state: A `StoredState`, or whatever number an operator has written.
        lease_id: The lease that took it last; 0 if none ever did.
        written: The settlement that was written last, until the next claim: it's recognised when it's repeated.
        written_about_orphan: Whether that was written by whoever recovered it.
        written_cancelled: Whether it was written as cancelled, or its `next` was.
        locked_until: Until when somebody who isn't a worker has it locked; None if nobody has.
        held: Whether the transaction that is open has it locked.
        marked: Whether somebody waits, or has waited, for its chain, or it has waited for others itself.
        open_blockers: For how many chains' ends it still waits.
        chain_id: Of its chain's first job; None if it is that.
        position: Its place in the chain, from 0.
        cancel_reason: Why its chain was asked to end while it was running.
        held_by: What keeps it from being claimed, if it's held though it waits for nothing.
        gates: Where it was last let come or let through; empty for one that is only known to be in a sequence, None for others.
        let_come: The gate at which it was held last, if it was let come there and no claim has come to it since.
        unreadable: What is wrong with it if it can't be read any more.
    """

    new: NewJob
    created_at: datetime
    run_at: datetime
    expires_at: datetime | None
    unique_hash: UUID | None = None
    state: int = StoredState.PENDING
    attempt: int = 0
    claims: int = 0
    lease_id: int = 0
    reschedules: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    output: bytes | None = None
    outcome: str | None = None
    errors: tuple[AttemptError, ...] = ()
    written: Settlement | None = None
    written_about_orphan: bool = False
    written_cancelled: bool = False
    locked_until: datetime | None = None
    held: bool = False
    marked: bool = False
    open_blockers: int = 0
    chain_id: UUID | None = None
    position: int = 0
    cancel_reason: str | None = None
    held_by: str | None = None
    gates: tuple[str, ...] | None = None
    let_come: str | None = None
    unreadable: str = ""

    @property
    def claim(self) -> Claim:
        """The newest claim of the job, by which a worker's writes are fenced."""
        return Claim(self.new.id, self.claims)

    @property
    def chain(self) -> UUID:
        """The id of its chain: that of its first job, which may be this one."""
        return self.chain_id or self.new.id

    @property
    def live(self) -> bool:
        """Whether the job hasn't finished: it is held, pending or running."""
        return self.state not in _FINISHED

    @property
    def purge_at(self) -> datetime | None:
        """When it may be removed, if it's said how long it's kept, and it has finished."""
        return None if self.new.keep is None or self.finished_at is None else later(self.finished_at, self.new.keep)

    @property
    def until_started(self) -> bool:
        """Whether it has its unique key only until it's claimed for the first time."""
        return self.new.unique is not None and self.new.unique.until == "started"

    @property
    def ending(self) -> ChainEnding:
        """How its chain has ended, of a job that has finished."""
        assert self.finished_at is not None
        return ChainEnding(
            job_id=self.new.id,
            chain_id=self.chain,
            job_type=self.new.type,
            state=self.state,
            attempt=self.attempt,
            finished_at=self.finished_at,
            webhook=self.new.webhook,
            key=self.new.key,
            tags=self.new.tags,
            outcome=self.outcome,
            output=self.output,
            error=self.errors[-1] if self.errors else None,
            origin=self.new.origin,
        )

    def locked(self, now: datetime) -> bool:
        """Whether somebody who isn't a worker has it locked."""
        return self.held or (self.locked_until is not None and self.locked_until > now)

    def claimed(self, blockers: tuple[EndedBlocker, ...], *, expired: bool = False) -> ClaimedJob:
        """The job as the worker gets it that has claimed it, with the ends of the chains for which it has waited."""
        new, started_at = self.new, self.started_at
        assert started_at is not None
        return ClaimedJob(
            id=new.id,
            type=new.type,
            payload=new.payload,
            priority=new.priority,
            attempt=self.attempt,
            claims=self.claims,
            lease_id=self.lease_id,
            chain_id=self.chain,
            position=self.position,
            created_at=self.created_at,
            run_at=self.run_at,
            started_at=started_at,
            max_attempts=new.max_attempts,
            retry=new.retry,
            timeout=new.timeout,
            expired=expired,
            reschedules=self.reschedules,
            key=new.key,
            tags=new.tags,
            metadata=new.metadata,
            trace=stored_trace(new.trace),
            blockers=blockers,
            origin=stored_origin(new.origin),
        )


def later(moment: datetime, seconds: float) -> datetime:
    """So many seconds after a moment, however many they are."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return FOR_EVER


def as_dry_run(new: NewJob) -> NewJob:
    """A job that is a dry run from now on, whoever goes on with it."""
    return replace(new, origin=replace(new.origin or Origin(), dry_run=True))


def stored_origin(origin: Origin | None) -> Origin | None:
    """Where a job comes from, as a database gives it back."""
    return None if origin is None else decode_origin(origin.encode())


def is_late(row: Row, now: datetime) -> bool:
    """Whether a job that is about to be started should have been started before."""
    return row.expires_at is not None and row.expires_at <= now and row.started_at is None


def kept_hash(row: Row) -> UUID | None:
    """What a job that ends, or whose chain goes on, keeps of its unique key: nothing, if it had it until its start."""
    return None if row.until_started else row.unique_hash
