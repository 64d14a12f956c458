"""What observers are told of a worker's attempts. Whoever calls these has looked whether there are any."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from aioqueue.events import (
    JobBlocked,
    JobCancelled,
    JobCompleted,
    JobContinued,
    JobEnqueued,
    JobFailed,
    JobLeaseLost,
    JobProgress,
    JobReaped,
    JobRescheduled,
    JobRetrying,
    JobStarted,
    PhaseCompleted,
    PhaseStarted,
)
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from aioqueue.definitions._observers import Observers
    from aioqueue.events import JobEvent
    from aioqueue.vocabulary._attempt_error import AttemptError
    from aioqueue.vocabulary._job import ClaimedJob, NewJob
    from aioqueue.vocabulary._phases import Progress
    from aioqueue.worker._outcome import Outcome

__all__ = ["tell_given_back", "tell_lost", "tell_outcome", "tell_phase", "tell_progress", "tell_started"]


class _Whose(TypedDict):
    at: datetime
    job_id: UUID
    chain_id: UUID
    job_type: str
    attempt: int
    claims: int


def _whose(job: ClaimedJob, at: datetime | None = None) -> _Whose:
    return {
        "at": datetime.now(UTC) if at is None else at,
        "job_id": job.id,
        "chain_id": job.chain_id,
        "job_type": job.type,
        "attempt": job.attempt,
        "claims": job.claims,
    }


def tell_started(observers: Observers, jobs: Iterable[ClaimedJob]) -> None:
    """Tell of jobs that were claimed."""
    for job in jobs:
        observers.tell(JobStarted(**_whose(job, job.started_at)))


def tell_given_back(observers: Observers, job: ClaimedJob) -> None:
    """Tell of a claim that was given back."""
    observers.tell(JobRescheduled(**_whose(job), delay=0.0))


def tell_lost(observers: Observers, job: ClaimedJob, reason: str) -> None:
    """Tell of a claim that isn't ours any more."""
    observers.tell(JobLeaseLost(**_whose(job), reason=reason))


def tell_phase(observers: Observers, job: ClaimedJob, phase: str, *, completed: bool) -> None:
    """Tell of a phase that has begun, or whose result is stored."""
    observers.tell((PhaseCompleted if completed else PhaseStarted)(**_whose(job), phase=phase))


def tell_progress(observers: Observers, job: ClaimedJob, progress: Progress) -> None:
    """Tell of progress that was stored."""
    observers.tell(
        JobProgress(**_whose(job, progress.at), percent=progress.percent, message=progress.message, phase=progress.phase)
    )


def tell_outcome(observers: Observers, job: ClaimedJob, outcome: Outcome, *, reaped: bool = False) -> None:
    """Tell how an attempt has ended, as it was written, and of the jobs that were stored with it.

    Arguments:
        observers: Whom.
        job: Whose.
        outcome: What was written.
        reaped: Whether its worker is gone, and another one wrote it.
    """
    if reaped:
        observers.tell(JobReaped(**_whose(job)))
    observers.tell(_event_of(job, outcome))
    if outcome.next is not None:
        observers.tell(_stored(outcome.next, job.chain_id))
    for child in outcome.children:
        if not child.implied and child.unique is None and not child.chosen_id:  # of the others it isn't known
            observers.tell(_stored(child, child.id))


def _event_of(job: ClaimedJob, outcome: Outcome) -> JobEvent:
    whose, kind = _whose(job), outcome.kind
    delay = outcome.delay or 0.0
    if outcome.run_at is not None:
        delay = max(0.0, (outcome.run_at - whose["at"]).total_seconds())
    error_type, error_message = _error(outcome.error)
    if kind is SettlementKind.COMPLETED:
        return JobCompleted(**whose, outcome=outcome.label)
    if kind is SettlementKind.CONTINUED:
        return JobContinued(**whose, outcome=outcome.label, next_id=None if outcome.next is None else outcome.next.id)
    if kind is SettlementKind.RETRIED:
        return JobRetrying(**whose, delay=delay, error_type=error_type, error_message=error_message)
    if kind is SettlementKind.RESCHEDULED:
        return JobRescheduled(**whose, delay=delay)
    ended = JobFailed if kind is SettlementKind.FAILED else JobCancelled
    return ended(**whose, error_type=error_type, error_message=error_message)


def _error(error: AttemptError | None) -> tuple[str | None, str | None]:
    return (None, None) if error is None else (error.type, error.message)


def _stored(new: NewJob, chain_id: UUID) -> JobEvent:
    made = JobBlocked if new.blockers else JobEnqueued
    return made(at=datetime.now(UTC), job_id=new.id, chain_id=chain_id, job_type=new.type)
