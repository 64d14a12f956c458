"""What must be done by some time, as long as nothing is in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.worker._shutdown import longest_stop
from tests.simulation.expectations import TO_STOP
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob
    from tests.simulation.account import Book, Fence
    from tests.simulation.expectations import Run
    from tests.simulation.plan import Plan
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler

_WRITTEN = 10.0
"""Seconds within which an outcome is written while the database is there."""

_RECOVERED = 1.0
"""Seconds within which an idle worker recovers a dead one's jobs, after their lease's end."""

_LEAST_GRACE = 5.0
_AFTER_GRACE = longest_stop(_LEAST_GRACE) - _LEAST_GRACE
"""Seconds that a stop may take besides the grace."""
_FORCED = 6.0

_AGAIN = 0.5


class Deadlines:
    """See the module.

    Arguments:
        book: The account.
        scheduler: The clock.
        plan: Of this history.
        round_trip: Gives the seconds that a request and its answer take at most.
        sick_until: Gives the time until which some kind of statement fails.
        workers: Gives the processes that run workers.
    """

    def __init__(
        self,
        book: Book,
        scheduler: Scheduler,
        plan: Plan,
        round_trip: Callable[[], float],
        sick_until: Callable[[], float],
        workers: Callable[[], list[Process]],
    ) -> None:
        self._book = book
        self._scheduler = scheduler
        self._grace = plan.grace
        self._renew_every = plan.lease / 3
        self._blind = plan.lease / 3 + plan.poll_interval
        self._round_trip = round_trip
        self._sick_until = sick_until
        self._workers = workers
        self._orphans_since: dict[int, float] = {}

    def _held(self, job_id: UUID, fence: Fence) -> bool:
        truth = self._book.jobs.get(job_id)
        return truth is not None and not truth.rewound and truth.holder == fence

    def _by(self, deadline: float, look: Callable[[], None]) -> None:
        self._scheduler.call_at(deadline, look)

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def outcome_due(self, run: Run) -> None:
        """A handler has ended: what became of it must be written."""
        assert run.ended_at is not None
        self._look_for_outcome(run, run.ended_at)

    def _look_for_outcome(self, run: Run, since: float) -> None:
        process, fence, now = run.process, (run.job.lease_id, run.job.claims), self._book.now()
        if not self._held(run.job.id, fence) or fence[0] not in self._book.leases or not process.alive or process.done:
            return
        locked_until = self._book.jobs[run.job.id].locked_until
        since = max(since, process.held_up_until, process.disturbed_at, locked_until, self._sick_until())
        deadline = since + _WRITTEN + 8 * self._round_trip()
        if now < deadline:
            self._by(deadline, lambda: self._look_for_outcome(run, since))
            return
        name = self._book.name(run.job.id)
        self._book.violated(
            Promise.IN_TIME, f"{name} {run.how} in {process.name}, and {now - since:.0f} s later that isn't written"
        )

    # -- ends ---------------------------------------------------------------------------------------------------------

    def end_due(self, process: Process, *, force: bool) -> None:
        """A worker is asked to stop: it must have ended in time."""
        self._look_for_end(process, self._book.now(), _FORCED if force else max(self._grace, _LEAST_GRACE) + _AFTER_GRACE)

    def _look_for_end(self, process: Process, since: float, longest: float) -> None:
        if process.done or not process.alive:
            return
        since, now = max(since, process.held_up_until), self._book.now()
        deadline = since + longest + 10 * self._round_trip()
        if now < deadline:
            self._by(deadline, lambda: self._look_for_end(process, since, longest))
        else:
            self._book.violated(Promise.WORKERS_END, f"{process.name} hasn't ended {now - since:.1f} s after it was asked to")

    # -- claims -------------------------------------------------------------------------------------------------------

    def claim_unheard(self, process: Process, job: ClaimedJob) -> None:
        """The answer to a claim was lost: two renewals later it must have been given back."""
        self._look_for_unheard(process, job, self._book.now())

    def _look_for_unheard(self, process: Process, job: ClaimedJob, since: float) -> None:
        fence, now = (job.lease_id, job.claims), self._book.now()
        gone = not process.alive or process.done or process.stopping
        if gone or not self._held(job.id, fence) or fence[0] not in self._book.leases:
            return
        locked_until = self._book.jobs[job.id].locked_until
        since = max(since, process.held_up_until, process.disturbed_at, locked_until, self._sick_until())
        deadline = since + 2 * self._book.leases[fence[0]].duration / 3 + 4 * self._round_trip() + 0.5
        if now < deadline:
            self._by(deadline, lambda: self._look_for_unheard(process, job, since))
            return
        name = self._book.name(job.id)
        self._book.violated(
            Promise.UNKNOWN_BACK, f"{process.name} hasn't given {name} back {now - since:.1f} s after its claim"
        )

    # -- leases -------------------------------------------------------------------------------------------------------

    def lease_ends(self, lease_id: int) -> None:
        """A lease will end, unless it's renewed: what it holds then must be recovered."""
        expires = self._book.leases[lease_id].expires
        self._by(expires, lambda: self._look_for_orphans(lease_id))
        self._by(expires + TO_STOP, lambda: self._look_for_bodies(lease_id))

    def _look_for_bodies(self, lease_id: int) -> None:
        """What ran under a lease that is over has stopped."""
        now, lease = self._book.now(), self._book.leases.get(lease_id)
        if lease is None:
            return
        over = max(lease.expires, lease.known_until) + TO_STOP
        if now < over:
            self._by(over, lambda: self._look_for_bodies(lease_id))
            return
        process = lease.process
        if process is not None and process.alive and process.held_up_until < lease.expires - lease.duration:
            for run in self._book.running_in(process):
                # What completes itself may hold its row: that is the fence then.
                if run.job.lease_id == lease_id and run.listens and not run.looks:
                    text = f"{self._book.name(run.job.id)} runs in {process.name}, and lease {lease_id} is over"
                    self._book.violated(Promise.STOPS_WHEN_OVER, text)
                    return
        self._by(now + TO_STOP, lambda: self._look_for_bodies(lease_id))

    def _look_for_orphans(self, lease_id: int) -> None:
        now, lease = self._book.now(), self._book.leases.get(lease_id)
        if lease is not None and lease.expires > now:
            self._orphans_since.pop(lease_id, None)
            self._by(lease.expires, lambda: self._look_for_orphans(lease_id))
            return
        orphans = [job_id for job_id, truth in self._book.jobs.items() if truth.holder and truth.holder[0] == lease_id]
        if not orphans:
            self._orphans_since.pop(lease_id, None)
            if lease is not None:
                self._by(now + 1.0, lambda: self._look_for_orphans(lease_id))
            return
        since = self._orphans_since.setdefault(lease_id, now)
        # What was locked when somebody looked is looked at again after a while.
        since = max(since, *(self._book.jobs[job_id].locked_until + self._renew_every for job_id in orphans))
        for process in self._workers():
            if (idle_since := self._idle_since(process)) is None:
                continue
            waited = now - max(since, idle_since)
            blind = 0.0 if now > self._sick_until() + self._blind else self._blind
            if waited > _RECOVERED + blind + 8 * self._round_trip():
                names = ", ".join(self._book.name(job_id) for job_id in orphans)
                text = f"{process.name} is idle, and hasn't recovered {names} {waited:.1f} s after the end of lease {lease_id}"
                self._book.violated(Promise.SOON_RECOVERED, text)
                return
        self._by(now + _AGAIN, lambda: self._look_for_orphans(lease_id))

    def _idle_since(self, process: Process) -> float | None:
        """Since when a worker is idle, well, and out of the time in which it recovers nothing; None if it isn't."""
        if not process.answers_for_leases or process.leaving or not process.working:
            return None
        if self._book.running_in(process):
            return None
        disturbed = max(process.held_up_until, process.disturbed_at, process.erred_at) + self._renew_every
        return max(disturbed, process.active_at)
