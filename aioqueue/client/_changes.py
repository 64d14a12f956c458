"""The changes that operators make: retry, run now, reschedule, cancel, delete; of jobs that are given, or of all that fit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.client._blockers import refuse_blockers
from aioqueue.client._cancelling import cancelling
from aioqueue.client._portions import (
    CANCELLED,
    DELETED,
    RESCHEDULED,
    RETRIED,
    RUN,
    Changes,
    change_all,
    change_given,
    changes_of,
)
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._time import aware, seconds

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from aioqueue.client._handle import JobHandle
    from aioqueue.client._portions import Cancellations, Change, Meant, OnCancelled, OnPortion
    from aioqueue.vocabulary._answers import Cancellation, Changed
    from aioqueue.vocabulary._listing import JobFilter
    from aioqueue.vocabulary._store_operating import Operable

    Given = Sequence[UUID | str | JobHandle[Any]]

__all__ = ["cancel_jobs", "delete_jobs", "reschedule_jobs", "retry_jobs", "run_jobs_now"]

A = TypeVar("A", "Changed", "Cancellation")
P = TypeVar("P", bound="dict[UUID, Any]")


async def retry_jobs(
    store: Operable,
    jobs: Given,
    where: JobFilter | None,
    on_portion: OnPortion | None,
    *,
    cascade: bool,
    from_start: bool,
    within: bool,
) -> Changes | Counter[Changed]:
    """Make failed or cancelled jobs pending again, as `Client.retry` promises, whose errors it raises.

    Arguments:
        store: What changes them.
        jobs, where: Which: one of the two.
        on_portion, cascade, from_start: As of `Client.retry`.
        within: Whether it's done in an open transaction.
    """
    change = partial(changes_of, store, partial(store.retry, cascade=cascade, from_start=from_start))
    return await _change(change, store, jobs, where, RETRIED, on_portion, Changes(), within=within)


async def run_jobs_now(
    store: Operable, jobs: Given, where: JobFilter | None, on_portion: OnPortion | None, *, within: bool
) -> Changes | Counter[Changed]:
    """Make pending jobs due now. Arguments and errors are those of `retry_jobs`."""
    change = partial(changes_of, store, store.run_now)
    return await _change(change, store, jobs, where, RUN, on_portion, Changes(), within=within)


async def reschedule_jobs(
    store: Operable,
    jobs: Given,
    where: JobFilter | None,
    on_portion: OnPortion | None,
    *,
    delay: float | timedelta | None,
    at: datetime | None,
    within: bool,
) -> Changes | Counter[Changed]:
    """Change when pending jobs are due, as `Client.reschedule` promises. Arguments and errors are those of `retry_jobs`; also:

    Raises:
        ConfigurationError: There isn't one time that is given, or it can't be one.
    """
    if (delay is None) == (at is None):
        raise ConfigurationError("say when they're due: either delay=, from now, or at=, a time")
    verb = partial(
        store.reschedule,
        delay=None if delay is None else seconds(delay, "delay"),
        run_at=None if at is None else aware(at, "at"),
    )
    return await _change(
        partial(changes_of, store, verb), store, jobs, where, RESCHEDULED, on_portion, Changes(), within=within
    )


async def cancel_jobs(
    store: Operable, jobs: Given, where: JobFilter | None, on_portion: OnCancelled | None, *, reason: str, within: bool
) -> Cancellations | Counter[Cancellation]:
    """Ask jobs to end, as `Client.cancel` promises. Arguments and errors are those of `retry_jobs`; also:

    Raises:
        TypeError: The reason isn't text.
    """
    became: Cancellations = {}
    return await _change(cancelling(store, reason), store, jobs, where, CANCELLED, on_portion, became, within=within)


async def delete_jobs(
    store: Operable, jobs: Given, where: JobFilter | None, on_portion: OnPortion | None, *, cascade: bool, within: bool
) -> Changes | Counter[Changed]:
    """Remove jobs, as `Client.delete` promises. Arguments and errors are those of `retry_jobs`; also:

    Raises:
        BlockerReference: One of `jobs` wasn't deleted, since others wait for it.
    """
    change = partial(changes_of, store, partial(store.delete, cascade=cascade))
    changed = await _change(change, store, jobs, where, DELETED, on_portion, Changes(), within=within)
    if isinstance(changed, Changes):
        await refuse_blockers(store, changed)
    return changed


async def _change(
    change: Change[P],
    store: Operable,
    jobs: Given,
    where: JobFilter | None,
    meant: Meant,
    on_portion: Callable[[P, Counter[A]], object] | None,
    became: P,
    *,
    within: bool,
) -> P | Counter[A]:
    if where is None:
        if on_portion is not None:
            raise ConfigurationError("on_portion= belongs to where=: what becomes of jobs that are given is returned of each")
        return await change_given(change, jobs, became)
    if jobs:
        raise ConfigurationError("give either jobs or where=, not both")
    return await change_all(store, change, where, meant, on_portion, within=within)
