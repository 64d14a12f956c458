"""The rows of new jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.store_rules._json import require_json
from aioqueue.store_rules._unique_keys import unique_hashes
from aioqueue.testing.memory._rows_jobs import Row
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.vocabulary._job import NewJob

__all__ = ["due_at", "expires_at", "first_due", "hold_back", "make_row", "require_storable", "seconds"]


def make_row(new: NewJob, now: datetime) -> Row:
    """The row of a new job, if it can be stored."""
    require_storable(new)
    run_at = first_due(new, now)
    row = Row(new, now, run_at, expires_at(new, run_at), unique_hash=next(iter(unique_hashes(new)), None))
    hold_back(row, len(new.blockers))
    return row


def hold_back(row: Row, number: int) -> None:
    """Make a row one that waits for so many chains, if there are any."""
    if number:
        row.state, row.open_blockers, row.marked = StoredState.HELD, number, True


def require_storable(new: NewJob) -> None:
    """Raise unless a job can be stored.

    Raises:
        RowRejected: It can't.
    """
    seconds(new.timeout or 0.0)
    seconds(new.keep or 0.0)
    require_json(new)


def first_due(new: NewJob, now: datetime) -> datetime:
    """When a new job is due. A time in the past means now."""
    return max(now, due_at(now, new.run_at, new.delay))


def expires_at(new: NewJob, run_at: datetime) -> datetime | None:
    """By when a job must have been started, counted from when it's due."""
    return None if new.expires is None else due_at(run_at, None, new.expires)


def due_at(now: datetime, moment: datetime | None, delay: float | None) -> datetime:
    """A moment that was given, or one that is so many seconds away."""
    if moment is not None and moment.tzinfo is None:
        raise RowRejected("a time without a zone")
    try:
        return moment or now + seconds(delay or 0.0)
    except OverflowError as error:
        raise RowRejected(f"in {delay} seconds there is no time any more") from error


def seconds(number: float) -> timedelta:
    """A duration, if it makes sense."""
    try:
        return timedelta(seconds=number)
    except (ValueError, OverflowError) as error:
        raise RowRejected(f"not a number of seconds: {number!r}") from error
