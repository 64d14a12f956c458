"""Progress: the first value at once, then now and then, the last one always; and what it costs when it can't be stored."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Registry, RowRejected, StoreUnavailable, Worker, current_attempt
from aioqueue.worker import _progress
from tests.worker.completing import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue import JobHandle
    from aioqueue.vocabulary._job import LostReason
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True


class Written:
    """Stands before `Store.write_progress`.

    Attributes:
        batches: What was given to it.
        answers: What the next calls do: an error is raised, an event is waited for.
        changed: Set with each call.
    """

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[ProgressWrite]] = []
        self.answers: list[Exception | asyncio.Event | None] = []
        self.refuses: Callable[[ProgressWrite], bool] = lambda _: False
        self.changed = asyncio.Event()
        works = client.store.write_progress

        async def write_progress(writes: Sequence[ProgressWrite]) -> None:
            self.batches.append(list(writes))
            self.changed.set()
            answer = self.answers.pop(0) if self.answers else None
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, asyncio.Event):
                await answer.wait()
            if any(self.refuses(each) for each in writes):
                raise RowRejected("no")
            await works(writes)

        monkeypatch.setattr(client.store, "write_progress", write_progress)

    @property
    def percents(self) -> list[float]:
        return [each.percent for batch in self.batches for each in batch]


async def shown(handle: JobHandle[Any]) -> tuple[float, str | None] | None:
    progress = await handle.progress()
    return None if progress is None else (progress.percent, progress.message)


async def test_of_many_values_the_first_and_the_last_are_stored(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(client, monkeypatch)

    @registry.job
    async def work() -> None:
        attempt = current_attempt()
        attempt.progress(1)
        await written.changed.wait()
        for percent in range(2, 100):
            attempt.progress(percent)
        attempt.progress(99.5, "nearly")

    handle = await run(client, registry, work())
    assert written.percents == [1, 99.5]
    assert await shown(handle) == (99.5, "nearly")


async def test_values_of_a_thread_are_stored_in_order_and_after_the_end_they_are_ignored(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, late = Written(client, monkeypatch), threading.Event()
    attempts: list[Any] = []

    @registry.job
    def work() -> None:
        attempt = current_attempt()
        attempts.append(attempt)
        for percent in range(10_001):
            attempt.progress(percent / 100)

    handle = await run(client, registry, work())
    attempts[0].progress(3, "too late")
    await asyncio.to_thread(attempts[0].progress, 4, "too late")
    late.set()
    assert await shown(handle) == (100.0, None)
    assert written.percents == sorted(written.percents)
    assert len(written.percents) < 100


async def test_neighbours_share_a_statement_and_one_that_is_refused_costs_only_itself(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written, gate, began = Written(client, monkeypatch), asyncio.Event(), asyncio.Barrier(4)
    written.refuses = lambda each: each.message == "bad"

    @registry.job
    async def work(message: str) -> None:
        attempt = current_attempt()
        attempt.progress(10, message)
        await began.wait()
        attempt.progress(20, message)

    handles = await client.enqueue_many([work(message) for message in ("a", "bad", "b", "c")])
    await Worker(client, registry).run_once()
    gate.set()
    assert [await shown(each) for each in handles] == [(20, "a"), None, (20, "b"), (20, "c")]
    assert max(map(len, written.batches)) == 4
    assert sum("its progress isn't stored" in record.message for record in caplog.records) == 1


async def test_while_the_store_is_away_no_outcome_waits_and_the_newest_value_is_tried_again(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "_FIRST_WAIT_SECONDS", 0.01)
    written, again = Written(client, monkeypatch), asyncio.Event()
    written.answers += [StoreUnavailable("away"), StoreUnavailable("away")]
    troubles: list[bool] = []

    @registry.job
    async def work() -> None:
        attempt = current_attempt()
        attempt.progress(10)
        await written.changed.wait()
        attempt.progress(20)
        while len(written.batches) < 3:
            written.changed.clear()
            await written.changed.wait()
            troubles.append("progress" in worker.health().troubles)
        await again.wait()

    handle = await client.enqueue(work())
    worker = Worker(client, registry)
    async with worker:
        while len(written.batches) < 3:
            await asyncio.sleep(0.01)
        again.set()
        await handle.result(timeout=60)
        assert worker.health().ready
    assert written.percents == [10, 20, 20]
    assert any(troubles)
    assert await shown(handle) == (20, None)


async def test_a_statement_that_hangs_holds_up_no_outcome_for_long(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "_LAST_SECONDS", 0.05)
    written = Written(client, monkeypatch)
    written.answers.append(asyncio.Event())

    @registry.job
    async def work() -> int:
        current_attempt().progress(10)
        return 1

    assert await (await run(client, registry, work())).result() == 1


async def test_before_a_completing_transaction_the_last_value_is_stored(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(client, monkeypatch)

    @registry.job
    async def work() -> str:
        attempt = current_attempt()
        attempt.progress(10)
        attempt.progress(90, "nearly")
        async with attempt.completion() as tx:
            assert written.percents == [90]
            return tx.done("ok")

    handle = await run(client, registry, work())
    assert await shown(handle) == (90, "nearly")


async def test_an_attempt_that_is_interrupted_leaves_its_last_value(client: Client, registry: Registry) -> None:
    began = asyncio.Event()

    @registry.job
    async def work() -> None:
        current_attempt().progress(30, "so far")
        began.set()
        await asyncio.Event().wait()

    handle = await client.enqueue(work())
    async with Worker(client, registry, grace=0):
        await asyncio.wait_for(began.wait(), 60)
    job = await handle.snapshot()
    assert (job.state.value, job.attempt) == ("ready", 0)
    assert await shown(handle) == (30, "so far")


async def test_who_cancels_all_tasks_costs_a_value_and_no_phase(
    client: Client, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, held = Written(client, monkeypatch), asyncio.Event()
    written.answers.append(held)
    works, gates = client.store.write_phases, [asyncio.Event()]

    async def write_phases(writes: Sequence[PhaseWrite]) -> Sequence[LostReason | None]:
        if gates:
            waits.set()
            await gates.pop().wait()
        return await works(writes)

    monkeypatch.setattr(client.store, "write_phases", write_phases)
    waits = asyncio.Event()

    async def two() -> int:
        return 2

    def cancel(*names: str) -> None:
        found = [task for task in asyncio.all_tasks() if task.get_name() in {f"aioqueue {name}" for name in names}]
        assert found
        for task in found:
            task.cancel()

    async def cancel_phases() -> None:
        await waits.wait()
        cancel("writing of phases")

    @registry.job(phases=("two",))
    async def work() -> int:
        attempt = current_attempt()
        attempt.progress(10)
        await written.changed.wait()
        cancel("writing of progress", "statement for progress")
        await asyncio.sleep(0)
        cancelling = asyncio.create_task(cancel_phases())
        result = await attempt.phase("two", two)
        await cancelling
        attempt.progress(99)
        return result

    handle = await run(client, registry, work())
    assert await handle.result(timeout=60) == 2
    assert await shown(handle) == (99, None)
