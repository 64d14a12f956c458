"""A caller that's cancelled at any turn of the event loop leaves no lock, thread, task or transaction behind."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio

registry = Registry()
PATIENCE = 60


@registry.job
async def work(number: int) -> int:
    return number


async def cancelled_after(turns: int, make: Callable[[], Awaitable[object]]) -> None:
    """Begin, go that many turns of the loop, cancel, and wait for the end."""

    async def run() -> None:
        await make()

    task = asyncio.create_task(run())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def nothing_is_locked(path: Path) -> None:
    """Somebody else gets the write lock at once, or as soon as a write that's on its way is committed."""
    with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")


class Before:
    """The tasks and threads that were there before."""

    def __init__(self) -> None:
        self._tasks, self._threads = asyncio.all_tasks(), set(threading.enumerate())

    async def again(self) -> None:
        """Wait until there are no others."""
        async with asyncio.timeout(PATIENCE):
            while not asyncio.all_tasks() <= self._tasks or not set(threading.enumerate()) <= self._threads:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", range(0, 30, 2))
async def test_enqueueing_and_transactions(tmp_path: Path, turns: int) -> None:
    path, before = tmp_path / "jobs.db", Before()
    client = Client(f"sqlite:///{path}")

    async def in_a_transaction() -> None:
        async with client.transaction() as tx:
            await tx.enqueue(work(1))
            await tx.enqueue(work(2))

    async with client:
        await cancelled_after(turns, lambda: client.enqueue(work(0)))
        await cancelled_after(turns, in_a_transaction)
        nothing_is_locked(path)
    async with client:  # what was being written when its caller was cancelled is written, or not, by now
        jobs = (await client.list_jobs()).jobs
        assert sorted(job.arguments["number"] for job in jobs) in ([], [0], [1, 2], [0, 1, 2])
        async with asyncio.timeout(PATIENCE):
            await in_a_transaction()
        assert len((await client.list_jobs()).jobs) == len(jobs) + 2
    await before.again()


@pytest.mark.parametrize("turns", range(12))
async def test_opening_and_closing(tmp_path: Path, turns: int) -> None:
    path, before = tmp_path / "jobs.db", Before()
    client = Client(f"sqlite:///{path}")
    await cancelled_after(turns, client.open)
    await client.close()
    await client.open()
    enqueueing = asyncio.create_task(client.enqueue(work(0)))
    await asyncio.sleep(0)
    await cancelled_after(turns, client.close)
    await client.close()
    await asyncio.wait([enqueueing])
    enqueueing.result()
    nothing_is_locked(path)
    await before.again()
