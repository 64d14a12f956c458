"""Which jobs a listing shows, and a change to many is about: read from what people give."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from aioqueue.client._handle import ids_of
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._listing import JobFilter, ListOrder
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from typing_extensions import Unpack

    from aioqueue.client._handle import JobHandle
    from aioqueue.definitions._job_type import JobType
    from aioqueue.vocabulary._job import JobState

__all__ = ["LARGEST_PAGE_JOBS", "Filters", "check_limit", "read_filters", "read_order"]

LARGEST_PAGE_JOBS = 1_000


class Filters(TypedDict, total=False):
    """What `Client.list_jobs` and its like take: which jobs are shown. `Client.list_jobs` says what each means."""

    states: Iterable[JobState | str]
    types: Iterable[JobType[..., Any, Any] | str]
    key: str | None
    tag: str | None
    created_after: datetime | timedelta | None
    created_before: datetime | timedelta | None
    finished_after: datetime | timedelta | None
    finished_before: datetime | timedelta | None
    worker: str | None
    outcome: str | None
    error_type: str | None
    chain: UUID | str | JobHandle[Any] | None


def read_filters(where: JobFilter | None, *, ends: bool, **filters: Unpack[Filters]) -> JobFilter:
    """Read which jobs are to be shown.

    Arguments:
        where: As a whole.
        ends: Whether only chains' live or last steps are.
        filters: One by one.

    Raises:
        ValueError: A state isn't known, or an id isn't one.
        TypeError: There is no such filter.
        ConfigurationError: A value can't be used, or both ways were used at once.
    """
    # A misspelt one that was passed over would show all jobs, to whoever deletes what is shown.
    if unknown := filters.keys() - Filters.__annotations__.keys():
        raise TypeError(f"there is no filter {', '.join(sorted(unknown))}: there are {', '.join(Filters.__annotations__)}")
    if where is not None and not isinstance(where, JobFilter):
        raise ConfigurationError(f'where= takes a filter, such as JobFilter(states=["failed"]), not {where!r:.100}')
    if where is not None and filters:
        raise ConfigurationError(f"where= is the whole filter: put {', '.join(sorted(filters))} into it")
    if where is not None:
        return dataclasses.replace(where, ends=True) if ends else where
    chain = filters.get("chain")
    return JobFilter(
        states=filters.get("states", ()),
        types=filters.get("types", ()),
        key=filters.get("key"),
        tag=filters.get("tag"),
        worker=filters.get("worker"),
        outcome=filters.get("outcome"),
        error_type=filters.get("error_type"),
        chain_id=None if chain is None else ids_of([chain])[0],
        created_after=_moment(filters.get("created_after"), "created_after"),
        created_before=_moment(filters.get("created_before"), "created_before"),
        finished_after=_moment(filters.get("finished_after"), "finished_after"),
        finished_before=_moment(filters.get("finished_before"), "finished_before"),
        ends=ends,
    )


def _moment(time: datetime | timedelta | None, name: str) -> datetime | None:
    """A point in time that is given as such, or by how long ago it was, by this machine's clock."""
    if not isinstance(time, timedelta):
        return time
    age = seconds(time, name)
    try:
        return datetime.now(UTC) - timedelta(seconds=age)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def read_order(order: ListOrder | str, where: JobFilter) -> ListOrder:
    """Read in which order jobs are to be shown.

    Raises:
        ConfigurationError: There is no such order, or none of the jobs that the filter is about has a place in it.
    """
    try:
        read = ListOrder(order)
    except ValueError:
        known = ", ".join(f'"{each}"' for each in ListOrder)
        raise ConfigurationError(f"order must be one of {known}, not {order!r:.100}") from None
    if read is ListOrder.DUE:
        finishing = [name for name in ("finished_after", "finished_before", "outcome") if getattr(where, name) is not None]
        if finishing or any(state.finished for state in where.states):
            raise ConfigurationError(
                f"order={str(read)!r} shows unfinished jobs only: leave out {_named(where, finishing, finished=True)}"
            )
    if read is ListOrder.FINISHED and (where.worker is not None or any(not state.finished for state in where.states)):
        unfinished = [] if where.worker is None else ["worker"]
        raise ConfigurationError(
            f"order={str(read)!r} shows finished jobs only: leave out {_named(where, unfinished, finished=False)}"
        )
    return read


def _named(where: JobFilter, names: list[str], *, finished: bool) -> str:
    states = sorted(state.value for state in where.states if state.finished is finished)
    return ", ".join([*(f"{name}=" for name in names), *(f"states={state!r}" for state in states)])


def check_limit(limit: int) -> None:
    """Refuse a limit that no page can have.

    Raises:
        ConfigurationError: It's out of its range.
    """
    if not 1 <= limit <= LARGEST_PAGE_JOBS:
        raise ConfigurationError(f"limit must be 1 to {LARGEST_PAGE_JOBS}, not {limit!r}")
