"""Jobs that wait for others, for the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._blockers import NewBlocker
from tests.sqlite.chains import claim_one, end
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._blockers import Tended
    from aioqueue.vocabulary._job import ClaimedJob, JobState, NewJob

__all__ = ["after", "claim_waiting", "complete", "running", "state_of", "tend_all"]


def after(*chains: UUID, settled: bool = False, **options: object) -> NewJob:
    """A job of the type `waits`, which waits for these chains."""
    blockers = tuple(NewBlocker(each, settled=settled) for each in chains)
    return replace(new_job("waits", **options), blockers=blockers)


async def running(store: SQLiteStore, lease: int) -> ClaimedJob:
    """A job of the type `a`, which runs."""
    await store.insert([new_job()])
    return await claim_one(store, lease)


async def claim_waiting(store: SQLiteStore, lease: int) -> ClaimedJob:
    (job,) = await store.claim(lease, ["waits"], 1)
    return job


async def complete(store: SQLiteStore, job: ClaimedJob) -> None:
    assert [each.lost for each in await store.settle([end(job, output=b"1")])] == [None]


async def state_of(store: SQLiteStore, job_id: UUID) -> JobState:
    (found,) = await store.fetch([job_id])
    assert found is not None
    return found.state


async def tend_all(store: SQLiteStore, limit: int = 100) -> list[Tended]:
    portions = [await store.tend(limit)]
    while portions[-1].more:
        portions.append(await store.tend(limit))
    return portions
