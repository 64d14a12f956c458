"""What is said of a job that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import AlreadyFinished
from aioqueue.vocabulary._job import JobState, was_discarded

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import Job

__all__ = ["already_finished", "became", "last_error", "named"]


def already_finished(job: Job) -> AlreadyFinished:
    """The error of whoever wanted to end a job that has ended before."""
    return AlreadyFinished(
        f"{named(job)} can't be ended any more: it {became(job)}",
        state=job.state.value,
        job_id=job.id,
        job_type=job.type,
        last_error=last_error(job),
        chain_id=job.chain_id,
    )


def became(job: Job) -> str:
    """What has become of a finished job, with its newest error."""
    if job.state is JobState.COMPLETED:
        return "has completed"
    error = last_error(job)
    # One that a blocker failed, or that wasn't started in time, hasn't had an attempt.
    attempt = f" at attempt {job.attempt}" if job.attempt and not was_discarded(job) else ""
    word = "has failed" if job.state is JobState.FAILED else "was cancelled"
    return f"{word}{attempt}{f': {error}' if error else ''}"


def named(job: Job) -> str:
    """The job for people, with its place if it's a later step of a chain."""
    name = f"the job {job.id} of {job.type}"
    return f"{name}, step {job.position} of the chain {job.chain_id}," if job.position else name


def last_error(job: Job) -> str | None:
    """The newest entry of its history, as text."""
    return None if job.last_error is None else str(job.last_error)
