"""A worker on SQLite: what it does when the file goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, Registry, Worker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_a_worker_whose_file_was_deleted_isnt_well(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.sqlite._connections_file._LOOK_SECONDS", 0.0)
    registry = Registry()

    @registry.job
    async def nothing() -> None: ...

    async with (
        Client(f"sqlite:///{path}") as client,
        Worker(client, registry, poll_interval=0.05, renew_every=0.1, lease=60, grace=0) as worker,
    ):
        with anyio.fail_after(60):
            while not worker.health().ok:
                await anyio.sleep(0.001)
            path.unlink()
            while worker.health().ok:
                await anyio.sleep(0.001)
        assert str(path) in client.store.troubles["file"]
