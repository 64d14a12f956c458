"""A cancelled call leaves no lock, thread or transaction, and its write is whole or not there."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.sqlite import make_store
from tests.sqlite.conftest import new_job, outsider

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def ready(store: SQLiteStore) -> int:
    return sum(sum(each.counts.values()) for each in (await store.stats()).types.values())


async def test_an_insert_that_waits_for_the_lock_is_given_up(store: SQLiteStore, path: Path) -> None:
    with outsider(path) as other:
        other.execute("BEGIN IMMEDIATE")
        inserting = asyncio.create_task(store.insert([new_job()]))
        queued = asyncio.create_task(store.insert([new_job()]))
        await ready(store)  # the event loop isn't kept by the lock
        for task in (inserting, queued):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        other.execute("ROLLBACK")
    await store.insert([new_job("later")])
    assert set((await store.stats()).types) == {"later"}


async def test_cancelled_anywhere_a_write_is_whole_or_not_there(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    for delay in range(60):
        batch = [new_job() for _ in range(20)]

        async def work(batch: list[object] = batch) -> None:
            await store.insert(batch)
            async with store.transaction() as tx:
                await tx.insert([new_job("b"), new_job("b")])
            await store.claim(lease, ["a"], 3)

        task = asyncio.create_task(work())
        for _ in range(delay):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        found = [each is not None for each in await store.fetch([job.id for job in batch])]
        assert all(found) or not any(found)
    with anyio.fail_after(60):
        async with store.transaction() as tx:
            (row,) = await tx.fetch("SELECT count(*) FROM job WHERE type = 'b'")
    assert row[0] % 2 == 0
    await store.insert([new_job("later")])


async def test_threads_end_with_the_store(path: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        store = make_store(f"sqlite:///{path}")
        await store.open()
        async with store.transaction() as tx:
            await tx.insert([new_job()])
        await store.stats()
        await store.close()
    assert set(threading.enumerate()) <= before


async def test_opening_that_fails_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = make_store(f"sqlite:///{tmp_path}/missing/jobs.db")
    with pytest.raises(Exception, match="can't be opened"):
        await store.open()
    for thread in set(threading.enumerate()) - before:
        await anyio.to_thread.run_sync(thread.join, 60)
        assert not thread.is_alive()
