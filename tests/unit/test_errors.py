"""Errors travel: through copy, pickle and process pools, with their attributes."""

from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Any

import pytest

from aioqueue import errors
from aioqueue.vocabulary import _job_control
from aioqueue.vocabulary._identifiers import new_id

SAMPLES: dict[str, Exception] = {
    "ArgumentsError": errors.ArgumentsError("wrong", path="a.b[1]"),
    "DuplicateJob": errors.DuplicateJob("held", job_id=new_id(), key="k", chain_id=new_id()),
    "Cancel": _job_control.Cancel("obsolete", outcome="no"),
    "DryRunRefused": errors.DryRunRefused("no", type="mail"),
    "Fail": _job_control.Fail("declined", outcome="no"),
    "LeaseLost": errors.LeaseLost("gone", reason="not_found"),
    "ProcessFailed": errors.ProcessFailed("crashed", exit_code=-9),
    "NotSupported": errors.NotSupported("no", ability="statement"),
    **{
        name: getattr(errors, name)("no", phase="upload")
        for name in ("PhaseError", "PhaseNotDeclared", "PhaseRepeated", "PhaseResultError", "PhasesOverlap")
    },
    **{name: getattr(errors, name)("no", name="nightly") for name in ("ScheduleError", "ScheduleNotFound", "ScheduleOwned")},
    "SingletonHeld": errors.SingletonHeld("held", name="reports", worker="web-1", ends_in=12.5),
    "RetryIn": _job_control.RetryIn(timedelta(seconds=3)),
    "Reschedule": _job_control.Reschedule(at=datetime(2030, 1, 2, tzinfo=UTC)),
    **{
        name: getattr(errors, name)("over", job_id=new_id(), job_type="t", last_error="ValueError: x")
        for name in ("JobError", "JobNotFound", "JobFailed", "JobCancelled", "ResultTimeout", "ResultError", "WrongJobType")
    },
    "AlreadyFinished": errors.AlreadyFinished("over", state="failed", job_id=new_id()),
    "BlockerNotFound": errors.BlockerNotFound("nowhere", blocker_id=new_id()),
    "BlockerReference": errors.BlockerReference(
        "needed", dependents=(new_id(),), changed={new_id(): "blocks"}, job_id=new_id()
    ),
}


CLASSES: dict[str, type[Exception]] = {
    name: getattr(module, name) for module in (errors, _job_control) for name in module.__all__
}


def all_errors() -> list[Exception]:
    """One of each class, those that take more than a text from the samples."""
    return [SAMPLES[name] if name in SAMPLES else each("text") for name, each in CLASSES.items()]


def seen(error: BaseException) -> tuple[Any, ...]:
    return type(error), str(error), error.args, error.__dict__


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: type(error).__name__)
def test_an_error_survives_copying_and_pickling_with_its_attributes(error: Exception) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert seen(pickle.loads(pickle.dumps(error, protocol))) == seen(error)
    assert seen(copy.copy(error)) == seen(error)
    assert seen(copy.deepcopy(error)) == seen(error)


def test_a_users_own_subclass_survives_too_with_its_notes() -> None:
    error = Mine("no", code=7)
    error.add_note("seen at noon")
    again = pickle.loads(pickle.dumps(error))
    assert seen(again) == seen(error)
    assert (again.code, again.__notes__) == (7, ["seen at noon"])


class Mine(_job_control.Fail):
    def __init__(self, reason: str, *, code: int) -> None:
        super().__init__(reason)
        self.code = code


def put_off() -> None:
    raise _job_control.Reschedule(delay=5)


def test_a_control_exception_comes_out_of_a_process_pool_and_leaves_it_whole() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(_job_control.Reschedule) as caught:
            pool.submit(put_off).result(timeout=60)
        assert caught.value.delay == 5
        assert pool.submit(int, "3").result(timeout=60) == 3


def test_every_class_with_named_arguments_has_a_sample() -> None:
    for name, each in CLASSES.items():
        own = inspect.signature(each.__init__)
        if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in own.parameters.values()):
            assert name in SAMPLES
