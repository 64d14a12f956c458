"""The changes that operators make: retry, run now, delete; of the jobs that are given, or of all that fit a filter."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.client._blockers import refuse_blockers
from aioqueue.client._portions import DELETED, RETRIED, RUN, Changes, change_all, change_given
from aioqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.client._handle import JobHandle
    from aioqueue.client._portions import Change, Meant, OnPortion
    from aioqueue.vocabulary._answers import Changed
    from aioqueue.vocabulary._listing import JobFilter
    from aioqueue.vocabulary._store_operating import Operable

    Given = Sequence[UUID | str | JobHandle[Any]]

__all__ = ["delete_jobs", "retry_jobs", "run_jobs_now"]


async def retry_jobs(
    store: Operable, jobs: Given, where: JobFilter | None, on_portion: OnPortion | None, *, cascade: bool, within: bool
) -> Changes | Counter[Changed]:
    """Make failed or cancelled jobs pending again, as `Client.retry` promises, whose errors it raises.

    Arguments:
        store: What changes them.
        jobs, where: Which: one of the two.
        on_portion, cascade: As of `Client.retry`.
        within: Whether it's done in an open transaction.
    """
    return await _change(partial(store.retry, cascade=cascade), store, jobs, where, RETRIED, on_portion, within=within)


async def run_jobs_now(
    store: Operable, jobs: Given, where: JobFilter | None, on_portion: OnPortion | None, *, within: bool
) -> Changes | Counter[Changed]:
    """Make pending jobs due now. Arguments and errors are those of `retry_jobs`."""
    return await _change(store.run_now, store, jobs, where, RUN, on_portion, within=within)


async def delete_jobs(
    store: Operable, jobs: Given, where: JobFilter | None, on_portion: OnPortion | None, *, cascade: bool, within: bool
) -> Changes | Counter[Changed]:
    """Remove jobs, as `Client.delete` promises. Arguments and errors are those of `retry_jobs`; also:

    Raises:
        BlockerReference: One of `jobs` wasn't deleted, since others wait for it.
    """
    change = partial(store.delete, cascade=cascade)
    changed = await _change(change, store, jobs, where, DELETED, on_portion, within=within)
    if isinstance(changed, Changes):
        await refuse_blockers(store, changed)
    return changed


async def _change(
    change: Change,
    store: Operable,
    jobs: Given,
    where: JobFilter | None,
    meant: Meant,
    on_portion: OnPortion | None,
    *,
    within: bool,
) -> Changes | Counter[Changed]:
    if where is None:
        if on_portion is not None:
            raise ConfigurationError("on_portion= belongs to where=: what becomes of jobs that are given is returned of each")
        return await change_given(store, change, jobs)
    if jobs:
        raise ConfigurationError("give either jobs or where=, not both")
    return await change_all(store, change, where, meant, on_portion, within=within)
