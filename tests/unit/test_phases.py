"""Phases and progress of an attempt that no worker runs: what a unit test of a handler sees."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from aioqueue import (
    Attempt,
    ConfigurationError,
    PhaseNotDeclared,
    PhaseRepeated,
    PhaseResultError,
    PhasesOverlap,
    Progress,
    RegistrationError,
    Registry,
)
from aioqueue.definitions._resources import ResourceScope
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

registry = Registry()
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@registry.job(phases=("download", "process", "upload"))
async def build() -> None: ...


@registry.job
async def plain() -> None: ...


def attempt_of(job_type: Any = build) -> Attempt:
    job_id = new_id()
    job = ClaimedJob(
        id=job_id, chain_id=job_id, type=job_type.name, payload=b"{}", priority=2, attempt=1, claims=1, lease_id=1,
        created_at=NOW, run_at=NOW, started_at=NOW, max_attempts=10,
    )  # fmt: skip
    return Attempt(job, job_type, worker_id="w", client=None, resources=ResourceScope().child())


async def double(number: int, *, plus: int = 0) -> int:
    return 2 * number + plus


def thread_of(*, main: int) -> bool:
    return threading.get_ident() != main


async def test_a_phase_gives_what_its_function_returns_and_a_plain_one_runs_in_a_thread() -> None:
    attempt = attempt_of()
    assert await attempt.phase("download", double, 20, plus=2) == 42
    assert await attempt.phase("process", thread_of, main=threading.get_ident()) is True
    assert await attempt.phase_results() == {"download": 42, "process": True}


async def test_what_can_not_be_a_phase_says_so() -> None:
    attempt = attempt_of()

    async def nested() -> None:
        await attempt.phase("upload", double, 1)

    async def unstorable() -> float:
        return math.nan

    with pytest.raises(PhaseNotDeclared, match="it has download, process, upload") as not_declared:
        await attempt.phase("unpack", double, 1)
    assert not_declared.value.phase == "unpack"
    with pytest.raises(PhaseNotDeclared, match=r"phases=\("):
        await attempt_of(plain).phase("download", double, 1)
    with pytest.raises(PhasesOverlap):
        await attempt.phase("download", nested)
    with pytest.raises(RegistrationError, match="isn't annotated with what it returns"):
        await attempt.phase("download", lambda: 1)
    with pytest.raises(PhaseResultError, match="can't be stored"):
        await attempt.phase("download", unstorable)
    with pytest.raises(TypeError, match="takes a function"):
        await attempt.phase("download", 1)
    with pytest.raises(TypeError, match=r"plain is a job type: pass its function, plain\.fn"):
        await attempt.phase("download", plain)
    assert await attempt.phase("download", double, 1) == 2  # what has failed may be tried again
    with pytest.raises(PhaseRepeated):
        await attempt.phase("download", double, 1)
    with pytest.raises(ZeroDivisionError):
        await attempt.phase("process", divide, 1)
    assert await attempt.phase_results() == {"download": 2}


def divide(number: int) -> float:
    return number / 0


@pytest.mark.parametrize(
    "phases", ["abc", ("a", "a"), ("",), (1,), ("a\nb",), tuple(map(str, range(101))), {"a", "b"}, None, 5]
)
def test_names_of_phases_are_checked(phases: Any) -> None:
    with pytest.raises(ConfigurationError, match="phase"):
        Registry().job(phases=phases)(double)


@pytest.mark.parametrize(("phase", "percent", "overall"), [("download", 50, 17), ("process", 25, 42), ("upload", 80, 93)])
async def test_progress_within_a_phase_is_of_the_whole_job(phase: str, percent: float, overall: int) -> None:
    attempt = attempt_of()
    seen: list[Progress | None] = []

    async def step() -> None:
        attempt.progress(percent, "half\x1b way")
        seen.append(attempt.last_progress)

    assert attempt.last_progress is None
    await attempt.phase(phase, step)
    (shown,) = seen
    assert shown is not None
    assert (round(shown.percent), shown.message, shown.phase) == (overall, "half\\x1b way", phase)
    assert shown.phases == ("download", "process", "upload")
    assert attempt.last_progress is not None
    assert attempt.last_progress.percent == pytest.approx((build.phases.index(phase) + 1) / 3 * 100)


async def test_progress_is_a_percentage() -> None:
    attempt = attempt_of(plain)
    await asyncio.to_thread(attempt.progress, 12.5)
    assert attempt.last_progress is not None
    assert (attempt.last_progress.percent, attempt.last_progress.phase) == (12.5, None)
    attempt.progress(Decimal("33.5"))
    assert attempt.last_progress.percent == 33.5
    for wrong in (-0.1, 100.1, math.nan, math.inf, "50", None, 10**400, Decimal("sNaN")):
        with pytest.raises(ValueError, match="from 0 to 100"):
            attempt.progress(wrong)
    with pytest.raises(ValueError, match="a message is a text"):
        attempt.progress(50, b"x")
