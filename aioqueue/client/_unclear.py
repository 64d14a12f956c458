"""Remembers which jobs may have been stored although nobody was told: their commit's answer was lost, or not awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import CallError, RowRejected, WrongJobType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob

__all__ = ["UnclearIds"]

_MOST_IDS = 10_000
"""Beyond these, the oldest are forgotten."""


class UnclearIds:
    """Ids of jobs that may be stored or not. Another try has to look for them, among the finished jobs too."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[UUID, None] = {}

    def add(self, ids: Iterable[UUID]) -> None:
        """Remember ids, forgetting the oldest beyond a bound."""
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > _MOST_IDS:
            del self._ids[next(iter(self._ids))]

    def has_any(self, jobs: Sequence[NewJob]) -> bool:
        """Whether one of the jobs may have been stored by an earlier try."""
        return bool(self._ids) and any(job.id in self._ids for job in jobs)

    def has_any_of(self, ids: Iterable[UUID]) -> bool:
        """Whether one of the ids may have been stored by an earlier try."""
        return bool(self._ids) and any(each in self._ids for each in ids)

    def among(self, jobs: Sequence[NewJob]) -> list[UUID]:
        """The ids of those jobs that may have been stored by an earlier try."""
        return [job.id for job in jobs if job.id in self._ids] if self._ids else []

    def settled_by(self, jobs: Sequence[NewJob]) -> _SettledBy:
        """A block that stores the jobs: they're remembered if it fails without telling whether it did, else forgotten."""
        return _SettledBy(self, self._ids, jobs)


class _SettledBy:
    """A context manager, not a generator: every enqueue goes through it."""

    __slots__ = ("_ids", "_jobs", "_unclear")

    def __init__(self, unclear: UnclearIds, ids: dict[UUID, None], jobs: Sequence[NewJob]) -> None:
        self._unclear = unclear
        self._ids = ids
        self._jobs = jobs

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            if self._ids:
                for job in self._jobs:
                    self._ids.pop(job.id, None)
        elif not isinstance(error, RowRejected | CallError | WrongJobType):  # these say that nothing was stored
            self._unclear.add(job.id for job in self._jobs)
