"""What became of an attempt: one frozen value, made here before anything is written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aioqueue._job import AttemptError, Settlement, SettlementKind
from aioqueue._retry import Retry
from aioqueue._time import aware, seconds
from aioqueue.errors import ConfigurationError, Fail, JobControl, Reschedule, RetryIn
from aioqueue.worker._text import attempt_error, stored_text

if TYPE_CHECKING:
    from aioqueue._job import ClaimedJob
    from aioqueue._job_type import JobType

__all__ = ["CancelReason", "Outcome", "Policy", "completed", "expired", "failed", "raised", "unreadable", "worker_lost"]


class CancelReason(StrEnum):
    """Why the worker cancelled an attempt."""

    TIMEOUT = "timeout"
    LOST = "lost"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        kind: What to write; None gives the claim back, with no attempt used.
        output: JSON.
        label: What `set_outcome` or `Fail` said.
        delay, run_at: When it's due again.
        error: For the history.
    """

    kind: SettlementKind | None
    output: bytes | None = None
    label: str | None = None
    delay: float | None = None
    run_at: datetime | None = None
    error: AttemptError | None = None

    def settlement(self, job: ClaimedJob) -> Settlement:
        """As the store wants it."""
        assert self.kind is not None
        return Settlement(
            id=job.id,
            claims=job.claims,
            lease_id=job.lease_id,
            kind=self.kind,
            output=self.output,
            outcome=self.label,
            delay=self.delay,
            run_at=self.run_at,
            error=self.error,
        )


INTERRUPTED = Outcome(kind=None)


@dataclass(frozen=True, slots=True)
class Policy:
    """The retry policy that counts for one job.

    Attributes:
        retry: Backoff and classes.
        max_attempts: None for no limit.
        max_reschedules: None for no limit.
    """

    retry: Retry
    max_attempts: int | None
    max_reschedules: int | None

    @classmethod
    def of(
        cls, job: ClaimedJob, job_type: JobType[..., Any, Any] | None, default: Retry, max_reschedules: int | None
    ) -> Policy:
        """What is stored with the job, else its type's, else the worker's default: each as a whole.

        The job's number of attempts belongs to the policy that is stored with it. Without one nobody gave a number:
        the row has what its producer took for the usual one.
        """
        if job_type is not None and job_type.max_reschedules is not None:
            max_reschedules = job_type.max_reschedules
        own = job_type.retry if job_type is not None else None
        if job.retry is not None:
            stored = _decode(job.retry, own.retry_on if own else (), own.fail_on if own else ())
            return cls(stored or own or default, job.max_attempts, max_reschedules)
        policy = own or default
        return cls(policy, policy.max_attempts, max_reschedules)

    def exhausted(self, attempt: int) -> bool:
        """Whether this attempt was the last."""
        return self.max_attempts is not None and attempt >= self.max_attempts


@lru_cache(maxsize=256)
def _decode(stored: bytes, retry_on: tuple[type[BaseException], ...], fail_on: tuple[type[BaseException], ...]) -> Retry | None:
    try:
        return Retry.decode(stored, retry_on=retry_on, fail_on=fail_on)
    except ConfigurationError:  # only the number was given, or a newer version wrote it: the number still counts
        return None


def completed(output: bytes, label: str | None) -> Outcome:
    """The handler returned a value."""
    return Outcome(kind=SettlementKind.COMPLETED, output=output, label=label)


def unreadable(job: ClaimedJob, error: BaseException, kind: str) -> Outcome:
    """Its arguments don't fit, or its output can't be stored: trying again wouldn't help."""
    return Outcome(kind=SettlementKind.FAILED, error=attempt_error(error, job.attempt, kind=kind))


def expired(job: ClaimedJob) -> Outcome:
    """It wasn't started in time."""
    return Outcome(kind=SettlementKind.CANCELLED, error=_noted(job, "Expired", "it wasn't started before it expired"))


def worker_lost(job: ClaimedJob, policy: Policy) -> Outcome:
    """Its worker died, or was away for longer than its lease."""
    error = _noted(job, "WorkerLost", f"worker lost: the lease {job.lease_id} ran out during attempt {job.attempt}")
    if job.expired and not policy.exhausted(job.attempt):
        return Outcome(kind=SettlementKind.CANCELLED, error=error)
    return _again(job, policy, error, None)


def failed(job: ClaimedJob, kind: str, message: str) -> Outcome:
    """It ends here, for a reason of the worker's."""
    return Outcome(kind=SettlementKind.FAILED, error=_noted(job, kind, message))


def raised(
    job: ClaimedJob,
    policy: Policy,
    error: BaseException,
    *,
    label: str | None,
    reason: CancelReason | None,
    timeout: float | None,
) -> Outcome:
    """The handler, or a middleware, raised.

    What a handler raises once the worker shuts down is taken for a consequence of being cancelled, unless it's a
    `JobControl`. `TIMEOUT` turns only the cancellation itself into a `TimeoutError`: any other error says more.
    """
    if isinstance(error, JobControl):
        try:
            return _controlled(job, policy, error, label)
        except ConfigurationError as wrong:
            return _again(job, policy, attempt_error(wrong, job.attempt), label)
    if reason is CancelReason.SHUTDOWN:
        return INTERRUPTED
    if reason is CancelReason.TIMEOUT and isinstance(error, asyncio.CancelledError):
        late = TimeoutError(f"the attempt took longer than {timeout:g} s").with_traceback(error.__traceback__)
        described = attempt_error(late, job.attempt)
        retries = policy.retry.retries(late)
    else:
        described = attempt_error(error, job.attempt)
        retries = policy.retry.retries(error)
    if not retries:
        return Outcome(kind=SettlementKind.FAILED, label=label, error=described)
    return _again(job, policy, described, label)


def _controlled(job: ClaimedJob, policy: Policy, control: JobControl, label: str | None) -> Outcome:
    if isinstance(control, Fail):
        error = _noted(job, "Fail", str(control.reason))
        return Outcome(kind=SettlementKind.FAILED, label=_label(control.outcome) or label, error=error)
    if isinstance(control, RetryIn):
        delay = seconds(control.delay, "RetryIn's delay")
        error = _noted(job, "RetryIn", f"to be tried again in {delay:g} s")
        if policy.exhausted(job.attempt):
            return Outcome(kind=SettlementKind.FAILED, label=label, error=error)
        return Outcome(kind=SettlementKind.RETRIED, label=label, delay=delay, error=error)
    if isinstance(control, Reschedule):
        if (control.delay is None) == (control.at is None):
            raise ConfigurationError("Reschedule takes either delay= or at=")
        if policy.max_reschedules is not None and job.reschedules >= policy.max_reschedules:
            message = f"it was rescheduled {job.reschedules} times, and max_reschedules is {policy.max_reschedules}"
            return failed(job, "Reschedule", message)
        run_at = aware(control.at, "Reschedule's at") if control.at is not None else None
        wait = seconds(control.delay, "Reschedule's delay") if control.delay is not None else None
        return Outcome(kind=SettlementKind.RESCHEDULED, label=label, delay=wait, run_at=run_at)
    return _again(job, policy, attempt_error(control, job.attempt), label)


def _again(job: ClaimedJob, policy: Policy, error: AttemptError, label: str | None) -> Outcome:
    if policy.exhausted(job.attempt):
        return Outcome(kind=SettlementKind.FAILED, label=label, error=error)
    return Outcome(kind=SettlementKind.RETRIED, label=label, delay=policy.retry.delay(job.attempt), error=error)


def _label(value: object) -> str | None:
    return stored_text(value, 200) if isinstance(value, str) and value else None


def _noted(job: ClaimedJob, kind: str, message: str) -> AttemptError:
    return AttemptError(attempt=job.attempt, at=datetime.now(UTC), type=kind, message=stored_text(message))
