"""What is cleaned up at the end of a client or worker, whatever is cancelled meanwhile. On both stores."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aioqueue import Client, JobState
from aioqueue.worker import Worker
from tests.worker.faults import Jobs, ended, until

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


@pytest.mark.parametrize("steps", range(6))
def test_the_end_of_the_event_loop_in_any_step_of_a_stop_gives_everything_back(url: str, steps: int) -> None:
    """Every task is cancelled then, those that clean up too, perhaps before their first step."""
    threads: list[threading.Thread] = []
    owners: list[asyncio.Task[None]] = []

    async def main() -> None:
        jobs, begun = Jobs(), asyncio.Event()
        workers: list[Worker] = []

        async def own() -> None:
            async with Client(url) as client:
                workers.append(worker := Worker(client, jobs.registry, name="ended early", grace=600, lease=600))
                running = asyncio.create_task(worker.run())
                await client.enqueue(jobs.held())
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.wait([running])

        owners.append(asyncio.create_task(own()))
        await begun.wait()
        await jobs.started()
        threads.extend(each for each in threading.enumerate() if "ended early" in each.name)
        workers[0].stop(force=True)
        for _ in range(steps):
            await asyncio.sleep(0)

    async def look() -> None:
        async with Client(url) as client:
            (job,) = (await client.list_jobs()).jobs
            assert (job.state, job.attempt) == (JobState.READY, 0)
            assert (await client.stats()).workers == ()

    asyncio.run(main())
    asyncio.run(look())
    assert threads
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("steps", range(1, 4))
async def test_a_client_is_closed_though_its_closing_was_cancelled(url: str, steps: int) -> None:
    """As the event loop's end does, also before its first step. What is left open on PostgreSQL is found by the fixture."""
    before = set(threading.enumerate())
    client = await Client(url).open()
    closing = asyncio.create_task(client.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    cancelled = [task for task in asyncio.all_tasks() if task.get_name() == "aioqueue close"]
    assert cancelled
    for task in cancelled:
        task.cancel()
    await asyncio.wait([closing])
    await until(lambda: not set(threading.enumerate()) - before)


@pytest.mark.parametrize("steps", range(3))
async def test_a_worker_ends_its_lease_though_its_own_end_was_cancelled(client: Client, jobs: Jobs, steps: int) -> None:
    """As the event loop's end does, also before its first step."""
    handle = await client.enqueue(jobs.held())
    worker = Worker(client, jobs.registry, grace=600, lease=600)
    task = asyncio.create_task(worker.run())
    await jobs.started()
    worker.stop()

    def ending() -> list[asyncio.Task[Any]]:
        return [each for each in asyncio.all_tasks() if each.get_name() == "aioqueue worker's end"]

    while not ending():
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    for each in ending():
        each.cancel()
    await ended(task)
    job = await handle.snapshot()
    assert (job.state, job.attempt) == (JobState.READY, 0)
    assert (await client.stats()).workers == ()
