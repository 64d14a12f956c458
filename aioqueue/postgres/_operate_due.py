"""The time at which jobs are to be due, as whoever reschedules them gives it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from aioqueue.errors import RowRejected

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["DueTime", "due_arguments"]


class DueTime(NamedTuple):
    """When: at a time, or so many seconds from the database's now; now without either."""

    run_at: datetime | None = None
    delay: float | None = None


def due_arguments(when: DueTime) -> tuple[datetime | None, float]:
    """Give the arguments of a statement.

    Raises:
        RowRejected: It could mean several moments, or none.
    """
    if when.run_at is not None and when.run_at.utcoffset() is None:
        raise RowRejected("run_at has no time zone, so it could mean several moments")
    delay = when.delay or 0.0
    if not isfinite(delay):
        raise RowRejected("a delay must be finite")
    return when.run_at, delay
