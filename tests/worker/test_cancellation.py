"""A worker that's cancelled at any await, and an event loop that ends under it."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, JobState, Registry, current_attempt
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


def make_registry() -> Registry:
    registry = Registry()

    @registry.job
    async def quick() -> int:
        await asyncio.sleep(0)
        return current_attempt().number

    return registry


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_cancelled_after_some_turns_of_the_loop(client: Client, turns: int) -> None:
    """Wherever that is, in a claim, a handler, a settle: nothing stays claimed, nothing is counted that didn't end."""
    registry = make_registry()
    handles = await client.enqueue_many([registry.types["quick"]() for _ in range(6)])
    task = asyncio.create_task(Worker(client, registry, concurrency=2).run())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for handle in handles:
        job = await handle.snapshot()
        assert (job.state, job.attempt) in {(JobState.READY, 0), (JobState.COMPLETED, 1)}, job
        assert job.errors == ()
    async with Worker(client, registry):
        assert {await handle.result(timeout=60) for handle in handles} == {1}


def test_the_end_of_the_event_loop_costs_no_attempt(url: str) -> None:
    """A program that returns from `main` while a worker runs in a task."""
    registry = Registry()
    began: list[Callable[[], None]] = []

    @registry.job
    async def endless() -> None:
        began.pop()()
        await asyncio.Event().wait()

    async def forgets() -> None:
        client = await Client(url).open()
        clients.append(weakref.ref(client))
        await client.enqueue(endless())
        event = asyncio.Event()
        began.append(event.set)
        tasks.append(asyncio.create_task(Worker(client, registry).run()))
        await event.wait()

    async def looks() -> None:
        async with Client(url) as client:
            (job,) = (await client.list_jobs()).jobs
            assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ())

    tasks: list[asyncio.Task[None]] = []
    clients: list[weakref.ref[Client]] = []
    asyncio.run(forgets())
    tasks.clear()
    with pytest.warns(ResourceWarning, match="was never closed"):  # the program has forgotten its client too
        _collect(clients[0])
    asyncio.run(looks())


def _collect(forgotten: weakref.ref[Client]) -> None:
    """Wait until it's gone: threads that have just told that they end may still have it in their last frames."""
    deadline = time.monotonic() + 60
    while forgotten() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
        gc.collect()
