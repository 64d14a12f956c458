"""Jobs that are stored together: in which order, where some wait for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob

__all__ = ["implied_in_vain", "needed_of_batch"]


def needed_of_batch(jobs: Sequence[NewJob]) -> set[UUID]:
    """The jobs for which others of the batch wait: those come before them, so that none can wait for ever.

    Raises:
        BlockerCycle: A job waits for itself, or for one behind it.
    """
    batch = {job.id for job in jobs}
    before: set[UUID] = set()
    needed: set[UUID] = set()
    for job in jobs:
        own = {each.chain_id for each in job.blockers} & batch
        if not own <= before:
            raise BlockerCycle(f"the job {job.type} {job.id} would wait for itself, or for a job that comes after it")
        needed |= own
        before.add(job.id)
    return needed


def implied_in_vain(jobs: Sequence[NewJob], stored: Collection[UUID], awaited: Collection[UUID] = ()) -> set[UUID]:
    """The implied jobs for which nobody waits, directly or through others, who is stored or takes the place of another.

    Arguments:
        jobs: The batch; a job comes after those that it waits for.
        stored: Those of them that are stored, or take the place of another.
        awaited: Those for which somebody else waits who is stored with them.
    """
    needed = set(awaited)
    for job in reversed(jobs):
        if job.id in stored and (not job.implied or job.id in needed):
            needed.update(each.chain_id for each in job.blockers)
    return {job.id for job in jobs if job.implied} - needed
