"""Stores for the tests on PostgreSQL, with jobs in them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from aioqueue.postgres import make_store
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = make_store(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


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
