"""What a listing of jobs is asked for, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import Job, JobState

__all__ = ["JobFilter", "Page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a listing shows; what isn't given doesn't matter.

    Attributes:
        states: Any of these states.
        types: Any of these type names.
        key: Exactly this key.
        tag: Among the job's tags.
    """

    states: frozenset[JobState] = frozenset()
    types: frozenset[str] = frozenset()
    key: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing.

    Attributes:
        jobs: The newest ids first.
        cursor: Gives the next page; None at the end. Opaque text.
    """

    jobs: tuple[Job, ...]
    cursor: str | None
