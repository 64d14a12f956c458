"""A worker learns that its lease is gone: at once by a notification, and without one at its next renewal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, Worker
from aioqueue.postgres import make_store
from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

PATIENCE = 120.0
"""Seconds; much less than the time to the next renewal where a test says that one isn't waited for."""


class Stuck:
    """A job whose first attempt runs until it's cancelled, and whose second one succeeds."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.starts = 0

        @self.registry.job(name="stuck", retry=Retry(max_attempts=5, backoff=Fixed(0)))
        async def stuck() -> int:
            self.starts += 1
            if self.starts > 1:
                return self.starts
            self.begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            raise AssertionError

        self.job_type = stuck


@asynccontextmanager
async def another_worker(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = make_store(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def recover(store: PostgresStore) -> bool:
    """What another worker does about jobs whose lease isn't valid; returns whether there was one."""
    taken = await store.take_expired(10)
    back = [
        Settlement(id=each.id, claims=each.claims, lease_id=each.lease_id, kind=SettlementKind.RETRIED, delay=0.0)
        for each in taken
    ]
    return bool(back) and [result.lost for result in await store.settle(back, orphaned=True)] == [None]


async def take_over(url: str, store: PostgresStore) -> None:
    """Let the lease expire, and take it. A renewal may come in between, and is granted."""
    with anyio.fail_after(PATIENCE):
        while True:
            execute(url, "update aioqueue.lease set expires_at = now() - interval '1 second'")
            if await recover(store):
                return


async def test_a_taken_lease_is_told_to_its_worker_at_once(postgres_url: str) -> None:
    job = Stuck()
    async with (
        Client(postgres_url) as client,
        another_worker(postgres_url) as other,
        Worker(client, job.registry, concurrency=1, lease=7200, renew_every=3600),
    ):
        handle = await client.enqueue(job.job_type())
        with anyio.fail_after(PATIENCE):
            await job.begun.wait()
        await take_over(postgres_url, other)
        with anyio.fail_after(PATIENCE):
            await job.cancelled.wait()
        assert await handle.result(timeout=PATIENCE) == 2
        assert (await handle.snapshot()).attempt == 2


@pytest.mark.parametrize("how", ["taken", "deleted"])
async def test_a_lease_that_is_gone_is_found_at_the_next_renewal(postgres_url: str, how: str) -> None:
    """Without notifications, and while all slots are busy, so that no claim finds it."""
    job = Stuck()
    async with (
        Client(postgres_url, notify=False, poll_interval=0.1) as client,
        another_worker(postgres_url, notify=False) as other,
        Worker(client, job.registry, concurrency=1, lease=600, renew_every=1, poll_interval=0.1),
    ):
        handle = await client.enqueue(job.job_type())
        with anyio.fail_after(PATIENCE):
            await job.begun.wait()
        if how == "taken":
            await take_over(postgres_url, other)
        else:
            execute(postgres_url, "delete from aioqueue.lease")
        with anyio.fail_after(PATIENCE):
            await job.cancelled.wait()
            while (await handle.snapshot()).state is not JobState.COMPLETED:
                await recover(other)  # its own worker may be first
                await asyncio.sleep(0.05)
        assert await handle.result(timeout=PATIENCE) == 2


async def test_a_retry_is_told_at_once(postgres_url: str) -> None:
    """An operator's, on another connection, to a worker that never polls."""
    registry = Registry()
    fails = True

    @registry.job(name="wobbly", retry=Retry(max_attempts=1))
    async def wobbly() -> int:
        if fails:
            raise ValueError("not yet")
        return 1

    async with (
        Client(postgres_url) as client,
        Client(postgres_url) as operator,
        Worker(client, registry, poll_interval=3600, lease=7200, renew_every=3600),
    ):
        handle = await client.enqueue(wobbly())
        with anyio.fail_after(PATIENCE):
            while (await handle.snapshot()).state is not JobState.FAILED:
                await asyncio.sleep(0.02)
        fails = False
        await operator.retry(handle)
        assert await handle.result(timeout=PATIENCE) == 1
