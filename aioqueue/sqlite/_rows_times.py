"""Points in time: microseconds since 1970, UTC, as the tables hold them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from aioqueue.errors import RowRejected

__all__ = ["NOW", "due_after", "due_at", "microseconds", "moment"]

NOW = "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"
"""Microseconds since 1970 by the database's clock, which counts milliseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FARTHEST_MICROSECONDS = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


def moment(value: Any) -> datetime:
    """Read a stored point in time; what can't be one is shown as the nearest that can."""
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if value > 0 else datetime.min.replace(tzinfo=UTC)
    except TypeError:
        return _EPOCH


def microseconds(time: datetime) -> int:
    """A point in time as it's stored."""
    return (time - _EPOCH) // _MICROSECOND


def due_after(now: int, seconds: Any, what: str) -> int:
    """Compute a due time: so many seconds from now; now for what is in the past.

    Raises:
        RowRejected: It's no number of seconds, or beyond the year 9999.
    """
    due: int
    try:
        due = max(now, now + round(seconds * 1_000_000))
    except (TypeError, ValueError, OverflowError):
        due = _FARTHEST_MICROSECONDS + 1
    if due > _FARTHEST_MICROSECONDS:
        raise RowRejected(f"{what} must be a finite number of seconds, and end before the year 10000: {seconds!r}")
    return due


def due_at(now: int, given: Any, what: str) -> int:
    """Store a due time that is given; now for what is in the past.

    Raises:
        RowRejected: It's no point in time.
    """
    due: int
    try:
        due = max(now, microseconds(given))
    except (TypeError, OverflowError):
        raise RowRejected(f"{what} must be a time with its zone, not {given!r}") from None
    return due
