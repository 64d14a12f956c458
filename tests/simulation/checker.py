"""Watches what the database is really asked to do, also when the answer got lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import SettlementKind
from tests.simulation.account import Lease, Truth
from tests.simulation.chains import ChainChecker
from tests.simulation.expectations import expected_of, fits
from tests.simulation.gates import GateChecker
from tests.simulation.pauses import PauseChecker
from tests.simulation.phases import PhaseChecker
from tests.simulation.promises import Promise
from tests.simulation.requests import RequestChecker
from tests.simulation.scheduler import START
from tests.simulation.schedules import ScheduleChecker
from tests.simulation.waiting import WaitingChecker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import Claim, ClaimedJob, NewJob, Settlement, SettleResult
    from tests.simulation.account import Book
    from tests.simulation.deadlines import Deadlines
    from tests.simulation.plan import Refusal
    from tests.simulation.process import Process

_MOMENT = 1e-6


class Checker:
    """See the module.

    Arguments:
        book: The account that it keeps.
        deadlines: Told of what must be done by some time.

    Attributes:
        caller: Whose request the database is carrying out.
    """

    def __init__(self, book: Book, deadlines: Deadlines) -> None:
        self._book = book
        self._deadlines = deadlines
        self.chains = ChainChecker(book)
        self.requests = RequestChecker(book)
        self.phases = PhaseChecker(book)
        self.waiting = WaitingChecker(book, self.requests, lambda moment: moment.timestamp() - START)
        self.schedules = ScheduleChecker(book, self.waiting.last)
        self.pauses = PauseChecker(book)
        self.gates = GateChecker(book, self.pauses, self.requests, self.waiting.last)
        self._require = book.require
        self.caller: Process | None = None

    # -- leases -------------------------------------------------------------------------------------------------------

    def lease_opened(self, lease_id: int, worker: str, duration: float) -> None:
        self._book.note(f"lease {lease_id} opened by {worker}")
        self._book.leases[lease_id] = Lease(worker, duration, self._book.now() + duration)
        self._deadlines.lease_ends(lease_id)

    def lease_told(self, lease_id: int, process: Process, asked_at: float) -> None:
        """A worker has got the answer with its new lease, or that its old one is still valid."""
        process.heard_of_its_lease()
        if (lease := self._book.leases.get(lease_id)) is None:
            return
        if lease.process is not None and self._book.now() > lease.known_until:
            lease.lapsed_at = self._book.now()
        lease.process, lease.known_until = process, asked_at + lease.duration

    def renewed(self, lease_id: int, duration: float) -> None:
        lease = self._book.leases.get(lease_id)
        untouched = lease is not None and not lease.taken
        self._require(Promise.NOT_AFTER_TAKING, untouched, f"lease {lease_id} was renewed after something of it was taken")
        if lease is not None:
            lease.expires = self._book.now() + duration

    def gone(self, lease_id: int, claims: Sequence[Claim]) -> list[Claim]:
        """Which claims a lease doesn't have any more, whatever the store says."""
        jobs = self._book.jobs
        held = {claim for claim in claims if claim.id in jobs and jobs[claim.id].holder == (lease_id, claim.claims)}
        return [claim for claim in claims if claim not in held or lease_id not in self._book.leases]

    def told(self, process: Process, gone: Sequence[Claim]) -> None:
        """A worker has got the answer to a renewal.

        Arguments:
            process: Whose it is.
            gone: What the answer must have said that it lost.
        """
        for claim in gone:
            truth = self._book.jobs.get(claim.id)
            for run in truth.all_runs if truth is not None else ():
                if run.process is process and run.job.claims == claim.claims and run.told_at is None:
                    run.told_at, run.held_up_when_told = self._book.now(), process.held_up
                    self._book.note(f"{process.name} is told that it lost {self._book.name(claim.id)}")

    def lease_taken(self, lease_id: int) -> None:
        """It was deleted because it had expired."""
        self._book.note(f"lease {lease_id} taken by {self.caller.name if self.caller else 'nobody'}")
        lease, now = self._book.leases.pop(lease_id, None), self._book.now()
        if lease is None:
            return
        self._require(Promise.NOT_TAKEN_EARLY, lease.expires <= now + _MOMENT, f"lease {lease_id} was taken while it was valid")
        process = lease.process
        if process is None:
            return
        caller = self.caller
        hasty = caller is not None and process.answers_for_leases and 0 < now - caller.away_until < caller.renew_every
        self._require(Promise.NOT_HASTY, not hasty, f"lease {lease_id} of {process.name} was taken by one who was just away")
        # With two workers in the process it may have been the other one.
        own = process is self.caller and len(process.workers) == 1 and not process.stopping
        self._require(Promise.NOT_ITS_OWN, not own, f"{process.name} took its own lease {lease_id}")
        well = process.answers_for_leases and now - process.disturbed_at > 1.5 * lease.duration
        self._require(Promise.WELL_KEEPS_LEASE, not well, f"{process.name} is well, and has let its lease {lease_id} run out")

    def lease_ended(self, lease_id: int) -> None:
        self._book.note(f"lease {lease_id} ended")
        self._book.leases.pop(lease_id, None)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def inserted(self, new: NewJob, due: float, refuses: Refusal) -> None:
        self.schedules.inserted(new)
        self.gates.inserted(new)
        self._book.note(f"{self._book.name(new.id)} stored, due at {due:.3f}")
        again = new.id in self._book.jobs
        self._require(Promise.ONE_NEXT, not again, f"{self._book.name(new.id)} is stored again")
        expires = None if new.expires is None else due + new.expires
        self._book.jobs[new.id] = Truth(new, due, expires, refuses, chain=new.id)

    def claimed(self, job: ClaimedJob) -> None:
        truth, name, now = self._book.jobs[job.id], self._book.name(job.id), self._book.now()
        self._book.note(f"{name} claimed by lease {job.lease_id}, claim {job.claims}, attempt {job.attempt}")
        self._require(Promise.NOT_AGAIN, truth.ended is None, f"{name} was claimed after its end")
        self.chains.told(job)
        self.waiting.claimed(job)
        self.pauses.claimed(truth.new)
        self._require(Promise.ONE_HOLDER, truth.holder is None, f"{name} was claimed while {truth.holder} held it")
        early = now < truth.due - _MOMENT
        self._require(Promise.DUE_FIRST, not early, f"{name} was claimed before it was due at {truth.due:.3f}")
        valid = self._book.valid(job.lease_id)
        self._require(Promise.VALID_LEASE, valid, f"{name} was claimed by lease {job.lease_id}, which isn't valid")
        truth.claims += 1
        truth.attempt += 1
        truth.holder, truth.claimant = (job.lease_id, job.claims), self.caller
        truth.expired = job.expired
        self.gates.claimed(truth)
        counted = job.claims == truth.claims
        self._require(Promise.FENCES_COUNT, counted, f"{name} has a fence of {job.claims}, not {truth.claims}")
        counted = job.attempt == truth.attempt
        self._require(Promise.ATTEMPTS_COUNT, counted, f"{name} is at attempt {job.attempt}, not {truth.attempt}")
        limit = truth.new.max_attempts
        often = limit is not None and job.attempt > limit
        self._require(Promise.MAX_ATTEMPTS, not often, f"{name} was started more often than {limit} times")
        late = truth.expires is not None and now >= truth.expires and job.attempt == 1 and not truth.reschedules
        self._require(Promise.EXPIRY, job.expired == late, f"{name} should{'' if late else ' not'} be marked as expired")
        if self.caller is not None:
            self.caller.active_at = now

    def claim_unheard(self, process: Process, jobs: Sequence[ClaimedJob]) -> None:
        """The answer to a claim was lost."""
        for job in jobs:
            self._deadlines.claim_unheard(process, job)

    def recovered(self, job: ClaimedJob) -> None:
        """A job of a lost worker is handed to whoever recovers it."""
        self._require(Promise.EXPIRY, not job.expired, f"{self._book.name(job.id)} was started, and is marked as expired")
        self.chains.told(job)

    def removed(self, job_id: UUID, retention: float) -> None:
        """A job was removed: its chain has ended, as long ago as it's said."""
        truth, name = self._book.jobs[job_id], self._book.name(job_id)
        self._book.note(f"{name} removed")
        if self.gates.deleted(job_id):
            return
        chain = [each for each in self._book.jobs.values() if each.chain == truth.chain and not each.removed]
        live = any(each.ended is None for each in chain)
        self._require(Promise.NOT_REMOVED, not live, f"{name} was removed, and its chain is live")
        ago = self._book.now() - max(each.ended_at for each in chain)
        self._require(Promise.NOT_REMOVED, ago >= retention - _MOMENT, f"{name} was removed {ago:.3f} s after its chain's end")
        truth.removed = True

    def settled(self, each: Settlement, result: SettleResult, *, orphaned: bool, state: int | None) -> None:
        name, fence = self._book.name(each.id), (each.lease_id, each.claims)
        how = f"{each.kind.name} for claim {each.claims} of lease {each.lease_id}{', orphaned' if orphaned else ''}"
        self._book.note(
            f"{name} {how}: {'written' if state is not None else 'repeated' if result.lost is None else result.lost}"
        )
        truth, writing = self._book.jobs.get(each.id), (*fence, each.kind, orphaned)
        if truth is None:
            return
        if state is not None:
            self._written(truth, each, state, orphaned=orphaned, what=f"{name} {how}")
        elif result.lost is None:
            said = writing not in truth.written and not truth.rewound
            self._require(Promise.REPEATS_AGREE, not said, f"{name} {how} was said to be written, and wasn't")
        else:
            went_on = truth.rewound or truth.outside or truth.removed
            repeated = writing in truth.written and truth.claims == each.claims and not went_on
            self._require(Promise.REPEATS_AGREE, not repeated, f"{name} {how} was written, and then said to be lost")
            refused = not orphaned and truth.holder == fence and each.lease_id in self._book.leases
            self._require(Promise.GOOD_CLAIMS_WRITE, not refused, f"{name} {how} was refused though the claim is good")

    def _written(self, truth: Truth, each: Settlement, state: int, *, orphaned: bool, what: str) -> None:
        fence, now = (each.lease_id, each.claims), self._book.now()
        self.chains.may_end(truth, each, what)
        self._require(Promise.NOT_AGAIN, truth.ended is None, f"{what} was written after the job's end")
        self._require(Promise.BY_THE_HOLDER, truth.holder == fence, f"{what} was written while {truth.holder} held it")
        if orphaned:
            valid = self._book.valid(each.lease_id)
            self._require(Promise.NOT_TAKEN_EARLY, not valid, f"{what} was written for a lease that is valid")
            truth.orphaned.add(each.claims)
            if (lease := self._book.leases.get(each.lease_id)) is not None:
                lease.taken = True
        else:
            # A transaction that holds the claim keeps it, whatever becomes of the lease.
            held = (run := truth.runs.get(fence)) is not None and run.completing
            there = held or each.lease_id in self._book.leases
            self._require(Promise.BY_THE_HOLDER, there, f"{what} was written for a lease that was taken")
            self._by_claimant(truth, f"{what} was written")
        asked = self.requests.counts(truth)
        expectation = None if truth.rewound else expected_of(truth, fence, orphaned=orphaned, asked=asked)
        fitting = expectation is None or fits(each, expectation)
        self._require(Promise.AS_IT_WENT, fitting, f"{what} was written, and it should be {expectation}")
        truth.written.add((*fence, each.kind, orphaned))
        truth.holder = None
        if self.caller is not None:
            self.caller.active_at = now
        self.requests.written(truth, each, state, what, orphaned=orphaned)
        became = self.requests.became(truth, each)
        if became.finishes:
            truth.ended, truth.output, truth.ended_at = became, each.output, now
            if each.kind is SettlementKind.CONTINUED:
                self.chains.continued(truth, each, fence, what)
        self.waiting.stored_with(truth, fence, what)
        if became.finishes:
            return
        if each.kind is SettlementKind.RESCHEDULED:
            truth.attempt -= 1
            truth.reschedules += 1
        truth.due = now + (each.delay or 0.0)
        if each.run_at is not None:
            truth.due = max(now, each.run_at.timestamp() - START)

    def _by_claimant(self, truth: Truth, what: str) -> None:
        claimant = truth.claimant
        own = claimant is None or self.caller is claimant
        caller = self.caller.name if self.caller is not None else "nobody"
        self._require(Promise.ITS_OWN_BACK, own, f"{what} by {caller}, and {claimant.name if claimant else ''} had claimed it")

    def released(self, lease_id: int, claim: Claim) -> None:
        name, truth, fence = self._book.name(claim.id), self._book.jobs[claim.id], (lease_id, claim.claims)
        self._book.note(f"{name} given back by lease {lease_id}, claim {claim.claims}")
        held = truth.holder == fence and lease_id in self._book.leases
        self._require(Promise.ITS_OWN_BACK, held, f"{name} was given back by lease {lease_id}, which didn't hold it")
        self._by_claimant(truth, f"{name} was given back")
        run = truth.runs.get(fence)
        if run is not None and run.process.alive and not truth.rewound:
            self._require(Promise.UNUSED_BACK, run.ended_at is not None, f"{name} was given back while it ran")
            lapsed_at = self._book.leases[lease_id].lapsed_at
            over = lapsed_at is not None and lapsed_at > run.began_at  # nobody could answer for it meanwhile
            allowed = run.process.stopping or run.told_at is not None or over
            self._require(Promise.UNUSED_BACK, allowed, f"{name} was given back after it {run.how}")
        truth.attempt -= 1
        truth.releases += 1
        truth.holder = None
        truth.due = self._book.now()

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_end(self, rows: dict[UUID, tuple[int, int, int]], acknowledged: set[UUID]) -> None:
        """Look at what is left.

        Arguments:
            rows: Claims, attempts and reschedules of each job that is in the database.
            acknowledged: Ids of jobs that their producer was told are stored.
        """
        for job_id in sorted(acknowledged):
            stored = job_id in self._book.jobs or job_id in self._book.forgotten
            self._require(Promise.NOTHING_LOST, stored, f"{self._book.name(job_id)} was acknowledged, and never stored")
        for job_id, truth in self._book.jobs.items():
            name = self._book.name(job_id)
            if truth.removed:
                continue
            self._require(Promise.NOTHING_LOST, job_id in rows, f"{name} is lost")
            self._require(Promise.ALL_END, truth.ended is not None, f"{name} has not ended")
            claims, attempt, reschedules = rows.get(job_id, (0, 0, 0))
            counted = attempt + reschedules + truth.releases
            accounted = claims == counted and len(truth.runs) <= claims
            self._require(
                Promise.ALL_ACCOUNTED,
                accounted or truth.rewound,
                f"{name} was claimed {claims} times and ran {len(truth.runs)} times, and {counted} are accounted for",
            )
