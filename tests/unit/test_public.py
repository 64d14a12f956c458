"""The public names are exactly those that are meant, and say what they do."""

from __future__ import annotations

import inspect
import types

import pytest

import aioqueue
from aioqueue import errors

_NAMES = """
AioqueueError ArgumentsError Attempt AttemptError Backoff BoundClient Call CallAlreadyEnqueued CallError CallNeverEnqueued
CallNext Changed Client ClientClosed ConfigurationError ConflictingOptions EnqueueMiddleware EnqueueNext Exponential Fail
Finding Fixed Health Inserted Job JobCancelled JobControl JobError JobFailed JobHandle JobNotFound JobState JobType
LateAttempt LeaseFacts
LeaseLost Linear MetricsServer Middleware NewJob NotCommitted NotInTransaction NotSupported OnceResult OutsideTransaction Page
Priority
Reason ReasonCode RegistrationError Registry Reschedule Resource ResultError ResultTimeout Retry RetryIn RowRejected Stats
Steps StoreContended StoreError StoreIncompatible StoreUnavailable Transaction TransactionError Why Worker current_attempt
Verdict done serve_metrics AlreadyFinished Blocker BlockerCycle BlockerNotFound
BlockerReference Completed Failed OutputNotReady WrongJobType Completion CompletionMiddleware CompletionNotDone
DuplicateJob EventStream JobFilter ListOrder Unique Changes Cancel CancelReason Cancellation AttemptLog
Delivery DeliveryPage DeliveryState
JobAttempt Phase PhaseState Progress
PhaseError PhaseNotDeclared PhaseRepeated PhaseResultError PhasesOverlap NotInProcess ProcessFailed
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
