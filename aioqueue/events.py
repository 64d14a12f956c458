"""What happens to jobs and workers, as frozen values: `Client.events` gives them, and `Client.observe` hands them on.

Names and fields are stable: a later version may add some, and takes none away. All times are UTC.

- `Event`
    - `JobEvent`: something has happened to one job, and is committed
        - `JobEnqueued`, `JobBlocked`, `JobUnblocked`
        - `JobStarted`, `JobProgress`, `PhaseStarted`, `PhaseCompleted`
        - `JobRetrying`, `JobRescheduled`
        - `JobCompleted`, `JobContinued`, `JobFailed`, `JobCancelled`
        - `JobReaped`, `JobLeaseLost`, `JobDeleted`
        - `WebhookDelivered`, `WebhookUndelivered`
    - `WorkerEvent`
        - `WorkerStarted`, `WorkerStopping`, `WorkerStopped`, `WorkerError`
        - `ScheduleTicked`
    - `Reset`: events may be missing before those that follow
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = [
    "Event",
    "JobBlocked",
    "JobCancelled",
    "JobCompleted",
    "JobContinued",
    "JobDeleted",
    "JobEnqueued",
    "JobEvent",
    "JobFailed",
    "JobLeaseLost",
    "JobProgress",
    "JobReaped",
    "JobRescheduled",
    "JobRetrying",
    "JobStarted",
    "JobUnblocked",
    "PhaseCompleted",
    "PhaseStarted",
    "Reset",
    "ScheduleTicked",
    "WebhookDelivered",
    "WebhookUndelivered",
    "WorkerError",
    "WorkerEvent",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that has happened.

    Attributes:
        at: When: by the database's clock from `Client.events`, and mostly by this process's from `Client.observe`.
    """

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(Event):
    """Something may have happened that isn't among the events: look at the jobs anew, and go on with what follows.

    Attributes:
        reason: Why, for people.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """Something has happened to one job, and is committed.

    Attributes:
        job_id, chain_id: Whose. A job that stands for itself is the first of its chain: both are the same.
        job_type: The full name of its type.
        attempt: The number of its newest attempt, from 1; 0 before the first, and where the kind has none.
        claims: How often it was claimed; 0 where the kind has none.
        sequence: The event's number in the log, which grows for each job; None if it isn't from there.
    """

    job_id: UUID
    chain_id: UUID
    job_type: str
    attempt: int = 0
    claims: int = 0
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnqueued(JobEvent):
    """It was stored, or has taken the place of one that waited (`on_conflict="replace"`): it's due, or will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBlocked(JobEvent):
    """It was stored, or lives again, and waits for the ends of other chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUnblocked(JobEvent):
    """It waits for nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobEvent):
    """A worker has claimed it, and begins its attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress(JobEvent):
    """How far it has come.

    Attributes:
        percent: Of the whole job: 0 to 100.
        message: What the handler said with it.
        phase: The phase that was running.
    """

    percent: float
    message: str | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted(JobEvent):
    """A phase has begun.

    Attributes:
        phase: Its name.
    """

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCompleted(JobEvent):
    """A phase's result is stored: no later attempt repeats it.

    Attributes:
        phase: Its name.
    """

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetrying(JobEvent):
    """It's tried again: an attempt has failed, or somebody has revived the job.

    Attributes:
        delay: Seconds until it's due.
        error_type, error_message: What the attempt has failed with; None where the job was revived.
    """

    delay: float
    error_type: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescheduled(JobEvent):
    """It's due at another time, with no attempt used: it has put itself off, was given back, or somebody has changed it.

    Attributes:
        delay: Seconds until it's due.
    """

    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCompleted(JobEvent):
    """It has completed, and so has its chain. Its output is in its snapshot.

    Attributes:
        outcome: The short label that the attempt has set.
    """

    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContinued(JobEvent):
    """It has finished, and its chain goes on.

    Attributes:
        next_id: The chain's next job.
        outcome: The short label that the attempt has set.
    """

    next_id: UUID | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    """It has failed for good.

    Attributes:
        error_type, error_message: Why; the beginning of the message.
    """

    error_type: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(JobEvent):
    """It was cancelled: asked to end, discarded since it wasn't started in time, or it has raised `Cancel`.

    Attributes:
        error_type, error_message: Why: what was asked for, or what its last attempt has ended with.
    """

    error_type: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReaped(JobEvent):
    """Its worker is gone, and it was taken over. What has become of it follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeaseLost(JobEvent):
    """This process's attempt isn't the job's any more: nothing that it does is stored. From `Client.observe` only.

    Attributes:
        reason: As of `CancelReason`, such as `taken_by_another_worker`.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeleted(JobEvent):
    """It was removed: by somebody, or since it was old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivered(JobEvent):
    """The webhook about the end of its chain was delivered.

    Attributes:
        status: The receiver's HTTP status.
    """

    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookUndelivered(JobEvent):
    """The webhook about the end of its chain was given up.

    Attributes:
        status: The receiver's newest HTTP status; None without an answer.
    """

    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvent(Event):
    """Something has happened to a worker of this process. From `Client.observe` only.

    Attributes:
        worker: Its name.
    """

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(WorkerEvent):
    """It has its lease, and claims from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopping(WorkerEvent):
    """It claims nothing more, and ends what runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(WorkerEvent):
    """It has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerError(WorkerEvent):
    """One of its parts has failed, and tries again.

    Attributes:
        part: As in `Health.troubles`.
        error: What it has failed with, as one line.
    """

    part: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTicked(WorkerEvent):
    """It has decided a tick of a schedule, or several that are skipped together. From `Client.observe` only.

    Attributes:
        schedule: The schedule's name.
        job_type: The full name of its type.
        nominal_time: The tick's time, in UTC, whenever it was decided; of several, the newest one's.
        outcome: `enqueued`, `skipped`, or `duplicate`: another job has its unique key.
        reason: Why it was skipped, for people.
        chain_id: The chain that it has made, or found.
        count: How many ticks it stands for.
    """

    schedule: str
    job_type: str
    nominal_time: datetime
    outcome: str
    reason: str = ""
    chain_id: UUID | None = None
    count: int = 1
