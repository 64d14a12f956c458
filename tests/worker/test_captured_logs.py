"""What handlers log is kept with their jobs, where the type says so; errors say who has run the attempt, and since when."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from aioqueue import Client, Fixed, Registry, Retry, Worker, current_attempt
from aioqueue.worker import _captured
from aioqueue.worker._captured import CapturedLogs
from tests.worker.completing import run

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True

logger = logging.getLogger("tests.captured")


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tests.captured")


async def kept(client: Client, job_id: Any) -> list[list[tuple[str, str]]]:
    return [[(each["level"], each["message"]) for each in log.lines] for log in await client.store.fetch_logs(job_id)]


async def test_each_attempt_keeps_its_own_and_other_types_keep_nothing(client: Client, registry: Registry) -> None:
    @registry.job(capture_logs=True, retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def work(name: str) -> None:
        logger.info("%s begins attempt %d", name, current_attempt().number)
        logger.debug("not let through")
        await asyncio.gather(asyncio.to_thread(logger.warning, "in a thread"))
        if current_attempt().number == 1:
            raise ValueError("no\x00")

    @registry.job
    async def other() -> None:
        logger.info("of nobody")

    @registry.job(capture_logs=True)
    def plain() -> None:
        logger.info("plain %s", "text")
        try:
            raise LookupError("lost")
        except LookupError:
            logger.exception("it broke")

    before = logging.getLogRecordFactory()
    first, second = await client.enqueue(work("a")), await client.enqueue(work("b"))
    third, fourth = await client.enqueue(other()), await client.enqueue(plain())
    await Worker(client, registry, name="w").run_once()
    assert logging.getLogRecordFactory() is before
    for handle, name in ((first, "a"), (second, "b")):
        assert await kept(client, handle.id) == [
            [("INFO", f"{name} begins attempt {number}"), ("WARNING", "in a thread")] for number in (1, 2)
        ]
        (error,) = (job := await handle.snapshot()).errors
        assert (error.worker, error.attempt, job.worker) == ("w", 1, "w")
        assert error.started_at is not None
        assert error.started_at <= error.at
    assert await kept(client, third.id) == []
    (log,) = await client.store.fetch_logs(fourth.id)
    assert log.lines[0]["message"] == "plain text"
    assert "LookupError: lost" in log.lines[1]["exception"]
    assert log.lines[1]["logger"] == "tests.captured"


async def test_completing_jobs_keep_what_was_logged_before(client: Client, registry: Registry) -> None:
    @registry.job(capture_logs=True)
    async def work() -> int:
        logger.info("before")
        async with current_attempt().completion() as tx:
            return tx.done(1)

    handle = await run(client, registry, work())
    assert await kept(client, handle.id) == [[("INFO", "before")]]


@pytest.mark.without_postgres
async def test_what_is_logged_after_the_end_is_not_kept(client: Client, registry: Registry) -> None:
    goes_on, over = threading.Event(), threading.Event()

    def later() -> None:
        goes_on.wait(60)
        logger.info("too late")
        over.set()

    @registry.job(capture_logs=True)
    async def work() -> None:
        logger.info("in time")
        asyncio.get_running_loop().run_in_executor(None, __import__("contextvars").copy_context().run, later)

    handle = await run(client, registry, work())
    goes_on.set()
    await asyncio.to_thread(over.wait, 60)
    assert await kept(client, handle.id) == [[("INFO", "in time")]]


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("a", logging.INFO, __file__, 1, message, arguments, None)


def test_the_newest_lines_are_kept_and_a_line_says_how_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_captured, "_MOST_LINES", 3)
    logs = CapturedLogs()
    assert logs.encode() is None
    for number in range(5):
        logs.add(record(f"line {number}"))
    text = logs.encode()
    assert text is not None
    assert text.startswith(b'[{"left_out":2},{"time":')
    assert text.count(b'"message":"line') == 3
    odd = CapturedLogs()
    odd.add(record("%d\x00", "text", "too many"))
    assert b"%d\\\\x00 <its arguments can't be put in: TypeError>" in (odd.encode() or b"")
    logs.close()
    logs.add(record("more"))
    assert logs.encode() == text
    monkeypatch.setattr(_captured, "_MOST_BYTES", 100)
    small = CapturedLogs()
    small.add(record("x" * 1_000))
    assert small.encode() is None  # nothing that fits


def test_who_logs_in_between_is_not_waited_for_by_itself() -> None:
    """As a signal's handler does, or what is called when garbage is collected: in the thread that is just keeping a line."""
    captured, record = CapturedLogs(), logging.LogRecord("a", logging.INFO, "", 0, "message", (), None)

    def add() -> None:
        with captured._lock:
            captured.add(record)

    thread = threading.Thread(target=add, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert captured.encode()
