"""What a listing of jobs is asked for, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import storable
from aioqueue.vocabulary._states import JobState
from aioqueue.vocabulary._time import aware

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import Job

__all__ = ["IdPage", "JobFilter", "ListOrder", "Page"]


class ListOrder(StrEnum):
    """In which order a listing shows jobs."""

    NEWEST = "newest"
    """By id, from the greatest: ids that calls make begin with the time at which they were made."""
    OLDEST = "oldest"
    DUE = "due"
    """Unfinished jobs by their due time, and then by id: the first due first."""
    FINISHED = "finished"
    """Finished jobs by the time at which they finished, and then by id: the newest first."""


class _Named(Protocol):
    """A job type, as far as a filter knows it."""

    @property
    def name(self) -> str: ...

    @property
    def aliases(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, init=False)
class JobFilter:
    """Which jobs are meant: of a listing, or of a change to many. What isn't given doesn't matter.

    Such as `JobFilter(states=["failed"], types=[fetch], finished_after=datetime.now(UTC) - timedelta(hours=1))`.

    Attributes:
        states: Any of these states. Given as `JobState` or by name.
        types: Any of these type names. Given as job types, which stand for their older names too, or as names.
        key: Exactly this key.
        tag: Among the job's tags.
        chain_id: Of this chain, by its own id.
        worker: Held by a worker of this name: only running jobs are.
        outcome: With this label for statistics: only finished jobs have one.
        error_type: Whose newest error has this type, such as `"ValueError"`.
        created_after, created_before: Created at this time or later; earlier than this. Aware.
        finished_after, finished_before: Of the time of finishing. Aware.
        first_id, last_id: The range of ids, both included, that the job's own id is in.
        ends: Only a chain's live or last step: one for each chain. Not those that are `continued`.

    Raises:
        ValueError: A state isn't known.
        ConfigurationError: A time has no time zone, a text isn't one or can't be a job's, or one text was given where several
            are taken.
    """

    states: frozenset[JobState]
    types: frozenset[str]
    key: str | None
    tag: str | None
    chain_id: UUID | None
    worker: str | None
    outcome: str | None
    error_type: str | None
    created_after: datetime | None
    created_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    first_id: UUID | None
    last_id: UUID | None
    ends: bool

    def __init__(
        self,
        *,
        states: Iterable[JobState | str] = (),
        types: Iterable[_Named | str] = (),
        key: str | None = None,
        tag: str | None = None,
        chain_id: UUID | None = None,
        worker: str | None = None,
        outcome: str | None = None,
        error_type: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        finished_after: datetime | None = None,
        finished_before: datetime | None = None,
        first_id: UUID | None = None,
        last_id: UUID | None = None,
        ends: bool = False,
    ) -> None:
        if isinstance(states, str) or isinstance(types, str):
            raise ConfigurationError("states= and types= take several, such as states=['failed']")
        values: dict[str, object] = {
            "states": frozenset(map(_state, states)),
            "types": frozenset(_text(name, "types") for each in types for name in _names_of(each)),
            "key": _text(key, "key"),
            "tag": _text(tag, "tag"),
            "chain_id": chain_id,
            "worker": _text(worker, "worker"),
            "outcome": _text(outcome, "outcome"),
            "error_type": _text(error_type, "error_type"),
            "created_after": _moment(created_after, "created_after"),
            "created_before": _moment(created_before, "created_before"),
            "finished_after": _moment(finished_after, "finished_after"),
            "finished_before": _moment(finished_before, "finished_before"),
            "first_id": first_id,
            "last_id": last_id,
            "ends": ends,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _state(state: JobState | str) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        raise ValueError(f"there is no state {state!r:.100}: there are {', '.join(JobState)}") from None


def _text(value: str | None, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, not {value!r:.100}")
    if value is not None and not storable(value):
        raise ConfigurationError(f"{name} has a NUL or a lone surrogate, which no job has there: {value!r:.100}")
    return value


def _names_of(job_type: _Named | str) -> tuple[str, ...]:
    """The names under which jobs of a type are stored: what was enqueued before a renaming has an older one."""
    return (job_type,) if isinstance(job_type, str) else (job_type.name, *job_type.aliases)


def _moment(time: datetime | None, name: str) -> datetime | None:
    return None if time is None else aware(time, name)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing.

    Attributes:
        jobs: In the order that was asked for: the newest ids first, unless said otherwise.
        cursor: Gives the next page; None at the end. Opaque text.
    """

    jobs: tuple[Job, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class IdPage:
    """One page of a listing that gives nothing but ids.

    Attributes:
        ids: As of `Page.jobs`.
        cursor: As of `Page`.
    """

    ids: tuple[UUID, ...]
    cursor: str | None
