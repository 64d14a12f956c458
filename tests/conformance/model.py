"""What a store must do with jobs and leases, as simply as it can be said: the state machine compares with it.

Time is a number of seconds that only `age` moves. Every command has a second of its own and delays are whole hours, so
that real time, which runs on as well, changes the order of nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aioqueue.abc import Cancellation, Changed, Due
from aioqueue.errors import DuplicateJob
from aioqueue.vocabulary._job import Claim, Inserted, JobState, LostReason, NewJob, Settlement, SettlementKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._phases import PhaseState

AGAIN = (SettlementKind.RETRIED, SettlementKind.RESCHEDULED)
FINAL = {
    SettlementKind.COMPLETED: JobState.COMPLETED,
    SettlementKind.CONTINUED: JobState.CONTINUED,
    SettlementKind.FAILED: JobState.FAILED,
    SettlementKind.CANCELLED: JobState.CANCELLED,
}
PENDING = (JobState.READY, JobState.SCHEDULED)
MOVABLE = (*PENDING, JobState.HELD)
"""Those that may be due at another time."""
WAITING = (*MOVABLE, JobState.BLOCKED)


@dataclass
class ModelJob:
    new: NewJob
    due: float
    expires: float | None
    chain: UUID
    position: int = 0
    unique: tuple[str, str | None] | None = None
    """What its chain keeps from others until it ends: a type and a key."""
    created: float = 0.0
    state: JobState = JobState.READY  # or SCHEDULED: `Model.state` looks at the due time
    attempt: int = 0
    claims: int = 0
    lease_id: int | None = None
    reschedules: int = 0
    errors: list[str] = field(default_factory=list)
    output: bytes | None = None
    newest: tuple[int, int, SettlementKind, bool] | None = None
    started: bool = False
    """Whether it has been started for sure, and can't expire any more."""
    written: list[tuple[int, int]] = field(default_factory=list)
    asked: str | None = None
    """Why its chain was asked to end while it was running."""
    newest_cancelled: bool = False
    phases: dict[str, tuple[PhaseState, bytes | None]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    """By which claim each phase was completed last."""
    percent: float | None = None
    told: float = -1.0
    """When it was told of the last chain that it waited for, took another's place, or came back: how soon the store did so in
    that second isn't known.
    """

    @property
    def until_started(self) -> bool:
        return self.new.unique is not None and self.new.unique.until == "started"

    @property
    def finished(self) -> bool:
        return self.state.finished


@dataclass
class ModelLease:
    worker: str
    end: float


class Model:
    """See the module."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: dict[UUID, ModelJob] = {}
        self.leases: dict[int, ModelLease] = {}
        self.windows: dict[tuple[str, str | None], tuple[UUID, float]] = {}
        self.claims = 0
        self.served: dict[str, int] = {}

    # -- looking --------------------------------------------------------------------------------------------------

    def state(self, job: ModelJob) -> JobState:
        if job.state in PENDING:
            return JobState.READY if job.due <= self.now else JobState.SCHEDULED
        return job.state

    def valid(self, lease_id: int) -> bool:
        return lease_id in self.leases and self.leases[lease_id].end > self.now

    def expired_leases(self, own: Collection[int] = ()) -> list[int]:
        return [lease_id for lease_id in self.leases if not self.valid(lease_id) and lease_id not in own]

    def held(self, lease_id: int) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.state is JobState.RUNNING and job.lease_id == lease_id]

    def asked_under(self, lease_id: int) -> dict[Claim, str]:
        return {Claim(job.new.id, job.claims): job.asked for job in self.held(lease_id) if job.asked is not None}

    def orphans(self, own: Collection[int] = ()) -> list[ModelJob]:
        running = [job for job in self.jobs.values() if job.state is JobState.RUNNING and job.lease_id not in own]
        return [job for job in running if job.lease_id is None or not self.valid(job.lease_id)]

    def holder(self, unique: tuple[str, str | None] | None) -> ModelJob | None:
        """The live step of the unfinished chain that has the unique key."""
        jobs = (job for job in self.jobs.values() if not job.finished and not (job.until_started and job.claims))
        holders = [job for job in jobs if unique and job.unique == unique]
        assert len(holders) < 2, holders
        return next(iter(holders), None)

    def kept(self, new: NewJob) -> UUID | None:
        """The chain that has completed and keeps the job's key, if it minds windows."""
        chain, until = self.windows.get((new.type, new.key), (new.id, 0.0))
        last = self.end(chain)
        counts = new.unique is not None and new.unique.window is not None and until > self.now
        return chain if counts and last is not None and last.state is JobState.COMPLETED else None

    def chain_of(self, job_id: UUID) -> UUID:
        """The chain that an id stands for: a first step's does when it's gone as well."""
        return self.jobs[job_id].chain if job_id in self.jobs else job_id

    def steps(self, chain: UUID) -> list[ModelJob]:
        return sorted((job for job in self.jobs.values() if job.chain == chain), key=lambda job: job.position)

    def end(self, job_id: UUID) -> ModelJob | None:
        """The live or last step of any step's chain."""
        return next(reversed(self.steps(self.chain_of(job_id))), None)

    def claimable(self, types: Sequence[str], got: Sequence[UUID]) -> list[ModelJob]:
        """In their order; of those that are due in the same second, and of which one was told then, in the store's."""
        due = [job for job in self.jobs.values() if self.state(job) is JobState.READY and job.new.type in types]
        free = {(job.new.priority, job.due) for job in due if job.told == job.due}
        places = {job_id: place for place, job_id in enumerate(got)}

        def key(job: ModelJob) -> tuple[int, float, int, UUID]:
            place = places.get(job.new.id, len(places)) if (job.new.priority, job.due) in free else 0
            return job.new.priority, job.due, place, job.new.id

        return sorted(due, key=key)

    def in_turn(self, urgent: Sequence[ModelJob]) -> list[ModelJob]:
        """As they are taken: of a priority, the first of each type before the second, types in turn."""
        places: Counter[tuple[str, int]] = Counter()
        keys: dict[UUID, tuple[int, int, int, int]] = {}
        for number, job in enumerate(urgent):
            lane = (job.new.type, job.new.priority)
            keys[job.new.id] = (job.new.priority, places[lane], self.served.get(job.new.type, 0), number)
            places[lane] += 1
        return sorted(urgent, key=lambda job: keys[job.new.id])

    def next_due(self, types: Sequence[str], own: Collection[int]) -> Due:
        jobs = [job.due for job in self.jobs.values() if job.state in PENDING and job.new.type in types]
        ends = [lease.end for lease_id, lease in self.leases.items() if lease_id not in own]
        ends += [self.now for job in self.orphans(own) if job.lease_id not in self.leases]
        return Due(
            job=max(0.0, min(jobs) - self.now) if jobs else None,
            lease=max(0.0, min(ends) - self.now) if ends else None,
        )

    # -- commands -------------------------------------------------------------------------------------------------

    def insert(self, jobs: Sequence[NewJob], *, repeated: bool = False) -> list[Inserted]:
        return [self._insert(new, repeated=repeated) for new in jobs]

    def _insert(self, new: NewJob, *, repeated: bool) -> Inserted:
        if new.id in self.jobs or (repeated and self.steps(new.id)):
            return Inserted(new.id, created=False)
        unique = (new.type, new.key) if new.unique else None
        holder = self.holder(unique)
        there = self.kept(new) if holder is None else holder.chain
        if there is not None and new.unique is not None and new.unique.on_conflict == "raise":
            raise DuplicateJob("it's held", job_id=new.id, key=new.key or "", chain_id=there)
        if there is not None and (holder is None or new.unique is None or new.unique.on_conflict == "return"):
            return Inserted(there, created=False)
        replaces = holder is not None and not holder.position and holder.state in WAITING
        job_id = holder.new.id if holder is not None and replaces else new.id
        if holder is not None and replaces:
            self.replace(holder, new)
        else:
            self._store(new, new.id, 0, unique)
            if holder is not None:
                self.take_over(holder, new.id)
        if unique is not None and new.unique is not None and new.unique.window_seconds is not None:
            self.windows[unique] = job_id, self.now + new.unique.window_seconds
        return Inserted(job_id, created=not replaces, replaced=replaces)

    def replace(self, job: ModelJob, new: NewJob) -> None:
        job.new, job.state, job.newest, job.started = replace(new, id=job.new.id), JobState.READY, None, False
        job.due, job.told = self.now + (new.delay or 0), self.now
        if new.max_delay is not None:
            job.due = max(self.now, min(job.due, job.created + new.max_delay))
        job.expires = None if new.expires is None else job.due + new.expires
        job.attempt = job.reschedules = 0
        job.phases, job.done, job.percent = {}, {}, None

    def take_over(self, holder: ModelJob, job_id: UUID) -> None:
        """Let a new job have the key of another, for whose chain it waits."""
        del job_id
        holder.unique = None

    def _store(self, new: NewJob, chain: UUID, position: int, unique: tuple[str, str | None] | None) -> None:
        due = self.now + (new.delay or 0)
        expires = None if new.expires is None else due + new.expires
        self.jobs[new.id] = ModelJob(new, due, expires, chain, position, unique, self.now)

    def open_lease(self, lease_id: int, worker: str, duration: float) -> None:
        self.leases[lease_id] = ModelLease(worker, self.now + duration)

    def renew(self, lease_id: int, duration: float) -> None:
        self.leases[lease_id].end = self.now + duration

    def claim(
        self, lease_id: int, types: Sequence[str], limit: int, leases: Mapping[str, int], got: Sequence[UUID]
    ) -> list[ModelJob]:
        """What a claim must give, if it gave these ids."""
        urgent = self.claimable(types, got)
        taken = sorted(self.in_turn(urgent)[:limit], key=urgent.index)
        self.claims += 1
        for job in taken:
            self.served[job.new.type] = self.claims
            job.state, job.lease_id, job.newest = JobState.RUNNING, leases.get(job.new.type, lease_id), None
            job.attempt += 1
            job.claims += 1
        return taken

    def lost(self, claim: Claim, lease_id: int) -> LostReason | None:
        job = self.jobs.get(claim.id)
        if job is None:
            return LostReason.NOT_FOUND
        if job.finished:
            return LostReason.CANCELLED if job.state is JobState.CANCELLED else LostReason.COMPLETED
        if job.state is JobState.RUNNING and (job.claims, job.lease_id) == (claim.claims, lease_id):
            return None
        return LostReason.TAKEN

    def settle(self, each: Settlement, *, orphaned: bool) -> tuple[LostReason | None, ...]:
        """The answers that are right; nothing is written unless the only one is None for the first time."""
        job = self.jobs.get(each.id)
        fence = (each.claims, each.lease_id, each.kind, orphaned)
        if job is not None and job.newest == fence:
            return (None,)
        lost = self._lost_to_settle(each, orphaned=orphaned)
        if lost is None and each.next is not None and each.next.id in self.jobs:
            return (LostReason.ERROR,)
        if lost is None and job is not None:
            job.newest_cancelled = self._write_asked(job, each)
            job.newest = fence
            job.written.append(fence[:2])
            return (None,)
        if job is not None and fence[:2] in job.written:
            # This claim was settled once, and the job went on from there, or this is another ending of it: whether the
            # store still knows that is its own affair, as long as it writes nothing.
            return (None, lost)
        return (lost,)

    def _lost_to_settle(self, each: Settlement, *, orphaned: bool) -> LostReason | None:
        job = self.jobs.get(each.id)
        if job is None:
            return LostReason.NOT_FOUND
        lost = LostReason.TAKEN
        if job.finished:
            lost = LostReason.CANCELLED if job.state is JobState.CANCELLED else LostReason.COMPLETED
        allowed = not self.valid(each.lease_id) if orphaned else each.lease_id in self.leases
        owned = job.state is JobState.RUNNING and (job.claims, job.lease_id) == (each.claims, each.lease_id)
        return None if allowed and owned else lost

    def _write_asked(self, job: ModelJob, each: Settlement) -> bool:
        """Write a settlement; whether it became another one, since the chain was asked to end."""
        reason, job.asked = job.asked, None
        if reason is None:
            self._write(job, each)
            return False
        yields = each.kind in AGAIN or (each.kind is SettlementKind.FAILED and each.yields)
        self._write(job, replace(each, kind=SettlementKind.CANCELLED) if yields else each)
        if yields and each.error is None:
            job.errors.append(reason)
        if each.next is not None:
            self.end_as_asked(self.jobs[each.next.id], reason)
        return yields or each.next is not None

    def end_as_asked(self, job: ModelJob, reason: str) -> None:
        job.state, job.newest = JobState.CANCELLED, None
        job.errors.append(reason)

    def cancel(self, job_id: UUID, reason: str) -> Cancellation:
        job = self.end(job_id)
        if job is None:
            return Cancellation.NOT_FOUND
        if job.finished:
            return Cancellation.FINISHED
        if job.state is JobState.RUNNING:
            job.asked = reason if job.asked is None else job.asked
            return Cancellation.CANCELLING
        self.end_as_asked(job, reason)
        return Cancellation.CANCELLED

    def _write(self, job: ModelJob, each: Settlement) -> None:
        if each.error is not None:
            job.errors.append(each.error.message)
        if each.kind in AGAIN:
            job.started = True
            self._pend(job, each.delay or 0)
            if each.kind is SettlementKind.RESCHEDULED:
                job.attempt -= 1
                job.reschedules += 1
        else:
            job.state, job.output = FINAL[each.kind], each.output
            if each.next is not None:
                keep = job.new.keep if each.next.keep is None else each.next.keep
                new = replace(each.next, key=job.new.key, unique=None, keep=keep, origin=job.new.origin)
                self._store(new, job.chain, job.position + 1, None if job.until_started else job.unique)

    def _pend(self, job: ModelJob, delay: float) -> None:
        job.state, job.due = JobState.READY, self.now + delay

    def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool) -> None:
        if lease_id not in self.leases:
            return
        named = [job for job in self.held(lease_id) if any((job.new.id, job.claims) == (c.id, c.claims) for c in claims)]
        for job in self.held(lease_id) if end else named:
            self._pend(job, 0)
            job.attempt -= 1
            if job.asked is not None:
                reason, job.asked = job.asked, None
                self.end_as_asked(job, reason)
        if end:
            del self.leases[lease_id]

    def retry(self, job_id: UUID) -> Changed:
        job = self.end(job_id)
        if job is None:
            return Changed.NOT_FOUND
        if job.state is JobState.RUNNING:
            return Changed.RUNNING
        if job.state not in (JobState.FAILED, JobState.CANCELLED):
            return Changed.WRONG_STATE
        if self.key_is_held(job):
            return Changed.KEY_HELD
        if job.until_started:
            job.unique = None
        self._pend(job, 0)
        job.attempt, job.reschedules, job.expires, job.newest, job.started = 0, 0, None, None, False
        return Changed.DONE

    def key_is_held(self, job: ModelJob) -> bool:
        """Whether a finished job would need a key that another has."""
        return not job.until_started and self.holder(job.unique) is not None

    def run_now(self, job_id: UUID) -> Changed:
        job = self.end(job_id)
        if job is None:
            return Changed.NOT_FOUND
        if job.state in MOVABLE:
            job.due = min(job.due, self.now)
            return Changed.DONE
        return Changed.RUNNING if job.state is JobState.RUNNING else Changed.WRONG_STATE

    def delete(self, job_id: UUID) -> Changed:
        steps = self.steps(self.chain_of(job_id))
        if not steps:
            return Changed.NOT_FOUND
        for job in steps:
            del self.jobs[job.new.id]
        return Changed.DONE

    def prune(self, state: JobState, types: Sequence[str] | None) -> list[UUID]:
        gone = [each.new.id for each in self.jobs.values() if each.state is state and (types is None or each.new.type in types)]
        for job_id in gone:
            del self.jobs[job_id]
        return gone
