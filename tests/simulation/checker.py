"""Watches a history: what must hold whatever happens. It keeps its own account, and believes neither store nor worker.

It hears what the database was really asked to do (also when the answer got lost), and when handlers began and ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue._job import SettlementKind
from tests.simulation.expectations import Run, expected_of, fits
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioqueue._job import Claim, ClaimedJob, NewJob, Settlement, SettleResult
    from aioqueue.abc import Renewal
    from tests.simulation.process import Process

_MOMENT = 1e-6
_TO_STOP = 1.0
"""Seconds that an attempt may go on after its worker was told to stop it."""

_TERMINAL = {SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED}


class Violated(AssertionError):
    """Something that must hold doesn't."""


@dataclass
class Lease:
    """The checker's own account of one."""

    worker: str
    duration: float
    expires: float
    process: Process | None = None
    """Whose worker has been told that it holds it."""


@dataclass
class Truth:
    """The checker's own account of one job.

    Attributes:
        holder: Lease and claim that have the job at the moment.
        orphaned: Claims that were lost because their lease ran out.
        written: Settlements that were carried out.
    """

    new: NewJob
    due: float
    expires: float | None
    claims: int = 0
    attempt: int = 0
    reschedules: int = 0
    releases: int = 0
    holder: tuple[int, int] | None = None
    ended: SettlementKind | None = None
    expired: bool = False
    orphaned: set[int] = field(default_factory=set[int])
    written: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    runs: dict[int, Run] = field(default_factory=dict[int, Run])


class Checker:
    """See the module. The first violation ends the history.

    Arguments:
        now: The time.
        note: Writes a line of the history.
        name: How a job is called in it.
    """

    def __init__(self, now: Callable[[], float], note: Callable[[str], None], name: Callable[[UUID], str]) -> None:
        self._now = now
        self._note = note
        self._name = name
        self.jobs: dict[UUID, Truth] = {}
        self.leases: dict[int, Lease] = {}
        self.violation: str | None = None
        self.unfinished = 0

    def _violated(self, text: str) -> None:
        if self.violation is None:
            self.violation = text
            self._note(f"VIOLATED: {text}")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            self._violated(text)

    def _honest(self, lease_id: int) -> bool:
        lease = self.leases.get(lease_id)
        return lease is not None and lease.expires > self._now()

    # -- leases -------------------------------------------------------------------------------------------------------

    def lease_opened(self, lease_id: int, worker: str, duration: float) -> None:
        self._note(f"lease {lease_id} opened by {worker}")
        self.leases[lease_id] = Lease(worker, duration, self._now() + duration)

    def lease_told(self, lease_id: int, process: Process) -> None:
        """A worker has got the answer with its new lease."""
        if (lease := self.leases.get(lease_id)) is not None:
            lease.process = process

    def renewed(self, lease_id: int, duration: float) -> None:
        self._require(lease_id in self.leases, f"lease {lease_id} was renewed after its end")
        if (lease := self.leases.get(lease_id)) is not None:
            lease.expires = self._now() + duration

    def lease_taken(self, lease_id: int) -> None:
        self._note(f"lease {lease_id} taken")
        lease = self.leases.pop(lease_id)
        self._require(lease.expires <= self._now() + _MOMENT, f"lease {lease_id} was taken while it was valid")
        process = lease.process
        if process is not None and process.answers_for_leases and self._now() - process.disturbed_at > 1.5 * lease.duration:
            self._violated(f"{process.name} is well, and has let its lease {lease_id} run out")

    def lease_ended(self, lease_id: int) -> None:
        self._note(f"lease {lease_id} ended")
        self.leases.pop(lease_id, None)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def inserted(self, new: NewJob, due: float) -> None:
        self._note(f"{self._name(new.id)} stored, due at {due:.3f}")
        self.jobs[new.id] = Truth(new, due, None if new.expires is None else due + new.expires)
        self.unfinished += 1

    def claimed(self, job: ClaimedJob) -> None:
        truth, name, now = self.jobs[job.id], self._name(job.id), self._now()
        self._note(f"{name} claimed by lease {job.lease_id}, claim {job.claims}, attempt {job.attempt}")
        self._require(truth.ended is None, f"{name} was claimed after its end")
        self._require(truth.holder is None, f"{name} was claimed while {truth.holder} held it")
        self._require(now >= truth.due - _MOMENT, f"{name} was claimed before it was due at {truth.due:.3f}")
        self._require(self._honest(job.lease_id), f"{name} was claimed by lease {job.lease_id}, which isn't valid")
        truth.claims += 1
        truth.attempt += 1
        truth.holder = (job.lease_id, job.claims)
        truth.expired = job.expired
        self._require(job.claims == truth.claims, f"{name} has a fence of {job.claims}, not {truth.claims}")
        self._require(job.attempt == truth.attempt, f"{name} is at attempt {job.attempt}, not {truth.attempt}")
        limit = truth.new.max_attempts
        self._require(limit is None or job.attempt <= limit, f"{name} was started more often than {limit} times")
        late = truth.expires is not None and now >= truth.expires and job.attempt == 1 and not truth.reschedules
        self._require(job.expired == late, f"{name} should{'' if late else ' not'} be marked as expired")

    def settled(self, each: Settlement, result: SettleResult, *, orphaned: bool, wrote: bool) -> None:
        name, fence = self._name(each.id), (each.lease_id, each.claims)
        how = f"{each.kind.name} for claim {each.claims} of lease {each.lease_id}{', orphaned' if orphaned else ''}"
        self._note(f"{name} {how}: {'written' if wrote else 'repeated' if result.lost is None else result.lost}")
        truth = self.jobs[each.id]
        if wrote:
            self._written(truth, each, orphaned=orphaned, what=f"{name} {how}")
        elif result.lost is None:
            self._require(fence in truth.written, f"{name} {how} was said to be written, and wasn't")
        else:
            repeated = fence in truth.written and truth.claims == each.claims
            self._require(not repeated, f"{name} {how} was written, and then said to be lost")
            refused = not orphaned and truth.holder == fence and each.lease_id in self.leases
            self._require(not refused, f"{name} {how} was refused though the claim is good")

    def _written(self, truth: Truth, each: Settlement, *, orphaned: bool, what: str) -> None:
        fence = (each.lease_id, each.claims)
        self._require(truth.ended is None, f"{what} was written after the job's end")
        self._require(truth.holder == fence, f"{what} was written while {truth.holder} held it")
        if orphaned:
            self._require(not self._honest(each.lease_id), f"{what} was written for a lease that is valid")
            truth.orphaned.add(each.claims)
        else:
            self._require(each.lease_id in self.leases, f"{what} was written for a lease that was taken")
        expectation = expected_of(
            truth.new, truth.attempt, truth.runs.get(each.claims), orphaned=orphaned, expired=truth.expired
        )
        self._require(expectation is None or fits(each, expectation), f"{what} was written, and it should be {expectation}")
        truth.written.add(fence)
        truth.holder = None
        if each.kind in _TERMINAL:
            truth.ended = each.kind
            self.unfinished -= 1
            return
        if each.kind is SettlementKind.RESCHEDULED:
            truth.attempt -= 1
            truth.reschedules += 1
        truth.due = self._now() + (each.delay or 0.0)
        if each.run_at is not None:
            truth.due = max(self._now(), each.run_at.timestamp() - START)

    def released(self, lease_id: int, claim: Claim) -> None:
        name, truth = self._name(claim.id), self.jobs[claim.id]
        self._note(f"{name} given back by lease {lease_id}, claim {claim.claims}")
        held = truth.holder == (lease_id, claim.claims) and lease_id in self.leases
        self._require(held, f"{name} was given back by lease {lease_id}, which didn't hold it")
        run = truth.runs.get(claim.claims)
        if run is not None and run.process.alive:
            self._require(run.ended_at is not None, f"{name} was given back while it ran")
            allowed = run.process.stopping or run.told_at is not None
            self._require(allowed, f"{name} was given back after it {run.how}")
        truth.attempt -= 1
        truth.releases += 1
        truth.holder = None
        truth.due = self._now()

    # -- workers ------------------------------------------------------------------------------------------------------

    def told(self, process: Process, lease_id: int, held: list[Claim], renewal: Renewal) -> None:
        """A worker has got the answer to a renewal."""
        gone = [claim for claim in held if not renewal.valid or claim in renewal.lost]
        for claim in gone:
            run = self.jobs[claim.id].runs.get(claim.claims)
            if run is not None and run.job.lease_id == lease_id and run.told_at is None:
                run.told_at, run.held_up_when_told = self._now(), process.held_up
                self._note(f"{process.name} is told that it lost {self._name(claim.id)}")

    def began(self, process: Process, job: ClaimedJob) -> Run:
        """A handler begins."""
        name, truth = self._name(job.id), self.jobs[job.id]
        run = Run(process, job, self._now(), process.held_up)
        if not process.alive:
            return run
        self._note(f"{name} begins in {process.name}, claim {job.claims}, attempt {job.attempt}")
        limit = truth.new.max_attempts
        self._require(limit is None or job.attempt <= limit, f"{name} runs more often than {limit} times")
        expired = truth.expired and truth.claims == job.claims
        self._require(not expired, f"{name} runs though it had expired")
        self._require(job.claims not in truth.runs, f"claim {job.claims} of {name} runs twice")
        stopped = process.stopped_at
        self._require(stopped is None or self._now() <= stopped + _MOMENT, f"{name} begins after its worker was stopped")
        for other in truth.runs.values():
            if other.ended_at is not None or not other.process.alive:
                continue
            self._require(other.process is not process, f"{name} runs twice in {process.name}")
            lost = other.job.claims in truth.orphaned or job.claims in truth.orphaned
            self._require(lost, f"{name} runs twice at once: claims {other.job.claims} and {job.claims}")
        truth.runs[job.claims] = run
        return run

    def finished(self, run: Run, how: str, *, delay: float | None = None, cancellable: bool = True) -> None:
        """A handler has ended.

        Arguments:
            run: Which.
            how: `returned`, `raised`, `failed`, `retry`, `reschedule` or `cancelled`.
            delay: What `RetryIn` or `Reschedule` asked for.
            cancellable: Whether it listened to its cancellation all the time.
        """
        now, name = self._now(), self._name(run.job.id)
        run.ended_at, run.how, run.delay = now, how, delay
        if not run.process.alive:
            return
        self._note(f"{name} {how} in {run.process.name}, claim {run.job.claims}")
        if not cancellable:
            return
        if run.told_at is not None and run.process.held_up == run.held_up_when_told:
            self._require(now - run.told_at <= _TO_STOP, f"{name} went on for {now - run.told_at:.1f} s after it was lost")
        if (timeout := run.job.timeout) is not None and run.process.held_up == run.held_up:
            late = now - run.began_at - timeout
            self._require(late <= _TO_STOP, f"{name} went on for {late:.1f} s after its timeout")

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_end(self, rows: dict[UUID, tuple[int, int, int]], acknowledged: set[UUID]) -> None:
        """Look at what is left.

        Arguments:
            rows: Claims, attempts and reschedules of each job that is in the database.
            acknowledged: Ids of jobs that their producer was told are stored.
        """
        for job_id in sorted(acknowledged):
            self._require(job_id in self.jobs, f"{self._name(job_id)} was acknowledged, and never stored")
        for job_id, truth in self.jobs.items():
            name = self._name(job_id)
            self._require(job_id in rows, f"{name} is lost")
            self._require(truth.ended is not None, f"{name} has not ended")
            claims, attempt, reschedules = rows.get(job_id, (0, 0, 0))
            counted = attempt + reschedules + truth.releases
            self._require(claims == counted, f"{name} was claimed {claims} times, and only {counted} are accounted for")
            self._require(len(truth.runs) <= claims, f"{name} ran {len(truth.runs)} times on {claims} claims")
