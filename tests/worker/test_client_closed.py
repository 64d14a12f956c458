"""The client is closed under a running worker: it ends with ClientClosed, whatever it was doing, on both stores."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aioqueue import Client, ClientClosed, JobState, Registry, Worker

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
