"""Requests and tasks that are cancelled at any moment leave no connection, transaction, lock or half a job behind."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import psycopg
import pytest

from aioqueue import Client, Fixed, JobState, Registry, ResultTimeout, Retry, Worker
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aioqueue import Job

pytestmark = pytest.mark.anyio

LATEST = 0.02
"""Seconds after which an operation is cancelled, at most; most are through by then, or in the middle."""

SESSIONS = 12
"""One connection each to claim, to settle, and to listen, the worker's two, the client's own three, and four for users'
transactions: whatever was cancelled."""

THREADS = 5
"""On SQLite: one writes, two read, one reads for the worker, and one is for transactions."""

DESCRIPTORS = 2 * (THREADS + 1) + 1 + 4
"""The file and its log for each of these and for the test, one index in shared memory, and some that are being closed."""

registry = Registry()


@registry.job(retry=Retry(max_attempts=1000, backoff=Fixed(0.01)))
async def nothing() -> None: ...


class Operations:
    """What is cancelled. Each may be interrupted anywhere."""

    def __init__(self, client: Client, placeholder: str, seed: int) -> None:
        self._client = client
        self._placeholder = placeholder
        self._random = random.Random(seed)
        self.pairs = 0
        self.errors: list[str] = []

    async def enqueue(self) -> None:
        await self._client.enqueue(nothing())

    async def enqueue_many(self) -> None:
        await self._client.enqueue_many([nothing().options(tags=["together"]) for _ in range(3)])

    async def transaction(self) -> None:
        self.pairs += 1
        async with self._client.transaction() as tx:
            await tx.execute(f"insert into pair (number) values ({self._placeholder})", self.pairs)
            await tx.enqueue(nothing().options(tags=["pair"]))

    async def result(self) -> None:
        with suppress(ResultTimeout):
            await (await self._client.enqueue(nothing().options(delay=3600, tags=["later"]))).result(timeout=LATEST)

    async def claim(self) -> None:
        store = self._client.store
        lease = await store.open_lease("cancelled", 1.0)
        claimed = await store.claim(lease, [nothing.name], 3)
        await store.release(lease, [each.claim for each in claimed], end=True)

    async def stats(self) -> None:
        await self._client.stats()
        await self._client.list_jobs(limit=10)

    async def work(self) -> None:
        await Worker(self._client, registry, lease=1.5, grace=0.5, concurrency=2).run_once()

    def all(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.enqueue, self.enqueue_many, self.transaction, self.result, self.claim, self.stats, self.work]

    async def interrupt(self, operation: Callable[[], Awaitable[None]]) -> None:
        """Begin it, and cancel it soon: as asyncio or as anyio does it."""
        after = self._random.uniform(0, LATEST)
        if self._random.random() < 0.5:
            with anyio.move_on_after(after):
                await operation()
            return

        async def run() -> None:
            await operation()

        task = asyncio.create_task(run())
        await asyncio.sleep(after)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def several(self, times: int) -> None:
        for number in range(times):
            operations = self.all()
            await self.interrupt(operations[number % len(operations)])


async def _interrupt_many(client: Client, placeholder: str, times: int) -> None:
    """Four tasks at once, so that batches have several callers, of whom some are cancelled."""
    async with anyio.create_task_group() as group:
        for seed in range(4):
            group.start_soon(Operations(client, placeholder, seed).several, times // 4)


async def _all_jobs(client: Client) -> list[Job]:
    jobs: list[Job] = []
    cursor: str | None = None
    while True:
        page = await client.list_jobs(limit=1000, cursor=cursor)
        jobs += page.jobs
        if (cursor := page.cursor) is None:
            return jobs


async def _check_jobs(client: Client, pairs: Callable[[], int]) -> None:
    """Nothing is half done, and what there is can be worked off, what cancelled claims have left too."""
    async with Worker(client, registry, lease=3, poll_interval=0.1):

        async def through() -> bool:
            return all(job.state is JobState.COMPLETED for job in await _all_jobs(client) if "later" not in job.tags)

        await until(through, "everything that's due is worked off")
    jobs = await _all_jobs(client)
    assert {job.state for job in jobs if "later" not in job.tags} <= {JobState.COMPLETED}
    assert sum("together" in job.tags for job in jobs) % 3 == 0
    assert sum("pair" in job.tags for job in jobs) == pairs()


@pytest.mark.parametrize("times", [112, pytest.param(1000, marks=pytest.mark.soak)])
async def test_on_postgres(postgres_url: str, times: int) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as watcher:
        watcher.execute("create table pair (number integer not null)")

        def sessions() -> list[tuple[str, str]]:
            """State and query of each other connection to this database."""
            return watcher.execute(
                "select coalesce(state, ''), query from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
            ).fetchall()

        def pairs() -> int:
            row = watcher.execute("select count(*) from pair").fetchone()
            assert row is not None
            count: int = row[0]
            return count

        client = Client(postgres_url)
        async with client:
            await _interrupt_many(client, "$1", times)
            await until(
                lambda: len(sessions()) <= SESSIONS and all(state == "idle" for state, _ in sessions()),
                f"{SESSIONS} sessions at most, all idle",
                within=60,
                story=lambda: str(sessions()),
            )
            await _check_jobs(client, pairs)
        await until(lambda: not sessions(), "no session", within=60, story=lambda: str(sessions()))


@pytest.mark.parametrize("times", [112, pytest.param(1000, marks=pytest.mark.soak)])
async def test_on_sqlite(tmp_path: Path, times: int) -> None:
    path = tmp_path / "jobs.db"

    def descriptors() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{each}").startswith(str(path)) for each in os.listdir("/proc/self/fd"))

    threads = set(threading.enumerate())
    async with Client(f"sqlite:///{path}") as client:
        with sqlite3.connect(path) as watcher:  # committed here, used and closed below
            watcher.execute("create table pair (number integer not null)")
        operations = Operations(client, "?", 0)
        for operation in (operations.enqueue, operations.transaction, operations.stats, operations.claim):
            await operation()
        assert len(set(threading.enumerate()) - threads) <= THREADS
        await _interrupt_many(client, "?", times)
        await until(lambda: len(set(threading.enumerate()) - threads) <= THREADS, "no other thread", within=60)
        await until(lambda: descriptors() <= DESCRIPTORS, "no more descriptors", within=60, story=lambda: str(descriptors()))
        # Nobody holds the write lock.
        watcher.execute("pragma busy_timeout = 60000")
        watcher.execute("begin immediate")
        watcher.execute("rollback")
        await _check_jobs(client, lambda: int(watcher.execute("select count(*) from pair").fetchone()[0]))
        watcher.close()
    await until(lambda: set(threading.enumerate()) <= threads, "no thread", within=60)
    assert descriptors() == 0
