"""Stores for the tests on PostgreSQL, with jobs in them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from aioqueue.abc import JobFilter
from aioqueue.postgres import make_store
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob
    from tests.proxy import Proxy


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = make_store(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def port_of(url: str) -> int:
    return int(url.rpartition("/")[0].rpartition(":")[2])


def proxied(url: str, proxy: Proxy) -> str:
    """The same database by way of a proxy."""
    head, _, database = url.rpartition("/")
    return f"{head.rpartition(':')[0]}:{proxy.port}/{database}"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def job(job_type: str = "a", **options: Any) -> NewJob:
    return NewJob(id=new_id(), type=job_type, **options)


async def claimed(store: PostgresStore, *, jobs: int = 1, worker: str = "w") -> tuple[int, list[ClaimedJob]]:
    """So many running jobs, and their lease."""
    await store.insert([job() for _ in range(jobs)])
    lease_id = await store.open_lease(worker, 600)
    return lease_id, list(await store.claim(lease_id, ["a"], jobs))


def completed(claim: ClaimedJob, output: bytes = b"1") -> Settlement:
    return Settlement(id=claim.id, claims=claim.claims, lease_id=claim.lease_id, kind=SettlementKind.COMPLETED, output=output)


CALLS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "insert": lambda store: store.insert([job()]),
    "insert unique": lambda store: store.insert([job(key="k", unique=Unique())]),
    "fetch": lambda store: store.fetch([new_id()]),
    "list": lambda store: store.list(JobFilter(), 10),
    "stats": lambda store: store.stats(),
    "retry": lambda store: store.retry([new_id()]),
    "transaction": lambda store: transact(store),
    "claim": lambda store: store.claim(1, ["b"], 1),
    "release": lambda store: store.release(1, [], end=True),
    "next due": lambda store: store.next_due(["b"]),
}
"""Calls that need a connection, one for each way of getting one."""


async def transact(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.insert([job()])
        await tx.fetch("select 1")


async def within(seconds: float, call: Awaitable[object]) -> bool:
    """Whether a call ended well under a caller's deadline, which holds within a second (and a little, on a busy machine)."""
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(seconds):
            await call
    except TimeoutError:
        return False
    except Exception:
        return True
    finally:
        assert asyncio.get_running_loop().time() - began < seconds + 2.5
    return True
