"""What no claim leads to is tended to now and then, at once where something is known to be left, beside everything else."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry, StoreUnavailable, Worker
from aioqueue.abc import Tended
from aioqueue.telemetry._counters import LEDGER
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._job import SettleResult
from aioqueue.worker import _tending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioqueue.vocabulary._job import Settlement

pytestmark = pytest.mark.anyio


class Scripted(MemoryStore):
    """Answers `tend` as a test says.

    Attributes:
        script: What the next calls do: a `Tended` is returned, an error is raised, an event is waited for.
        tended: How many calls have begun.
        called: Set when one begins.
        more: Whether settlements say that there is more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Tended | Exception | asyncio.Event] = []
        self.tended = 0
        self.called = asyncio.Event()
        self.more = False

    async def tend(self, limit: int) -> Tended:
        assert limit > 0
        self.tended += 1
        self.called.set()
        what = self.script.pop(0) if self.script else Tended()
        if isinstance(what, Tended):
            return what
        if isinstance(what, asyncio.Event):
            await what.wait()
            return Tended()
        raise what

    async def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
    ) -> Sequence[SettleResult]:
        results = await super().settle(settlements, orphaned=orphaned)
        return [SettleResult(more=True) for _ in results] if self.more else results

    async def calls(self, number: int) -> None:
        """Wait until `tend` was called so often."""
        while self.tended < number:
            self.called.clear()
            await asyncio.wait_for(self.called.wait(), 10)


@pytest.fixture
async def store() -> Scripted:
    return Scripted()


@pytest.fixture
async def client(store: Scripted) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.job
    async def add(number: int) -> int:
        return number + 1

    return registry


def often(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(_tending, "EVERY_SECONDS", seconds)


async def test_a_worker_tends_now_and_then(
    client: Client, registry: Registry, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch, 0.02)
    async with Worker(client, registry):
        await store.calls(5)


async def test_it_goes_on_after_somebody_has_cancelled_all_tasks(
    client: Client, registry: Registry, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch, 0.02)
    async with Worker(client, registry):
        await store.calls(1)
        (tending,) = (task for task in asyncio.all_tasks() if task.get_name() == "aioqueue tending")
        tending.cancel()
        await asyncio.wait([tending], timeout=10)
        await store.calls(store.tended + 2)


async def test_it_goes_on_while_there_is_more_and_counts_what_was_done(
    client: Client, registry: Registry, store: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    before = LEDGER.total()
    store.script = [
        Tended(resolved=7, more=True),
        Tended(resolved=1, failed=2, more=True),
        Tended(expired=3, resumed=4, more=True),
        Tended(resumed=1),
    ]
    with caplog.at_level(logging.DEBUG, "aioqueue.worker"):
        await Worker(client, registry, name="w").run_once()
    assert store.tended == 4
    after = LEDGER.total()
    assert after.dependents_told - before.dependents_told == 8
    assert after.dependents_failed - before.dependents_failed == 2
    assert after.expired_unstarted - before.expired_unstarted == 3
    said = [record for record in caplog.records if getattr(record, "event", "") == "worker.tended"]
    assert [record.levelname for record in said] == ["DEBUG", "WARNING", "WARNING", "DEBUG"]
    assert said[1].getMessage() == (
        "worker w: ends of chains were told 1 times; 2 jobs have failed since what they waited for didn't complete, and 0 were "
        "discarded since they weren't started in time; 0 came back after a pause"
    )


async def test_a_settlement_that_leaves_something_has_it_tended_to_at_once(
    client: Client, registry: Registry, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch, 3600.0)
    async with Worker(client, registry):
        handle = await client.enqueue(registry.types["add"](1))
        assert await handle.result(timeout=10) == 2
        assert store.tended == 0
        store.more = True
        await client.enqueue(registry.types["add"](2))
        await store.calls(1)


async def test_one_that_fails_stops_nothing_else_shows_and_is_tried_again(
    client: Client, registry: Registry, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch, 0.01)
    gate = asyncio.Event()
    store.script = [RuntimeError("a bug"), StoreUnavailable("away"), gate]
    monkeypatch.setattr(_tending.Backoff, "next", lambda _: 0.01)
    async with Worker(client, registry) as worker:
        await store.calls(2)
        await store.calls(3)
        health = worker.health()
        assert health.troubles["tend"] == "StoreUnavailable: away"
        assert (health.ready, health.ok) == (True, False)
        handle = await client.enqueue(registry.types["add"](1))
        assert await handle.result(timeout=10) == 2
        gate.set()
        await store.calls(4)
        assert "tend" not in worker.health().troubles


async def test_one_that_hangs_stops_nothing_else_and_is_given_up(
    client: Client, registry: Registry, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch, 0.01)
    monkeypatch.setattr(_tending, "_LONGEST_SECONDS", 0.05)
    monkeypatch.setattr(_tending.Backoff, "next", lambda _: 0.01)
    again = asyncio.Event()
    store.script = [asyncio.Event(), again]
    async with Worker(client, registry) as worker:
        await store.calls(1)
        handle = await client.enqueue(registry.types["add"](1))
        assert await handle.result(timeout=10) == 2
        await store.calls(2)
        assert "takes longer than" in worker.health().troubles["tend"]
        again.set()


async def test_a_stop_interrupts_it(client: Client, registry: Registry, store: Scripted) -> None:
    store.script = [asyncio.Event()]
    worker = Worker(client, registry, grace=0)
    running = asyncio.create_task(worker.run_once())
    await store.calls(1)
    worker.stop()
    await asyncio.wait_for(running, 5)


async def test_running_what_is_due_sees_to_what_is_left_and_ends_also_if_that_fails(
    client: Client, registry: Registry, store: Scripted
) -> None:
    store.script = [RuntimeError("a bug")]
    handle = await client.enqueue(registry.types["add"](1))
    result = await Worker(client, registry).run_once()
    assert (result.completed, store.tended) == (1, 1)
    assert await handle.result(timeout=1) == 2


async def test_what_it_cannot_do_now_is_not_tried_without_a_pause(
    client: Client, registry: Registry, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    pause = _tending.Tending._pause

    async def noted(self: _tending.Tending, seconds: float) -> None:
        waits.append(seconds)
        await pause(self, 0.0 if len(waits) > 1 else seconds)

    monkeypatch.setattr(_tending.Tending, "_pause", noted)
    store.script = [Tended(more=True)] * 3
    await Worker(client, registry).run_once()
    assert store.tended >= 4
    assert [0.02 <= wait <= 0.2 for wait in waits[1:4]] == [True] * 3
