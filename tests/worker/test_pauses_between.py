"""A worker whose slots rest after each job: it claims no more than the slots that have, and a stop doesn't wait for them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, JobState, Worker
from aioqueue.testing import MemoryStore
from tests.worker.faults import Jobs, ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

LONG = 600.0


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(MemoryStore()) as client:
        yield client


async def states(handles: list[JobHandle[int]]) -> list[JobState]:
    return sorted([(await handle.snapshot()).state for handle in handles])


async def test_it_claims_for_slots_that_have_rested_only(client: Client, jobs: Jobs) -> None:
    handles = await client.enqueue_many([jobs.quick() for _ in range(5)])
    async with Worker(client, jobs.registry, concurrency=2, pause_between=LONG, poll_interval=0.01):
        async with asyncio.timeout(60):
            while await states(handles) != [JobState.COMPLETED] * 2 + [JobState.READY] * 3:
                await asyncio.sleep(0.005)
        late = await client.enqueue(jobs.quick().options(priority=1))  # which wakes it
        for _ in range(50):
            await asyncio.sleep(0)
        assert (await late.snapshot()).state is JobState.READY
    assert await states(handles) == [JobState.COMPLETED] * 2 + [JobState.READY] * 3


async def test_slots_that_run_are_no_fewer_for_those_that_rest(client: Client, jobs: Jobs) -> None:
    await client.enqueue(jobs.held())
    quick = await client.enqueue_many([jobs.quick() for _ in range(3)])
    async with Worker(client, jobs.registry, concurrency=3, pause_between=LONG):
        async with asyncio.timeout(60):
            while await states(quick) != [JobState.COMPLETED] * 2 + [JobState.READY]:
                await asyncio.sleep(0.005)
        assert await jobs.started() == 1
        jobs.gate.set()


async def test_the_next_job_begins_when_the_slot_has_rested(client: Client, jobs: Jobs) -> None:
    """However rarely it polls, and whatever else wakes it."""
    began = time.monotonic()
    handles = await client.enqueue_many([jobs.quick() for _ in range(3)])
    async with Worker(client, jobs.registry, concurrency=1, pause_between=0.2, poll_interval=LONG):
        for handle in handles:
            await handle.result(timeout=60)
        assert 0.4 <= time.monotonic() - began < 30


async def test_running_once_ends_when_all_has_run(client: Client, jobs: Jobs) -> None:
    """That every slot rests doesn't mean that nothing is due."""
    await client.enqueue_many([jobs.quick() for _ in range(4)])
    worker = Worker(client, jobs.registry, concurrency=2, pause_between=0.1, poll_interval=LONG)
    async with asyncio.timeout(60):
        assert (await worker.run_once()).completed == 4


async def test_a_stop_waits_for_no_slot_that_rests(client: Client, jobs: Jobs) -> None:
    handles = await client.enqueue_many([jobs.quick() for _ in range(2)])
    worker = Worker(client, jobs.registry, concurrency=1, pause_between=LONG)
    task = asyncio.create_task(worker.run())
    await handles[0].result(timeout=60)
    worker.stop()
    await ended(task, within=10)
    assert (await handles[1].snapshot()).state is JobState.READY
