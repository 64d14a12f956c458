"""What a listing of jobs is asked for, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import Job, JobState

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant: of a listing, or of a change to many. What isn't given doesn't matter.

    Attributes:
        states: Any of these states.
        types: Any of these type names.
        key: Exactly this key.
        tag: Among the job's tags.
        chain_id: Of this chain, by its own id.
        worker: Held by a worker of this name: only running jobs are.
        outcome: With this label for statistics: only finished jobs have one.
        error_type: Whose newest error has this type, such as `"ValueError"`.
        created_from, created_before: Created at this time or later; earlier than this. Aware.
        finished_from, finished_before: Of the time of finishing. Aware.
        first_id, last_id: The range of ids, both included, that the job's own id is in.
        ends: Only a chain's live or last step: one for each chain. Not those that are `continued`.
    """

    states: frozenset[JobState] = frozenset()
    types: frozenset[str] = frozenset()
    key: str | None = None
    tag: str | None = None
    chain_id: UUID | None = None
    worker: str | None = None
    outcome: str | None = None
    error_type: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    finished_from: datetime | None = None
    finished_before: datetime | None = None
    first_id: UUID | None = None
    last_id: UUID | None = None
    ends: bool = False


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
