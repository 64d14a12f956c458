"""The order in which a worker stops, and that jobs can be cancelled meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

from aioqueue import Client, Registry, Worker, current_attempt
from aioqueue.testing import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


pytestmark = pytest.mark.anyio

ON_EACH_STORE = True

T = TypeVar("T")


class Recorded(MemoryStore):
    """Remembers what was asked of it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.verbs: list[str] = []

    async def perform(self, verb: str, work: Callable[[], T]) -> T:
        self.verbs.append(verb)
        return await super().perform(verb, work)


async def test_it_claims_nothing_waits_interrupts_writes_and_ends_its_lease_last(registry: Registry) -> None:
    store, began, goes_on = Recorded(), asyncio.Barrier(3), asyncio.Event()
    closed: list[int] = []

    @registry.resource
    async def resource() -> AsyncIterator[int]:
        yield 1
        closed.append(len(store.verbs))

    @registry.job(phases=("wait",))
    async def finishes() -> str:
        await resource.get()
        attempt = current_attempt()
        await began.wait()
        await goes_on.wait()
        await attempt.phase("wait", nothing)
        attempt.progress(90, "nearly")
        return "done"

    @registry.job
    async def hangs() -> None:
        await began.wait()
        current_attempt().progress(50, "so far")
        await asyncio.Event().wait()

    async with Client(store) as client:
        first, second = await client.enqueue_many([finishes(), hangs()])
        async with Worker(client, registry, grace=0.05) as worker:
            await asyncio.wait_for(began.wait(), 60)
            worker.stop()
            late = await client.enqueue(hangs())
            asked = len(store.verbs)
            goes_on.set()
        verbs, before = store.verbs[asked:], store.verbs[:asked]
        assert before.count("claim") >= 1
        assert verbs.count("claim") <= 1  # the one that was under way
        assert (await late.snapshot()).attempt == 0
        assert await first.result() == "done"
        job = await second.snapshot()
        assert (job.state.value, job.attempt) == ("ready", 0)
        found = [await handle.progress() for handle in (first, second)]
        assert [each and (each.percent, each.message) for each in found] == [(90, "nearly"), (50, "so far")]
        assert [step for step in dict.fromkeys(verbs) if step in ("write_phases", "settle", "release")] == [
            "write_phases",
            "settle",
            "release",
        ]
        last = {verb: place for place, verb in enumerate(verbs)}
        assert last["write_progress"] < last["release"]
        assert last["settle"] < last["release"]
        assert not await client.leases()
        assert len(closed) == 1


async def nothing() -> None: ...


async def test_a_job_can_be_cancelled_while_its_worker_stops(client: Client, registry: Registry) -> None:
    began = asyncio.Event()

    @registry.job
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    handle = await client.enqueue(work())
    async with Worker(client, registry, grace=600) as worker:
        await asyncio.wait_for(began.wait(), 60)
        worker.stop()
        await client.cancel(handle, reason="no more")
    job = await handle.snapshot()
    assert (job.state.value, job.errors[-1].message) == ("cancelled", "no more")
