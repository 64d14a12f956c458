"""The client is closed under a running worker: it ends with ClientClosed, whatever it was doing, on both stores."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aioqueue import Client, ClientClosed, JobState, Registry, Worker
from tests.worker.faults import Faults, Jobs, ended, until
from tests.worker.insides import parts

pytestmark = pytest.mark.anyio


class Scene:
    """Jobs that say when they began, and wait to be let go."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.began = asyncio.Semaphore(0)
        self.go_on = asyncio.Event()

        @self.registry.job
        async def waits(number: int) -> int:
            self.began.release()
            await self.go_on.wait()
            return number

        self.waits = waits


@pytest.mark.parametrize("lets_go", [True, False])
@pytest.mark.parametrize("busy", [0, 1, 2])
async def test_a_worker_whose_client_is_closed_ends(each_url: str, busy: int, lets_go: bool) -> None:
    """With free slots, and with none; when handlers end, and when they don't."""
    scene = Scene()
    client = await Client(each_url).open()
    worker = Worker(client, scene.registry, concurrency=2, poll_interval=0.05, renew_every=0.1, lease=60, grace=0)
    running = asyncio.create_task(worker.run())
    with anyio.fail_after(60):
        ids = []
        for number in range(busy):
            ids.append((await client.enqueue(scene.waits(number))).id)
            await scene.began.acquire()
        await client.close()
        if lets_go:
            scene.go_on.set()
        with pytest.raises(ClientClosed):
            await running
    assert not worker.health().ok
    # Nothing that was written is lost: what was running is another worker's once the lease is over.
    async with client:
        states = {(await client.job(each)).state for each in ids}
        assert states <= {JobState.RUNNING, JobState.READY, JobState.COMPLETED}


@pytest.mark.both_stores
@pytest.mark.parametrize("verb", ["claim", "settle", "release", "next_due", "take_expired", "renew", "open_lease"])
async def test_a_closed_client_ends_the_worker_whoever_notices(client: Client, jobs: Jobs, faults: Faults, verb: str) -> None:
    faults.before[verb] = [ClientClosed("the client was closed")] * 100
    worker = Worker(client, jobs.registry, grace=600, lease=1, renew_every=0.1, poll_interval=600 if verb == "renew" else 0.1)
    if verb in {"settle", "release"}:
        await client.enqueue((jobs.quick if verb == "settle" else jobs.held)())
    task = asyncio.create_task(worker.run())
    if verb == "release":
        await jobs.started()
        run = parts(worker)
        (slot,) = run.holdings.running.values()
        assert slot.task is not None
        slot.task.cancel()
        run.writer.give_back(slot.job.lease_id, slot.claim)
    with pytest.raises(ClientClosed):
        await ended(task)
    assert not worker.health().running


@pytest.mark.parametrize("busy", [False, True])
async def test_a_client_that_is_closed_under_its_worker(each_url: str, jobs: Jobs, *, busy: bool) -> None:
    client = await Client(each_url).open()
    worker = Worker(client, jobs.registry, grace=600, lease=600, poll_interval=600 if busy else 0.1, concurrency=1)
    if busy:
        await client.enqueue(jobs.held())
    task = asyncio.create_task(worker.run())
    if busy:
        await jobs.started()
    else:
        await until(lambda: worker.health().last_claim is not None)
    await client.close()
    jobs.gate.set()
    with pytest.raises(ClientClosed):
        await ended(task)
