"""Chains for the tests: made by claims and settlements, and read page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from aioqueue.vocabulary._job import Settlement, SettlementKind
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob, Job, NewJob

__all__ = ["chain", "claim_one", "continued", "end", "listed"]


def end(job: ClaimedJob, kind: SettlementKind = SettlementKind.COMPLETED, **options: Any) -> Settlement:
    return Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=kind, **options)


def continued(job: ClaimedJob, following: NewJob | None = None) -> Settlement:
    return end(job, SettlementKind.CONTINUED, next=following or new_job())


async def claim_one(store: SQLiteStore, lease: int) -> ClaimedJob:
    (job,) = await store.claim(lease, ["a"], 1)
    return job


async def chain(store: SQLiteStore, lease: int, length: int, **options: Any) -> list[ClaimedJob]:
    """A chain of so many steps, of which the last is running."""
    await store.insert([new_job(**options)])
    steps = [await claim_one(store, lease)]
    while len(steps) < length:
        assert [each.lost for each in await store.settle([continued(steps[-1])])] == [None]
        steps.append(await claim_one(store, lease))
    return steps


async def listed(store: SQLiteStore, chain_id: UUID, limit: int) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    with anyio.fail_after(60):
        while True:
            page = await store.list_chain(chain_id, limit, cursor)
            assert len(page.jobs) <= limit
            found += page.jobs
            if (cursor := page.cursor) is None:
                return found
