"""What operators ask for, read from what they gave: which jobs a listing shows, and changes of many in portions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.client._handle import ids_of
from aioqueue.errors import ConfigurationError, StoreError
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from uuid import UUID

    from aioqueue.client._handle import JobHandle
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._answers import Changed

__all__ = ["change_in_portions", "read_filter"]

_LARGEST_PAGE_JOBS = 1_000
_PORTION_JOBS = 1_000
"""Jobs that one statement of `retry`, `run_now` and `delete` changes, with a commit of its own."""


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
    if not 1 <= limit <= _LARGEST_PAGE_JOBS:
        raise ConfigurationError(f"limit must be 1 to {_LARGEST_PAGE_JOBS}, not {limit!r}")
    if isinstance(states, str) or isinstance(types, str):
        raise ConfigurationError("states= and types= take several, such as states=['failed']")
    return JobFilter(
        states=frozenset(JobState(each) for each in states),
        types=frozenset(name for each in types for name in _names_of(each)),
        key=key,
        tag=tag,
    )


def _names_of(job_type: JobType[..., Any, Any] | str) -> tuple[str, ...]:
    """The names under which jobs of a type are stored: what was enqueued before a renaming has an older one."""
    return (job_type,) if isinstance(job_type, str) else (job_type.name, *job_type.aliases)


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
