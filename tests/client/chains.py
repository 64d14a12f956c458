"""Chains for the client's tests, and a worker's part in a few lines."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioqueue import Call, Client, Fail, Registry, Worker, done
from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.client.jobs import Page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

HOUR = 3600.0

registry = Registry(prefix="chains.")


@registry.job
async def count(left: int, *, then: str = "done") -> Call[Page]:
    """As many steps as it's told, and one of another type."""
    if left:
        return count(left - 1, then=then)
    return last(then)


@registry.job
async def last(then: str) -> Call[Page]:
    if then == "fail":
        raise Fail("no such page")
    if then == "wait":
        return last("done").options(delay=HOUR)
    return done(Page(then, 7))


@registry.job
async def plain() -> int:
    return 1


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[tuple[Client, Worker]]:
    async with Client(url) as client:
        yield client, Worker(client, registry)


async def step_ids(client: Client, job_id: UUID) -> list[UUID]:
    return [each.id for each in (await client.chain_jobs(job_id)).jobs]


async def continued(client: Client) -> tuple[UUID, UUID]:
    """A chain whose second step is pending."""
    handle = await client.enqueue(count(1))
    following = count(0).to_new_job()
    await go_on(client.store, following)
    return handle.id, following.id


async def go_on(store: Store, *following: NewJob) -> None:
    """Continue all chains that are due, each with one of these."""
    lease = await store.open_lease("tests", HOUR)
    claimed = await store.claim(lease, ["chains.count"], 1000)
    settlements = [
        Settlement(id=job.id, claims=job.claims, lease_id=lease, kind=SettlementKind.CONTINUED, next=new)
        for job, new in zip(claimed, following, strict=True)
    ]
    assert all(result.lost is None for result in await store.settle(settlements))
    await store.release(lease, [], end=True)


def settled(
    job: ClaimedJob, lease: int, kind: SettlementKind, *, following: NewJob | None = None, delay: float | None = None
) -> Settlement:
    return Settlement(id=job.id, claims=job.claims, lease_id=lease, kind=kind, next=following, delay=delay)


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)
