"""The public names are exactly those that are meant, and say what they do."""

from __future__ import annotations

import inspect
import types

import pytest

import aioqueue
from aioqueue import errors

_NAMES = """
AioqueueError AlreadyFinished ArgumentsError Attempt AttemptError AttemptLog Backoff Blocker BlockerCycle BlockerNotFound
BlockerReference BoundClient Call CallAlreadyEnqueued CallError CallNeverEnqueued CallNext Cancel CancelReason Cancellation
Changed Changes Client ClientClosed Completed Completion CompletionMiddleware CompletionNotDone ConfigurationError
ConflictingOptions DecidedTick Delivery DeliveryPage DeliveryState DryRunRefused DuplicateJob EnqueueMiddleware EnqueueNext
EventStream Exponential Fail Failed Finding Fixed GateKind GateStatus Health InSequence Inserted Job JobAttempt JobCancelled
JobControl JobError JobFailed JobFilter JobHandle JobNotFound JobState JobType KeptSequence LateAttempt LeaseFacts
LeaseLost Limit LimitKind Limits Linear ListOrder ListedSchedules MetricsServer Middleware NewJob NotCommitted
NotInProcess NotInTransaction NotSupported OnceResult OutputNotReady OutsideTransaction Page Pause PauseTarget Phase
PhaseError PhaseNotDeclared PhaseRepeated PhaseResultError PhaseState PhasesOverlap Priority ProcessFailed Progress Rate
Reason ReasonCode RegistrationError Registry Reschedule Resource ResultError ResultTimeout Retry RetryIn RowRejected
Schedule ScheduleError ScheduleNotFound ScheduleOwned Schedules Sequences SingletonHeld Stats Steps StoreContended
StoreError StoreIncompatible StoreUnavailable StoredLimit TickOutcome Transaction TransactionError Unique Verdict Why
Worker WrongJobType current_attempt done serve_metrics
"""

NAMES = _NAMES.split()


def test_all_is_exact() -> None:
    assert sorted(aioqueue.__all__) == sorted(NAMES)
    there = {
        name
        for name, value in vars(aioqueue).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert there == set(NAMES)


def test_every_error_is_public() -> None:
    assert set(errors.__all__) - set(aioqueue.__all__) == {"Portable"}  # a base of theirs, which means nothing by itself


@pytest.mark.parametrize("name", NAMES)
def test_every_public_class_and_method_says_what_it_does(name: str) -> None:
    value = getattr(aioqueue, name)
    if not isinstance(value, (type, types.FunctionType)):
        return
    assert value.__doc__, name
    if isinstance(value, type) and value.__module__.startswith("aioqueue"):
        for method, function in vars(value).items():
            if method.startswith("_") or not (inspect.isfunction(function) or isinstance(function, property)):
                continue
            assert function.__doc__, f"{name}.{method}"
