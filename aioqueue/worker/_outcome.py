"""What became of an attempt: one frozen value, made here, and nowhere else, before anything is written.

An attempt ends as an `Outcome`, which is settled, or is `INTERRUPTED`, for which its claim is given back. A new reason for an
outcome begins with a function here; one that is stored in a new way begins with its `SettlementKind`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from aioqueue.errors import ConfigurationError
from aioqueue.runtime._exits import members, traceback_of
from aioqueue.telemetry._counters import AttemptOutcome
from aioqueue.vocabulary._job import AttemptError, Settlement, SettlementKind
from aioqueue.vocabulary._job_control import Cancel, Fail, JobControl, Reschedule, RetryIn
from aioqueue.vocabulary._time import aware, seconds
from aioqueue.worker._policy import USUAL, Policy, delay_of, retries
from aioqueue.worker._stop_reason import StopReason
from aioqueue.worker._text import attempt_error, described, stored_text

if TYPE_CHECKING:
    from aioqueue.errors import AioqueueError
    from aioqueue.vocabulary._job import ClaimedJob, NewJob
    from aioqueue.worker._captured import CapturedLogs

__all__ = [
    "INTERRUPTED",
    "Interrupted",
    "Outcome",
    "Unreadable",
    "asked_to_end",
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
    "unless_asked_to_end",
    "worker_lost",
]

E = TypeVar("E", bound=BaseException)

_COUNTED_AS = {
    SettlementKind.COMPLETED: AttemptOutcome.OK,
    SettlementKind.CONTINUED: AttemptOutcome.OK,
    SettlementKind.FAILED: AttemptOutcome.FAILED,
    SettlementKind.CANCELLED: AttemptOutcome.CANCELLED,
    SettlementKind.RETRIED: AttemptOutcome.RETRY,
    SettlementKind.RESCHEDULED: AttemptOutcome.RESCHEDULED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        kind: What to write.
        output: JSON.
        label: What `set_outcome`, `Fail` or `Cancel` said.
        delay, run_at: When it's due again.
        error: For the history.
        on_purpose: Whether it has failed since the handler has said so: then that stands, also if its chain was asked to end.
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
    on_purpose: bool = False
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    poison: bool = field(default=False, compare=False)

    @property
    def counted_as(self) -> AttemptOutcome:
        """What metrics and traces call it."""
        return AttemptOutcome.POISON if self.poison else _COUNTED_AS[self.kind]

    @property
    def yields(self) -> bool:
        """Whether it's a failure that nobody chose: the job is cancelled instead, if that was asked for."""
        return self.kind is SettlementKind.FAILED and not self.on_purpose

    @property
    def may_be_refused(self) -> bool:
        """Whether the store may say of what is to be stored with it that it can't be: that it waits for what isn't there."""
        return bool(self.children) or (self.next is not None and bool(self.next.blockers))

    def without_exception(self) -> Outcome:
        """The same, without what was raised, which would keep everything that its frames hold."""
        return self if self.exception is None else replace(self, exception=None)

    def settlement(self, job: ClaimedJob, *, ran_by: str = "", captured: CapturedLogs | None = None) -> Settlement:
        """What the store is given to write, with the fence of the job's claim.

        Arguments:
            job: As it was claimed.
            ran_by: The name of the worker that has run the attempt; empty if it wasn't begun.
            captured: What its handler has logged, if that is kept.
        """
        error = self.error
        if error is not None and ran_by:
            error = replace(error, worker=ran_by, started_at=job.started_at)
        logs = None if captured is None else captured.encode()
        return Settlement(
            id=job.id,
            claims=job.claims,
            lease_id=job.lease_id,
            kind=self.kind,
            output=self.output,
            outcome=self.label,
            delay=self.delay,
            run_at=self.run_at,
            error=error,
            next=self.next,
            children=self.children,
            yields=self.yields,
            attempt=0 if logs is None else job.attempt,
            logs=logs,
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


def asked_to_end(job: ClaimedJob, why: str) -> Outcome:
    """The outcome of a job whose chain was asked to end, and whose attempt wasn't begun, or has ended for no other reason."""
    return Outcome(kind=SettlementKind.CANCELLED, error=_noted(job, "Cancelled", why or "it was cancelled"))


def unless_asked_to_end(job: ClaimedJob, outcome: Outcome | Interrupted, why: str) -> Outcome:
    """What becomes of a job whose chain was asked to end: it's completed, continued, failed on purpose; or else cancelled.

    Arguments:
        job: Whose attempt has ended.
        outcome: How, without regard to that. Its error is kept.
        why: The reason that was given.
    """
    if isinstance(outcome, Interrupted):
        return asked_to_end(job, why)
    if outcome.kind.finishes and not outcome.yields:
        return outcome
    cancelled, exception = asked_to_end(job, why), outcome.exception
    return replace(cancelled, label=outcome.label, error=outcome.error or cancelled.error, exception=exception)


def worker_lost(job: ClaimedJob, policy: Policy) -> Outcome:
    """The outcome of an attempt whose worker has died, or was away for longer than its lease."""
    error = _noted(job, "WorkerLost", f"worker lost: the lease {job.lease_id} ran out during attempt {job.attempt}")
    return _again(job, policy, replace(error, started_at=job.started_at, worker=job.worker), None)


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
    number = job.max_attempts if job.retry is not None else USUAL.max_attempts
    return _again(job, Policy(USUAL, number, None), attempt_error(error, job.attempt), None)


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
    reason: StopReason | None,
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
    reason: StopReason | None,
    timeout: float | None,
) -> Outcome | Interrupted:
    """What an exception means for the job.

    What a handler raises once the worker shuts down is taken for a consequence of being cancelled, unless it's a
    `JobControl`. So is the cancellation itself, once its chain was asked to end. `TIMEOUT` turns only the cancellation itself
    into a `TimeoutError`: any other error says more.
    """
    label = _label(label)
    if (control := _control(error)) is not None:
        try:
            return _controlled(job, policy, control, label)
        except BaseException as wrong:  # noqa: BLE001 - classified: its values can't be used, or its class is broken
            return _again(job, policy, attempt_error(wrong, job.attempt), label)
    if reason is StopReason.SHUTDOWN or (reason is StopReason.CANCELLED and _is(error, asyncio.CancelledError)):
        return INTERRUPTED
    if reason is StopReason.TIMEOUT and _is(error, asyncio.CancelledError):
        late = TimeoutError(f"the attempt took longer than {timeout:g} s")
        error = late.with_traceback(traceback_of(error))
    return _failed_with(job, policy, error, label)


def _failed_with(job: ClaimedJob, policy: Policy, error: BaseException, label: str | None) -> Outcome:
    """What the policy says of an attempt that has failed with an error."""
    explained = attempt_error(error, job.attempt)
    if not retries(job, policy, error):
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
    return next((place for place, kind in enumerate((Fail, Cancel, RetryIn, Reschedule)) if _is(control, kind)), 4)


def _is(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """As `isinstance`, without asking the error: its `__class__` may lie, or raise."""
    return issubclass(type(error), kind)


def _controlled(job: ClaimedJob, policy: Policy, control: JobControl, label: str | None) -> Outcome:
    if _is(control, Fail) or _is(control, Cancel):
        fails = _is(control, Fail)
        return Outcome(
            kind=SettlementKind.FAILED if fails else SettlementKind.CANCELLED,
            label=_label(_attribute(control, "outcome")) or label,
            error=_noted(job, "Fail" if fails else "Cancel", _attribute(control, "reason")),
            on_purpose=True,
            poison=fails,
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


def _attribute(control: JobControl, name: str) -> object:
    """What a `Fail` or a `Cancel` says; a subclass may not have called our `__init__`, or have properties that raise."""
    try:
        return getattr(control, name)
    except BaseException as error:  # noqa: BLE001 - classified: part of the job's history
        return f"<its {name} can't be read: {described(error)}>" if name == "reason" else None


def _again(job: ClaimedJob, policy: Policy, error: AttemptError, label: str | None) -> Outcome:
    if policy.exhausted(job.attempt):
        return Outcome(kind=SettlementKind.FAILED, label=label, error=error)
    return Outcome(kind=SettlementKind.RETRIED, label=label, delay=delay_of(job, policy), error=error)


def _label(value: object) -> str | None:
    if not issubclass(type(value), str):
        return None
    return stored_text(str.__str__(cast("str", value)), 200) or None


def _noted(job: ClaimedJob, kind: str, message: object) -> AttemptError:
    return AttemptError(attempt=job.attempt, at=datetime.now(UTC), type=kind, message=stored_text(message))
