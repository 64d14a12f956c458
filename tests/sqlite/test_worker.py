"""A worker on SQLite: what it does when the client is closed beneath it, when the file goes, when rows are odd."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, ClientClosed, Registry, Worker

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("busy", [0, 1, 2])
async def test_a_worker_whose_client_was_closed_ends(path: Path, busy: int) -> None:
    scene = Scene()
    client = await Client(f"sqlite:///{path}").open()
    worker = Worker(client, scene.registry, concurrency=2, poll_interval=0.05, renew_every=0.1, lease=60, grace=0)
    running = asyncio.create_task(worker.run())
    with anyio.fail_after(60):
        for number in range(busy):
            await client.enqueue(scene.waits(number))
            await scene.began.acquire()
        await client.close()
        scene.go_on.set()
        with pytest.raises(ClientClosed):
            await running
    # Nothing that was written is lost: what was running is another worker's once the lease is over.
    with closing(sqlite3.connect(path)) as connection:
        assert (
            connection.execute("SELECT count(*) FROM job").fetchone()[0]
            + connection.execute("SELECT count(*) FROM archive").fetchone()[0]
            == busy
        )


async def test_a_worker_whose_file_was_deleted_isnt_well(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.sqlite._connections_file._LOOK_SECONDS", 0.0)
    scene = Scene()
    async with (
        Client(f"sqlite:///{path}") as client,
        Worker(client, scene.registry, poll_interval=0.05, renew_every=0.1, lease=60, grace=0) as worker,
    ):
        with anyio.fail_after(60):
            while not worker.health().ok:
                await anyio.sleep(0.001)
            path.unlink()
            while worker.health().ok:
                await anyio.sleep(0.001)
        assert str(path) in client.store.troubles["file"]
