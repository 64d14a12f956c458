"""Jobs whose chains are asked to end, for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.abc import Cancellation
from tests.sqlite.waiting import running

if TYPE_CHECKING:
    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob, Job, NewJob

__all__ = ["asked", "job_of", "last_error"]


async def job_of(store: SQLiteStore, job: ClaimedJob | NewJob) -> Job:
    (found,) = await store.fetch([job.id])
    assert found is not None
    return found


def last_error(job: Job) -> tuple[str, str]:
    assert job.last_error is not None
    return job.last_error.type, job.last_error.message


async def asked(store: SQLiteStore, lease: int, reason: str = "not needed") -> ClaimedJob:
    """A running job whose chain was asked to end."""
    job = await running(store, lease)
    assert await store.cancel([job.id], reason) == [Cancellation.CANCELLING]
    return job
