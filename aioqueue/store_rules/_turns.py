"""Turns: which of the job types of a worker's claims come first, so that none waits behind the backlog of another. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Turns", "urgency_of"]


def urgency_of(job: ClaimedJob) -> tuple[int, datetime, UUID]:
    """The order in which the jobs of one claim are given to the worker."""
    return (job.priority, job.run_at, job.id)


class Turns:
    """Remembers when types were served last: among jobs of one priority those come first whose type wasn't for longest."""

    def __init__(self) -> None:
        self._claims = 0
        self._served: dict[str, int] = {}

    def of(self, job_type: str) -> int:
        """A type's turn: the lower comes first; those that were never served share the lowest."""
        return self._served.get(job_type, 0)

    def serve(self, types: Iterable[str]) -> None:
        """Note of which types a claim has taken jobs."""
        self._claims += 1
        self._served.update(dict.fromkeys(types, self._claims))
