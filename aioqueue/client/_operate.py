"""What operators ask for, read from what they gave: one job, which jobs a listing shows, and changes in portions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aioqueue.client._handle import ids_of
from aioqueue.errors import ConfigurationError, JobNotFound, NotSupported, StoreError
from aioqueue.vocabulary._abilities import SupportsMigrate, SupportsPrune
from aioqueue.vocabulary._job import JobState, StoredState
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._handle import JobHandle
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._answers import Changed
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import Page

__all__ = [
    "change_in_portions",
    "check_limit",
    "find_end",
    "find_job",
    "list_steps",
    "migrate",
    "prune_in_portions",
    "read_filter",
]

_LARGEST_PAGE_JOBS = 1_000
_PORTION_JOBS = 1_000
"""Jobs that one statement of `retry`, `run_now`, `delete` and `prune` changes, with a commit of its own."""


async def migrate(store: Store) -> Sequence[str]:
    """Bring the schema up to date, as `Client.migrate` promises.

    Raises:
        NotSupported: The store has no migrations.
    """
    if not isinstance(store, SupportsMigrate):
        raise NotSupported(f"{store.description} has no migrations", ability="migrate")
    return await store.migrate()


async def find_job(store: Store, job_id: UUID | str | JobHandle[Any]) -> Job:
    """Look at one job, as `Client.job` promises.

    Raises:
        ValueError: The id isn't one.
        JobNotFound: There is no such job.
    """
    (wanted,) = ids_of([job_id])
    (found,) = await store.fetch([wanted])
    if found is None:
        raise JobNotFound(f"there is no job {wanted}: it was never committed, or has been deleted", job_id=wanted)
    return found


async def find_end(store: Store, job_id: UUID | str | JobHandle[Any]) -> Job:
    """Look at a chain's live or last step, as `Client.chain` promises.

    Raises:
        ValueError: The id isn't one.
        JobNotFound: There is no such chain.
    """
    (wanted,) = ids_of([job_id])
    (found,) = await store.fetch_ends([wanted])
    if found is None:
        raise JobNotFound(f"there is no job {wanted}, and no chain: it was never committed, or has been deleted", job_id=wanted)
    return found


async def list_steps(store: Store, job_id: UUID | str | JobHandle[Any], limit: int, cursor: str | None) -> Page:
    """Show one page of a chain's steps, as `Client.chain_jobs` promises.

    Raises:
        ValueError: The id isn't one, or the cursor.
        JobNotFound: There is no such chain.
        ConfigurationError: The limit is out of its range.
    """
    check_limit(limit)
    return await store.list_chain((await find_end(store, job_id)).chain_id, limit, cursor)


def read_filter(
    states: Iterable[JobState | str],
    types: Iterable[JobType[..., Any, Any] | str],
    key: str | None,
    tag: str | None,
    limit: int,
) -> JobFilter:
    """Read what `Client.list_jobs` was given.

    Raises:
        ValueError: A state isn't known.
        ConfigurationError: The limit is out of its range, or one text was given where several are taken.
    """
    check_limit(limit)
    return JobFilter(states=states, types=types, key=key, tag=tag)


def check_limit(limit: int) -> None:
    """Refuse a limit that no page can have.

    Raises:
        ConfigurationError: It's out of its range.
    """
    if not 1 <= limit <= _LARGEST_PAGE_JOBS:
        raise ConfigurationError(f"limit must be 1 to {_LARGEST_PAGE_JOBS}, not {limit!r}")


async def change_in_portions(
    change: Callable[[Sequence[UUID]], Awaitable[Sequence[Changed]]], jobs: Iterable[UUID | str | JobHandle[Any]]
) -> dict[UUID, Changed]:
    """Change jobs with one of the store's verbs, a bounded number in each commit.

    Raises:
        ValueError: An id isn't one; nothing was changed.
        StoreError: The database refused; its `changed` says what became of the portions before.
    """
    ids = ids_of(jobs)
    changed: dict[UUID, Changed] = {}
    for start in range(0, len(ids), _PORTION_JOBS):
        portion = ids[start : start + _PORTION_JOBS]
        try:
            changed.update(zip(portion, await change(portion), strict=True))
        except StoreError as error:
            error.changed = changed
            raise
    return changed


async def prune_in_portions(
    store: Store,
    older_than: float | timedelta,
    states: Iterable[JobState | str],
    types: Iterable[JobType[..., Any, Any] | str],
    on_portion: Callable[[Sequence[UUID]], object] | None,
) -> int:
    """Remove what finished long ago, as `Client.prune` promises.

    Raises:
        ConfigurationError: The duration can't be one, a state isn't that of finished jobs, or one text was given where several
            are taken.
        NotSupported: The store can't.
    """
    age = seconds(older_than, "older_than")
    where = read_filter(states, types, None, None, _LARGEST_PAGE_JOBS)
    if unfinished := sorted(state for state in where.states if not state.finished):
        raise ConfigurationError(f"only finished jobs are pruned, not those that are {', '.join(unfinished)}")
    if not isinstance(store, SupportsPrune):
        raise NotSupported(f"{store.description} can't prune: list jobs, and delete them", ability="prune")
    begun, removed = time.monotonic(), 0
    for state in (each for each in JobState if each.finished and (not where.states or each in where.states)):
        cursor: str | None = None
        while True:
            # What finishes meanwhile doesn't become old enough meanwhile: otherwise it might never end.
            limit_age = age + time.monotonic() - begun
            pruned = await store.prune(StoredState[state.name], limit_age, where.types or None, _PORTION_JOBS, cursor)
            removed += len(pruned.ids)
            if on_portion is not None and pruned.ids:
                on_portion(pruned.ids)
            if (cursor := pruned.cursor) is None:
                break
    return removed
