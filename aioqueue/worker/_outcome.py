"""What became of an attempt: one frozen value, made here, and nowhere else, before anything is written.

An attempt ends as an `Outcome`, which is settled, or is `INTERRUPTED`, for which its claim is given back. A new reason for an
outcome begins with a function here; one that is stored in a new way begins with its `SettlementKind`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from aioqueue.errors import ConfigurationError
from aioqueue.runtime._exits import members, traceback_of
from aioqueue.telemetry._counters import AttemptOutcome
from aioqueue.vocabulary._job import AttemptError, Settlement, SettlementKind
from aioqueue.vocabulary._job_control import Fail, JobControl, Reschedule, RetryIn
from aioqueue.vocabulary._retry import Retry
from aioqueue.vocabulary._safe_text import type_name
from aioqueue.vocabulary._time import aware, seconds
from aioqueue.worker._policy import Policy
from aioqueue.worker._text import attempt_error, described, job_event, one_line, stored_text

if TYPE_CHECKING:
    from aioqueue.errors import AioqueueError
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

__all__ = [
    "INTERRUPTED",
    "CancelReason",
    "Interrupted",
    "Outcome",
    "Unreadable",
    "broken",
    "completed",
    "continued",
    "expired",
    "failed",
    "failed_for_no_reason",
    "interrupted_too_often",
    "interruptions",
    "put_off",
    "raised",
    "refused",
    "worker_lost",
]

logger = logging.getLogger("aioqueue.worker")

E = TypeVar("E", bound=BaseException)

_USUAL = Retry()
"""Whose waits count where a policy is broken, and which counts as a whole where nothing else is known to be sound."""


_COUNTED_AS = {
    SettlementKind.COMPLETED: AttemptOutcome.OK,
    SettlementKind.CONTINUED: AttemptOutcome.OK,
    SettlementKind.FAILED: AttemptOutcome.FAILED,
    SettlementKind.CANCELLED: AttemptOutcome.CANCELLED,
    SettlementKind.RETRIED: AttemptOutcome.RETRY,
    SettlementKind.RESCHEDULED: AttemptOutcome.RESCHEDULED,
}


class CancelReason(StrEnum):
    """Why the worker cancelled an attempt."""

    TIMEOUT = "timeout"
    LOST = "lost"
    SHUTDOWN = "shutdown"
    EXIT = "exit"
    """A task or callback of the handler's has raised `SystemExit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        kind: What to write.
        output: JSON.
        label: What `set_outcome` or `Fail` said.
        delay, run_at: When it's due again.
        error: For the history.
        next: The chain's next job.
        children: Jobs that the attempt has enqueued, and those that come along.
        exception: What was raised, for the log alone.
        poison: Whether the job has failed for good with attempts left: it said so, or can't be read. For metrics alone.
    """

    kind: SettlementKind
    output: bytes | None = None
    label: str | None = None
    delay: float | None = None
    run_at: datetime | None = None
    error: AttemptError | None = None
    next: NewJob | None = None
    children: tuple[NewJob, ...] = ()
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    poison: bool = field(default=False, compare=False)

    @property
    def counted_as(self) -> AttemptOutcome:
        """What metrics and traces call it."""
        return AttemptOutcome.POISON if self.poison else _COUNTED_AS[self.kind]

    @property
    def may_be_refused(self) -> bool:
        """Whether the store may say of what is to be stored with it that it can't be: that it waits for what isn't there."""
        return bool(self.children) or (self.next is not None and bool(self.next.blockers))

    def without_exception(self) -> Outcome:
        """The same, without what was raised, which would keep everything that its frames hold."""
        return self if self.exception is None else replace(self, exception=None)

    def settlement(self, job: ClaimedJob) -> Settlement:
        """What the store is given to write, with the fence of the job's claim."""
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
            next=self.next,
            children=self.children,
        )


class Interrupted:
    """An attempt was stopped before its end, and not by a fault of its own. Its claim is given back, with no attempt used."""


INTERRUPTED = Interrupted()


class Unreadable(Exception):
    """A job can't be run, or its output can't be stored, and trying again wouldn't help.

    Arguments:
        error: What is wrong.
        kind: What the job's history calls that.
    """

    def __init__(self, error: BaseException, kind: str) -> None:
        super().__init__(kind)
        self.error = error
        self.kind = kind

    def outcome(self, job: ClaimedJob) -> Outcome:
        """What becomes of the job that met this: it has failed, and isn't tried again."""
        return Outcome(
            kind=SettlementKind.FAILED,
            error=attempt_error(self.error, job.attempt, kind=self.kind),
            exception=self.error,
            poison=True,
        )


def completed(output: bytes, label: str | None, children: tuple[NewJob, ...] = ()) -> Outcome:
    """The outcome of an attempt whose handler has returned a value, and has enqueued these jobs."""
    label = None if label is None else _label(label)
    return Outcome(kind=SettlementKind.COMPLETED, output=output, label=label, children=children)


def continued(following: NewJob, label: str | None, children: tuple[NewJob, ...] = ()) -> Outcome:
    """The outcome of an attempt whose handler has returned a call: its chain goes on with that job; the others come along."""
    label = None if label is None else _label(label)
    return Outcome(kind=SettlementKind.CONTINUED, next=following, label=label, children=children)


def refused(job: ClaimedJob, policy: Policy, error: AioqueueError) -> Outcome:
    """The outcome of an attempt that has ended well, with jobs that can't be stored: it has failed with that error."""
    return replace(_failed_with(job, policy, error, None), exception=error)


def expired(job: ClaimedJob) -> Outcome:
    """The outcome of a job that wasn't started in time: it's discarded."""
    return Outcome(kind=SettlementKind.CANCELLED, error=_noted(job, "Expired", "it wasn't started before it expired"))


def worker_lost(job: ClaimedJob, policy: Policy) -> Outcome:
    """The outcome of an attempt whose worker has died, or was away for longer than its lease."""
    error = _noted(job, "WorkerLost", f"worker lost: the lease {job.lease_id} ran out during attempt {job.attempt}")
    return _again(job, policy, error, None)


def failed(job: ClaimedJob, kind: str, message: str) -> Outcome:
    """The outcome of a job that is to fail for a reason of the worker's, which its history calls `kind`."""
    return Outcome(kind=SettlementKind.FAILED, error=_noted(job, kind, message))


def failed_for_no_reason() -> Outcome:
    """The outcome of a job of which nothing can be stored but that it has failed."""
    return Outcome(kind=SettlementKind.FAILED)


def put_off(delay: float) -> Outcome:
    """The outcome of a job that isn't begun now: it's claimed again after so many seconds, with no attempt used."""
    return Outcome(kind=SettlementKind.RESCHEDULED, delay=delay)


def broken(job: ClaimedJob, error: BaseException) -> Outcome:
    """The outcome of an attempt around which something of the worker's own has failed; the usual policy says what is next."""
    number = job.max_attempts if job.retry is not None else _USUAL.max_attempts
    return _again(job, Policy(_USUAL, number, None), attempt_error(error, job.attempt), None)


def interruptions(job: ClaimedJob) -> int:
    """How often a job was given back with no attempt used: those of its claims that were neither counted nor put off.

    Earlier attempts of a job that an operator has retried are among them, since their number begins anew.
    """
    return job.claims - job.attempt - job.reschedules


def interrupted_too_often(job: ClaimedJob, policy: Policy) -> Outcome:
    """The outcome of an attempt that the event loop's end has interrupted, as often before: perhaps it's this job's fault."""
    message = f"the event loop has ended while it ran, after {interruptions(job)} interruptions before"
    return _again(job, policy, _noted(job, "EventLoopEnded", message), None)


def raised(
    job: ClaimedJob,
    policy: Policy,
    error: BaseException,
    *,
    label: str | None,
    reason: CancelReason | None,
    timeout: float | None,
) -> Outcome | Interrupted:
    """The handler, or a middleware, raised: what that means, with what was raised for the log.

    Arguments:
        job, policy: Whose attempt it was, and what counts for it.
        error: What was raised.
        label: What `set_outcome` said.
        reason: Why the worker has cancelled the attempt, if it has.
        timeout: Seconds that the attempt had, if they were limited.
    """
    outcome = _meaning(job, policy, error, label=label, reason=reason, timeout=timeout)
    if isinstance(outcome, Interrupted) or outcome.error is None:
        return outcome
    return replace(outcome, exception=error)


def _meaning(
    job: ClaimedJob,
    policy: Policy,
    error: BaseException,
    *,
    label: str | None,
    reason: CancelReason | None,
    timeout: float | None,
) -> Outcome | Interrupted:
    """What an exception means for the job.

    What a handler raises once the worker shuts down is taken for a consequence of being cancelled, unless it's a
    `JobControl`. `TIMEOUT` turns only the cancellation itself into a `TimeoutError`: any other error says more.
    """
    label = _label(label)
    if (control := _control(error)) is not None:
        try:
            return _controlled(job, policy, control, label)
        except BaseException as wrong:  # noqa: BLE001 - classified: its values can't be used, or its class is broken
            return _again(job, policy, attempt_error(wrong, job.attempt), label)
    if reason is CancelReason.SHUTDOWN:
        return INTERRUPTED
    if reason is CancelReason.TIMEOUT and _is(error, asyncio.CancelledError):
        late = TimeoutError(f"the attempt took longer than {timeout:g} s")
        error = late.with_traceback(traceback_of(error))
    return _failed_with(job, policy, error, label)


def _failed_with(job: ClaimedJob, policy: Policy, error: BaseException, label: str | None) -> Outcome:
    """What the policy says of an attempt that has failed with an error."""
    explained = attempt_error(error, job.attempt)
    if not _retries(job, policy, error):
        return Outcome(kind=SettlementKind.FAILED, label=label, error=explained, poison=not policy.exhausted(job.attempt))
    return _again(job, policy, explained, label)


def _control(error: BaseException) -> JobControl | None:
    """What the handler has said comes next. In a group of exceptions the most final word counts."""
    if _is(error, JobControl):
        return error
    found = [control for each in members(error) if (control := _control(each)) is not None]
    return min(found, key=_finality) if found else None


def _finality(control: JobControl) -> int:
    """0 is the most final."""
    return next((place for place, kind in enumerate((Fail, RetryIn, Reschedule)) if _is(control, kind)), 3)


def _is(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """As `isinstance`, without asking the error: its `__class__` may lie, or raise."""
    return issubclass(type(error), kind)


def _controlled(job: ClaimedJob, policy: Policy, control: JobControl, label: str | None) -> Outcome:
    if _is(control, Fail):
        return Outcome(
            kind=SettlementKind.FAILED,
            label=_label(_attribute(control, "outcome")) or label,
            error=_noted(job, "Fail", _attribute(control, "reason")),
            poison=True,
        )
    if _is(control, RetryIn):
        delay = seconds(control.delay, "RetryIn's delay")
        error = _noted(job, "RetryIn", f"to be tried again in {delay:g} s")
        if policy.exhausted(job.attempt):
            return Outcome(kind=SettlementKind.FAILED, label=label, error=error)
        return Outcome(kind=SettlementKind.RETRIED, label=label, delay=delay, error=error)
    if _is(control, Reschedule):
        if (control.delay is None) == (control.at is None):
            raise ConfigurationError("Reschedule takes either delay= or at=")
        if policy.max_reschedules is not None and job.reschedules >= policy.max_reschedules:
            message = f"it was rescheduled {job.reschedules} times, and max_reschedules is {policy.max_reschedules}"
            return failed(job, "Reschedule", message)
        run_at = aware(control.at, "Reschedule's at") if control.at is not None else None
        wait = seconds(control.delay, "Reschedule's delay") if control.delay is not None else None
        return Outcome(kind=SettlementKind.RESCHEDULED, label=label, delay=wait, run_at=run_at)
    return _again(job, policy, attempt_error(control, job.attempt), label)


def _attribute(control: Fail, name: str) -> object:
    """What a `Fail` says; a subclass may not have called our `__init__`, or have properties that raise."""
    try:
        return getattr(control, name)
    except BaseException as error:  # noqa: BLE001 - classified: part of the job's history
        return f"<its {name} can't be read: {described(error)}>" if name == "reason" else None


def _again(job: ClaimedJob, policy: Policy, error: AttemptError, label: str | None) -> Outcome:
    if policy.exhausted(job.attempt):
        return Outcome(kind=SettlementKind.FAILED, label=label, error=error)
    return Outcome(kind=SettlementKind.RETRIED, label=label, delay=_delay(job, policy), error=error)


def _delay(job: ClaimedJob, policy: Policy) -> float:
    """How long the policy lets the job wait. A backoff may be code of the user's: where it's broken, the default counts."""
    try:
        return policy.retry.delay(job.attempt)
    except BaseException as error:  # noqa: BLE001 - logged; it costs its own job nothing but the wait
        _log_broken_policy(job, policy, "it waits as long as the default policy says", error)
        return _USUAL.delay(job.attempt)


def _retries(job: ClaimedJob, policy: Policy, error: BaseException) -> bool:
    try:
        return policy.retry.retries(error)
    except BaseException as second:  # noqa: BLE001 - logged; a class of `retry_on` or `fail_on`, or the error's own, is broken
        _log_broken_policy(job, policy, "its error counts as one that is retried", second)
        return True


def _log_broken_policy(job: ClaimedJob, policy: Policy, instead: str, error: BaseException) -> None:
    logger.error(
        "%s %s: the retry policy (%s) fails after attempt %d, so %s: %s",
        one_line(job.type),
        job.id,
        type_name(policy.retry.backoff),
        job.attempt,
        instead,
        described(error),
        extra=job_event("attempt.policy_failed", job),
    )


def _label(value: object) -> str | None:
    if not issubclass(type(value), str):
        return None
    return stored_text(str.__str__(cast("str", value)), 200) or None


def _noted(job: ClaimedJob, kind: str, message: object) -> AttemptError:
    return AttemptError(attempt=job.attempt, at=datetime.now(UTC), type=kind, message=stored_text(message))
