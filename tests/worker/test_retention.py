"""Old jobs are removed by one process at a time, after whoever wants to see them; what fails there costs nobody anything."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, ConfigurationError, Fail, Job, JobNotFound, Registry, StoreUnavailable, Worker, current_attempt
from aioqueue.events import Event, JobDeleted
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._listing import IdPage
from aioqueue.worker import _retention

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from uuid import UUID

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True

OFTEN = 0.02
"""Seconds between looks."""


class Purged:
    """A callback that keeps what it's given."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.refuses: set[Any] = set()
        self.called = asyncio.Event()

    async def __call__(self, jobs: Sequence[Job]) -> None:
        self.called.set()
        if refused := self.refuses & {job.output for job in jobs}:
            raise LookupError(f"{refused} can't be kept elsewhere")
        self.outputs += [job.output for job in jobs]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.outputs) < count:
                self.called.clear()
                await self.called.wait()


async def until_gone(client: Client, *ids: UUID) -> None:
    async with asyncio.timeout(60):
        while any(job is not None for job in await client.store.fetch(ids)):
            await asyncio.sleep(OFTEN)


async def test_what_is_old_enough_is_removed_with_its_chain_and_the_others_stay(client: Client, registry: Registry) -> None:
    purged = Purged()
    deleted: list[UUID] = []

    def observe(event: Event) -> None:
        if isinstance(event, JobDeleted):
            deleted.append(event.job_id)

    @registry.job(keep=0)
    async def forgotten(number: int) -> int:
        return number

    @registry.job
    async def usual() -> None:
        current_attempt().progress(50)

    @registry.job(keep=3600)
    async def kept() -> None: ...

    @registry.job
    async def fails() -> None:
        raise Fail("no")

    gone = await client.enqueue_many([forgotten(1), forgotten(2)])
    old, stays, failed = await client.enqueue(usual()), await client.enqueue(kept()), await client.enqueue(fails())
    await Worker(client, registry).run_once()
    with client.observe(observe):
        async with Worker(client, registry, retention_interval=OFTEN, retention_completed=0.001, on_purge=purged):
            await until_gone(client, old.id, *(each.id for each in gone))
    assert {1, 2, None} == set(purged.outputs)
    assert {old.id, *(each.id for each in gone)} == set(deleted)
    with pytest.raises(JobNotFound):
        await old.snapshot()
    assert (await stays.snapshot()).state.value == "completed"
    assert (await failed.snapshot()).state.value == "failed"


async def test_while_a_process_with_a_callback_lives_the_others_remove_nothing(client: Client, registry: Registry) -> None:
    purged = Purged()

    @registry.job(keep=0)
    async def work(number: int) -> int:
        return number

    first = await client.enqueue(work(0))
    async with Worker(client, registry, name="calls", retention_interval=OFTEN, on_purge=purged):
        await until_gone(client, first.id)  # it has the duty
        async with Worker(client, registry, name="plain", retention_interval=OFTEN):
            handles = await client.enqueue_many([work(number) for number in range(1, 30)])
            await purged.until(30)
            await until_gone(client, *(each.id for each in handles))
    assert set(purged.outputs) == set(range(30))


class Scripted(MemoryStore):
    """Finds chains, and removes them, as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.ages: Mapping[StoredState, float] = {}
        self.script: list[Exception | asyncio.Event] = []
        self.looks = 0
        self.changed = asyncio.Event()
        self.limits: list[int] = []
        self.durations: list[float] = []
        self.cursors: list[str | None] = []

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        self.durations.append(duration)
        return await super().take_duty(name, holder, duration)

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None = None) -> IdPage:
        self.ages = ages
        self.limits.append(limit)
        self.looks += 1
        self.changed.set()
        if self.script:
            answer = self.script.pop(0)
            if isinstance(answer, Exception):
                raise answer
            await answer.wait()
        return await super().find_old(ages, limit, cursor)

    async def until(self, looks: int) -> None:
        async with asyncio.timeout(60):
            while self.looks < looks:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def store() -> Scripted:
    return Scripted()


@pytest.fixture
async def scripted(store: Scripted) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


def of_nothing() -> Registry:
    registry = Registry()

    @registry.job(keep=0)
    async def work(number: int) -> int:
        return number

    return registry


@pytest.mark.parametrize(("completed", "failed"), [(None, None), (0, 5)])
async def test_how_long_jobs_are_kept(store: Scripted, scripted: Client, completed: float | None, failed: float | None) -> None:
    worker = Worker(scripted, of_nothing(), retention_interval=OFTEN, retention_completed=completed, retention_failed=failed)
    async with worker:
        await store.until(1)
    day, given = 86_400.0, failed
    expected = {6: given or 30 * day, 7: given or 30 * day} | ({} if completed == 0 else {4: 7 * day, 5: 7 * day})
    assert store.ages == expected


async def test_an_interval_of_zero_is_never(store: Scripted, scripted: Client) -> None:
    async with Worker(scripted, of_nothing(), retention_interval=0):
        await asyncio.sleep(0)
    await Worker(scripted, of_nothing(), retention_interval=OFTEN).run_once()
    assert not store.looks


async def test_one_that_can_not_be_handed_on_stays_alone(scripted: Client, caplog: pytest.LogCaptureFixture) -> None:
    registry, purged = of_nothing(), Purged()
    purged.refuses = {7}
    work = registry.types["work"]
    handles = await scripted.enqueue_many([work(number) for number in range(20)])
    await Worker(scripted, registry).run_once()
    async with Worker(scripted, registry, retention_interval=OFTEN, on_purge=purged) as worker:
        await until_gone(scripted, *(each.id for number, each in enumerate(handles) if number != 7))
        assert worker.health().ready
    assert (await handles[7].snapshot()).output == 7
    assert sum("isn't removed: LookupError" in record.message for record in caplog.records) == 1


async def test_what_fails_or_hangs_is_tried_again_with_smaller_portions(
    store: Scripted, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_retention, "_LONGEST_SECONDS", 0.02)
    store.script = [StoreUnavailable("away"), asyncio.Event(), RuntimeError("broken")]
    async with Worker(scripted, of_nothing(), retention_interval=OFTEN) as worker:
        await store.until(2)
        assert "retention" in worker.health().troubles
        assert worker.health().ready
        await store.until(5)
        assert "retention" not in worker.health().troubles
    assert store.limits[:4] == [1000, 500, 250, 125]


async def test_a_callback_that_hangs_or_is_interrupted_keeps_what_it_was_given(
    scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_retention, "_LONGEST_CALLBACK_SECONDS", 0.02)
    registry, twice = of_nothing(), asyncio.Event()
    calls: list[int] = []

    async def hangs(jobs: Sequence[Job]) -> None:
        calls.append(len(jobs))
        if len(calls) == 2:
            twice.set()
        await asyncio.Event().wait()

    handle = await scripted.enqueue(registry.types["work"](1))
    await Worker(scripted, registry).run_once()
    async with Worker(scripted, registry, retention_interval=OFTEN, on_purge=hangs):
        await asyncio.wait_for(twice.wait(), 60)
    assert (await handle.snapshot()).output == 1


async def test_who_cancels_all_tasks_stops_it_for_an_interval(store: Scripted, scripted: Client) -> None:
    async with Worker(scripted, of_nothing(), retention_interval=OFTEN):
        await store.until(1)
        for task in asyncio.all_tasks():
            if "retention" in task.get_name():
                task.cancel()
        await asyncio.sleep(0)
        await store.until(store.looks + 2)


async def test_a_plain_callback_runs_in_a_thread_where_it_blocks_nobody(
    store: Scripted, scripted: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_retention, "_LONGEST_CALLBACK_SECONDS", 0.02)
    registry, called, released = of_nothing(), threading.Event(), threading.Event()
    calls: list[int] = []

    def blocks(jobs: Sequence[Job]) -> None:
        calls.append(threading.get_ident())
        called.set()
        released.wait(60)

    handle = await scripted.enqueue(registry.types["work"](1))
    await Worker(scripted, registry).run_once()
    async with Worker(scripted, registry, retention_interval=OFTEN, on_purge=blocks) as worker:
        await asyncio.to_thread(called.wait, 60)
        await store.until(store.looks + 3)
        assert (await handle.snapshot()).output == 1
        assert len(calls) == 1  # it isn't called again while it hasn't returned
        assert calls[0] != threading.get_ident()
        assert worker.health().ready
        released.set()
        await until_gone(scripted, handle.id)


async def test_what_a_plain_callback_returns_is_awaited_and_what_it_raises_ends_nothing(scripted: Client) -> None:
    registry, purged = of_nothing(), Purged()
    errors: list[BaseException] = [SystemExit(1), StopIteration()]

    def calls(jobs: Sequence[Job]) -> Any:
        if errors:
            raise errors.pop()
        return purged(jobs)

    handle = await scripted.enqueue(registry.types["work"](1))
    await Worker(scripted, registry).run_once()
    async with Worker(scripted, registry, retention_interval=OFTEN, on_purge=calls):
        await until_gone(scripted, handle.id)
    assert purged.outputs == [1]
    with pytest.raises(ConfigurationError, match="on_purge is a function"):
        Worker(scripted, registry, on_purge=5)


async def test_the_duty_outlasts_the_callback(store: Scripted, scripted: Client) -> None:
    registry, purged = of_nothing(), Purged()
    handle = await scripted.enqueue(registry.types["work"](1))
    await Worker(scripted, registry).run_once()
    async with Worker(scripted, registry, retention_interval=OFTEN, on_purge=purged):
        await until_gone(scripted, handle.id)
    assert min(store.durations) > _retention._LONGEST_CALLBACK_SECONDS


class Passing(Scripted):
    """Has three pages of chains that are passed by, before the last one."""

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None = None) -> IdPage:
        self.cursors.append(cursor)
        page = await super().find_old(ages, limit)
        place = int(cursor or 0)
        return page if place == 3 else IdPage((), str(place + 1))


async def test_what_is_passed_by_is_not_looked_at_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds go on where the one before has come to; now and then one begins anew."""
    registry, store = of_nothing(), Passing()
    work = registry.types["work"]
    async with Client(store) as client, Worker(client, registry, retention_interval=OFTEN):
        await store.until(20)
        assert store.cursors[:20] == [None, "1", "2"] + 17 * ["3"]
        handle = await client.enqueue(work(1))
        await Worker(client, registry, retention_interval=0).run_once()
        await until_gone(client, handle.id)
        looks = store.looks
        monkeypatch.setattr(_retention, "_WHOLE_SECONDS", 0.0)
        await store.until(looks + 5)
        assert None in store.cursors[looks:]
