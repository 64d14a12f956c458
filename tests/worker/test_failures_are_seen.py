"""Failures are seen without any set-up: their level, what is next, and the exception for those who report errors."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Fail, Fixed, JobState, Registry, Retry, Worker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="aioqueue")
    return caplog


def ends(records: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in records.records if "outcome" in record.__dict__]


async def test_a_retry_is_a_warning_and_the_last_failure_an_error_with_the_exception(client: Client, records) -> None:
    registry = Registry()
    raised: list[ValueError] = []

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def work() -> None:
        raised.append(ValueError("no\x1b[2Jscreen"))
        raise raised[-1]

    await client.enqueue(work())
    await Worker(client, registry).run_once()
    retry, failure = ends(records)
    assert retry.levelno == logging.WARNING
    assert "attempt 1 failed after 0." in retry.getMessage()
    assert "and the next try is in 0 s: ValueError: no" in retry.getMessage()
    assert (retry.exc_info, retry.__dict__["next_try_in"]) == (None, 0.0)
    assert failure.levelno == logging.ERROR
    assert "attempt 2 failed after 0." in failure.getMessage()
    assert "and there is no further try: ValueError: no" in failure.getMessage()
    assert failure.exc_info is not None
    assert failure.exc_info[1] is raised[1]
    assert failure.__dict__["next_try_in"] is None
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.handle(failure)
    assert "raise raised[-1]" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


async def test_waits_and_durations_arent_confused(client: Client, records) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(3600), jitter=0))
    async def work() -> None:
        raise ValueError("no")

    await client.enqueue(work())
    await Worker(client, registry).run_once()
    (retry,) = ends(records)
    assert "the next try is in 3600 s" in retry.getMessage()
    assert retry.__dict__["duration"] < 60


async def test_fail_and_an_expired_job_say_that_nothing_follows(client: Client, untended: None, records) -> None:
    registry = Registry()

    @registry.job
    async def declines() -> None:
        raise Fail("declined")

    handles = [await client.enqueue(call) for call in (declines(), declines().options(expires=0))]
    await Worker(client, registry).run_once()
    failed, discarded = sorted(ends(records), key=lambda record: -record.levelno)
    assert (failed.levelno, discarded.levelno) == (logging.ERROR, logging.WARNING)
    assert "there is no further try: Fail: declined" in failed.getMessage()
    assert failed.exc_info is not None
    assert "it is discarded: Expired: " in discarded.getMessage()
    assert {record.__dict__["job_id"] for record in (failed, discarded)} == {str(handle.id) for handle in handles}


async def test_texts_that_may_quote_values_stay_in_the_database(client: Client, records) -> None:
    before, after = Registry(), Registry()

    @before.job(name="work")
    async def old(token: str) -> None: ...

    @after.job(name="work")
    async def new(token: int) -> None: ...

    handle = await client.enqueue(old(SECRET))
    await Worker(client, after).run_once()
    assert (await handle.snapshot()).state is JobState.FAILED
    (failure,) = ends(records)
    assert failure.levelno == logging.ERROR
    assert f"ArgumentsError at token; `aioqueue jobs show {handle.id}` shows it" in failure.getMessage()
    assert failure.exc_info is None
    assert SECRET not in failure.getMessage()


async def test_a_log_handler_that_raises_costs_no_outcome(client: Client) -> None:
    registry = Registry()

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the log's disk is full")

    @registry.job(retry=Retry(max_attempts=1))
    async def work(fails: bool) -> int:
        if fails:
            raise ValueError("no")
        return 1

    logger = logging.getLogger("aioqueue.worker")
    handles = [await client.enqueue(work(fails)) for fails in (False, True)]
    handler, level = Broken(logging.WARNING), logger.level
    logger.addHandler(handler)
    try:
        async with Worker(client, registry):
            assert await handles[0].result(timeout=60) == 1
            while (await handles[1].snapshot()).state is not JobState.FAILED:
                pass
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_in_a_script_without_any_logging_set_up_a_failure_appears(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        """
import asyncio
from aioqueue import Client, JobFailed, Registry, Retry, Worker

registry = Registry()


@registry.job(retry=Retry(max_attempts=1))
async def divide(by: int) -> float:
    return 1 / by


async def main() -> None:
    async with Client("sqlite:///jobs.db") as client, Worker(client, registry):
        try:
            await (await client.enqueue(divide(0))).result(timeout=30)
        except JobFailed:
            pass


asyncio.run(main())
"""
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "attempt 1 failed" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "return 1 / by" in done.stderr
