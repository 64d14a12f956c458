"""A blocked event loop is reported once, with the job and the code that blocks it, and so is that it turns again.

The blocking is real: handlers block until the record is there.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.worker._health import Troubles
from aioqueue.worker._watchdog import Watchdog
from tests.worker.lease_thread_bench import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60


class Reports(logging.Handler):
    """What was said of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Mapping[str, Any]] = []
        self.blocked = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        fields = record.__dict__
        if str(fields.get("event")).startswith("event_loop."):
            self.all.append({**fields, "text": record.getMessage(), "thread": record.threadName})
            self.blocked.set()

    def block_until_reported(self) -> bool:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self.blocked.is_set():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # it blocks: that is what is tried here
        return True


@pytest.fixture
def reports() -> Iterator[Reports]:
    handler, logger = Reports(), logging.getLogger("aioqueue.worker")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def check(reports: Reports, job_id: object) -> None:
    blocked, again = reports.all  # once each
    assert (blocked["event"], again["event"]) == ("event_loop.blocked", "event_loop.turns_again")
    assert blocked["levelname"] == again["levelname"] == "WARNING"
    for each in (blocked, again):
        assert (each["job_id"], each["job_type"], each["attempt"], each["worker"]) == (str(job_id), "freezes", 1, "w1")
    assert again["duration"] >= blocked["duration"] >= 0.05
    assert "block_until_reported" in blocked["code"]
    assert "block_until_reported" in blocked["text"]
    assert f"freezes {job_id}" in blocked["text"]
    assert not any("\n" in each["text"] for each in reports.all)
    assert blocked["thread"].startswith("aioqueue lease of")  # the event loop's can't say anything


async def test_the_job_and_its_code_are_named_once_and_its_end_is_told(client: Client, reports: Reports) -> None:
    registry, troubles = Registry(), dict[str, str]()

    @registry.job
    async def waits() -> None:
        await asyncio.Event().wait()

    @registry.job
    async def freezes() -> None:
        reports.block_until_reported()
        troubles.update(worker.health().troubles)
        assert not worker.health().ok

    await client.enqueue(waits().options(priority=1))
    handle = await client.enqueue(freezes())
    worker = Worker(client, registry, name="w1", blocked_after=0.05, grace=0)
    async with worker:
        await handle.result(timeout=DEADLINE_SECONDS)
        assert worker.health().troubles == {}
    check(reports, handle.id)
    assert f"freezes {handle.id}" in troubles["event_loop"]


def test_on_uvloop(url: str, reports: Reports) -> None:
    uvloop = pytest.importorskip("uvloop")
    registry = Registry()

    @registry.job
    async def freezes() -> None:
        reports.block_until_reported()

    async def main() -> object:
        async with Client(url) as client:
            handle = await client.enqueue(freezes())
            async with Worker(client, registry, name="w1", blocked_after=0.05):
                await handle.result(timeout=DEADLINE_SECONDS)
            return handle.id

    with asyncio.Runner(loop_factory=importlib.import_module(uvloop.__name__).new_event_loop) as runner:
        check(reports, runner.run(main()))


@pytest.mark.parametrize("where", ["task", "callback"])
async def test_what_a_handler_has_started_may_block_too(client: Client, reports: Reports, where: str) -> None:
    """Where it can't be told whose it is, all that run are named."""
    registry = Registry()

    async def blocks() -> None:
        reports.block_until_reported()

    @registry.job
    async def freezes() -> None:
        if where == "task":
            await asyncio.create_task(blocks())
        else:
            called = asyncio.Event()
            asyncio.get_running_loop().call_soon(lambda: reports.block_until_reported() and called.set())
            await called.wait()

    handle = await client.enqueue(freezes())
    async with Worker(client, registry, blocked_after=0.05):
        await handle.result(timeout=DEADLINE_SECONDS)
    assert f"freezes {handle.id}" in reports.all[0]["text"]
    assert ("job_id" in reports.all[0]) == (where == "task" and sys.version_info >= (3, 12))
    assert [each["event"] for each in reports.all] == ["event_loop.blocked", "event_loop.turns_again"]


@pytest.mark.parametrize("force", [False, True])
async def test_a_stop_during_a_block_ends_the_watching_too(client: Client, reports: Reports, *, force: bool) -> None:
    registry, loop = Registry(), asyncio.get_running_loop()

    @registry.job
    async def freezes() -> None:
        stopper = threading.Thread(target=lambda: loop.call_soon_threadsafe(lambda: worker.stop(force=force)))
        stopper.start()
        stopper.join()
        reports.block_until_reported()

    await client.enqueue(freezes())
    worker = Worker(client, registry, name="w9", blocked_after=0.05)
    await worker.run()
    assert [each["event"] for each in reports.all] == ["event_loop.blocked", "event_loop.turns_again"]
    assert "event_loop" not in worker.health().troubles
    for thread in threading.enumerate():
        if thread.name == "aioqueue lease of w9":  # it may still be closing its connection
            thread.join(30)
            assert not thread.is_alive()


async def test_zero_turns_it_off(monkeypatch, caplog) -> None:
    """What becomes of the leases is said all the same."""
    bench = Bench(monkeypatch, blocked_after=0)
    bench.run(1000)
    assert [record.__dict__["event"] for record in caplog.records] == ["event_loop.stuck"]
    await bench.thread.ended


async def test_the_event_loop_is_asked_once_a_second_and_only_while_something_runs() -> None:
    asked: list[object] = []
    held: dict[Any, Any] = {}
    watchdog = Watchdog("w", 5.0, held, Troubles("w"))
    assert watchdog.look_every == 1.0
    assert watchdog.look(asked.append) == 0
    assert asked == []
    held["claim"] = None
    for _ in range(3):
        watchdog.look(asked.append)
    assert len(asked) == 1  # and not again before it has answered


async def test_what_is_told_is_over_and_counted_from_the_question(monkeypatch, caplog) -> None:
    """The event loop is blocked just after an answer, and asked a look later."""
    bench = Bench(monkeypatch)
    watchdog = bench.watchdog
    for _ in range(8):
        bench.clock.now += watchdog.look_every
        watchdog.look(lambda _: None)
    troubles = dict(watchdog._troubles.current)
    bench.clock.now += 1
    watchdog._answered()
    blocked, again = caplog.records
    assert "has been blocked for over 5.0 s" in blocked.getMessage()
    assert "blocked for over 5.0 s" in troubles["event_loop"]
    assert again.getMessage() == "the event loop turns again, after over 8.0 s"
    assert (blocked.__dict__["duration"], again.__dict__["duration"]) == (5.0, 8.0)  # of 9


async def test_an_answer_while_the_report_is_made_leaves_no_trouble(monkeypatch, caplog) -> None:
    troubles, held = Troubles("w"), dict[Any, Any]()
    watchdog = Watchdog("w", 0.01, held, troubles)
    bench = Bench(monkeypatch, holds=True)
    held.update(bench.thread._held)
    watchdog.look(lambda _: None)
    monkeypatch.setattr(watchdog, "_code", lambda: watchdog._answered() or "nowhere")
    bench.clock.now += 10
    assert watchdog.look(lambda _: None) == 10
    assert troubles.current == {}
    assert caplog.records == []
