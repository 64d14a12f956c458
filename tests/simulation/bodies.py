"""Watches the handlers: when they begin and end, and in whose process."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from tests.simulation.expectations import TO_STOP, Run
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob
    from tests.simulation.account import Book
    from tests.simulation.deadlines import Deadlines
    from tests.simulation.process import Process

_MOMENT = 1e-6

REQUEST: ContextVar[str] = ContextVar("REQUEST")
"""Set where workers are started. What they run must not see it."""


class Bodies:
    """See the module.

    Arguments:
        book: The account.
        deadlines: Told of what must be done by some time.
        grace: Of the workers.
    """

    def __init__(self, book: Book, deadlines: Deadlines, grace: float) -> None:
        self._book = book
        self._grace = grace
        self._deadlines = deadlines
        self._require = book.require

    def began(self, process: Process, job: ClaimedJob, place: int, *, goes_on: bool) -> Run:
        """A handler begins.

        Arguments:
            process: Where.
            job: As it was given to it.
            place: Of the step that it's for, in the chain.
            goes_on: Whether it continues when it returns.
        """
        name, truth, fence = self._book.name(job.id), self._book.jobs.get(job.id), (job.lease_id, job.claims)
        run = Run(process, job, self._book.now(), process.held_up, goes_on=goes_on)
        if not process.alive or truth is None:
            return run
        self._book.note(f"{name} begins in {process.name}, claim {job.claims}, attempt {job.attempt}")
        process.active_at = self._book.now()
        limit = truth.new.max_attempts
        often = limit is not None and job.attempt > limit
        self._require(Promise.MAX_ATTEMPTS, not often, f"{name} runs more often than {limit} times")
        ordered = place == truth.position
        self._require(Promise.IN_ORDER, ordered, f"{name} is for place {place}, and is at {truth.position} in its chain")
        expired = truth.expired and truth.claims == job.claims
        self._require(Promise.NOT_EXPIRED, not expired, f"{name} runs though it had expired")
        again = fence in truth.runs and not truth.rewound
        self._require(Promise.ONCE_A_CLAIM, not again, f"claim {job.claims} of {name} runs twice")
        late = process.stopped_at is not None and self._book.now() > process.stopped_at + _MOMENT
        self._require(Promise.NOT_WHEN_STOPPED, not late, f"{name} begins after its worker was stopped")
        seen = REQUEST.get("")
        self._require(Promise.OWN_CONTEXT, not seen, f"{name} sees the context of {seen}")
        for other in truth.all_runs:
            if other.ended_at is not None or not other.process.alive or other.process.exited:
                continue
            twice = f"claims {other.job.claims} and {job.claims}"
            same = other.process is process
            self._require(Promise.ONCE_A_PROCESS, not same, f"{name} runs twice in {process.name}: {twice}")
            lost = other.job.claims in truth.orphaned or job.claims in truth.orphaned
            self._require(Promise.ONCE_A_LEASE, lost, f"{name} runs twice at once: {twice}")
        truth.runs[fence] = run
        truth.all_runs.append(run)
        self._book.runs.append(run)
        return run

    def goes_on_with(self, job: ClaimedJob, next_id: UUID) -> None:
        """A handler that has ended returned what its chain goes on with."""
        truth = self._book.jobs.get(job.id)
        run = None if truth is None else truth.runs.get((job.lease_id, job.claims))
        if run is not None:
            run.next = next_id

    def finished(self, run: Run, how: str, *, delay: float | None = None, cancellable: bool = True) -> None:
        """A handler has ended.

        Arguments:
            run: Which.
            how: `returned`, `raised`, `failed`, `retry`, `reschedule` or `cancelled`.
            delay: What `RetryIn` or `Reschedule` asked for.
            cancellable: Whether it listened to its cancellation all the time.
        """
        now, name = self._book.now(), self._book.name(run.job.id)
        run.ended_at, run.how, run.delay = now, how, delay
        if not run.process.alive:
            return
        self._book.note(f"{name} {how} in {run.process.name}, claim {run.job.claims}")
        run.process.active_at = now
        self._deadlines.outcome_due(run)
        if run.told_at is not None and run.process.held_up == run.held_up_when_told:
            listened = cancellable or (run.swallowed_at is not None and run.swallowed_at < run.told_at - _MOMENT)
            # What it has completed itself is lost too, while it still looks whether that was committed.
            late = listened and now - run.told_at > TO_STOP and not run.looks
            self._require(Promise.STOPS_WHEN_LOST, not late, f"{name} went on for {now - run.told_at:.1f} s after it was lost")
        if run.asked_at is not None and run.process.held_up == run.held_up_when_asked:
            listened = cancellable or (run.swallowed_at is not None and run.swallowed_at < run.asked_at - _MOMENT)
            late = listened and now - run.asked_at > TO_STOP and not run.looks
            self._require(Promise.STOPS_WHEN_ASKED, not late, f"{name} went on for {now - run.asked_at:.1f} s after that")
        timeout = run.job.timeout
        if cancellable and timeout is not None and run.process.held_up == run.held_up and not run.looks:
            late_by = now - run.began_at - timeout
            self._require(Promise.STOPS_IN_TIME, late_by <= TO_STOP, f"{name} went on for {late_by:.1f} s after its timeout")

    def asked_to_stop(self, process: Process, *, force: bool) -> None:
        """A worker is asked to stop, maybe not for the first time."""
        self._deadlines.end_due(process, force=force)

    def left(self, process: Process) -> None:
        """A worker that was asked to stop has ended, in good order."""
        now = self._book.now()
        assert process.stopped_at is not None
        if now >= process.stopped_at + self._grace - TO_STOP:
            return
        for job_id, truth in self._book.jobs.items():
            for run in truth.all_runs:
                fence = (run.job.lease_id, run.job.claims)
                unwritten = run.ended_at is not None and run.how != "cancelled" and truth.holder == fence
                if run.process is process and unwritten and self._book.valid(fence[0]) and not truth.rewound:
                    text = (
                        f"{process.name} ended {now - process.stopped_at:.1f} s after it was asked to, and hadn't written that"
                    )
                    self._book.violated(Promise.NOT_DROPPED, f"{text} {self._book.name(job_id)} {run.how}")
