"""The columns of a new job: how they're carried to a statement, and what is stored of them, of first and of next ones."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import RowRejected
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.vocabulary._job import NewJob

__all__ = [
    "CLOCK",
    "DUE",
    "GIVEN",
    "STORED",
    "VALUES",
    "array",
    "as_text",
    "job_columns",
    "refuse_naive",
    "unless_empty",
    "unnested",
]

T = TypeVar("T")

CLOCK = "clock AS MATERIALIZED (SELECT clock_timestamp() AS now)"
"""A part of a `WITH`: the time at which the jobs are stored."""

GIVEN = """id, type, priority, delay, run_at, expires, max_attempts, timeout, tags, retry, metadata, payload, trace,
         keep, webhook, origin"""
"""What `job_columns` gives, by name."""

_TYPES = (
    "uuid",
    "text",
    "smallint",
    "float8",
    "timestamptz",
    "float8",
    "integer",
    "float8",
    *["text"] * 5,
    "float8",
    *["text"] * 2,
)

STORED = """id, type, priority, run_at, expires_at, max_attempts, timeout, created_at, trace, tags, retry, metadata, payload"""
"""The table's columns that these make, with `VALUES`. `keep`, `webhook` and `origin` are beside them: a next job may take
them over."""

VALUES = """given.id, given.type, given.priority, due.at, due.at + given.expires * interval '1 second', given.max_attempts,
           given.timeout, clock.now, given.trace, coalesce(given.tags::text[], '{}'), given.retry::json,
           coalesce(given.metadata::json, '{}'), given.payload::json"""

DUE = """CROSS JOIN LATERAL (
        SELECT greatest(clock.now, coalesce(given.run_at, clock.now + given.delay * interval '1 second', clock.now)) AS at
    ) AS due"""
"""Joined to `clock` and `given`."""


def unnested(first: int) -> str:
    """The parameters for `job_columns`, from this number, as arguments of `unnest`."""
    return ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(_TYPES, first))


def array(tags: Iterable[str]) -> str | None:
    """Texts as one text that `::text[]` reads; None for none of them."""
    quoted = ['"' + tag.replace("\\", "\\\\").replace('"', '\\"') + '"' for tag in tags]
    return "{" + ",".join(quoted) + "}" if quoted else None


def as_text(value: bytes) -> str:
    """JSON as text.

    Raises:
        RowRejected: It isn't UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RowRejected(f"JSON that isn't UTF-8: {error}") from None


def refuse_naive(jobs: Sequence[NewJob]) -> None:
    """Refuse due times without a time zone.

    Raises:
        RowRejected: One has none.
    """
    if any(job.run_at is not None and job.run_at.utcoffset() is None for job in jobs):
        raise RowRejected("run_at has no time zone, so it could mean several moments")


def job_columns(jobs: Sequence[NewJob]) -> list[Any]:
    """One array for each column of `GIVEN`.

    Raises:
        RowRejected: A row can't be stored.
    """
    refuse_naive(jobs)
    delays, expires, timeouts = [job.delay for job in jobs], [job.expires for job in jobs], [job.timeout for job in jobs]
    keeps = [job.keep for job in jobs]
    for column in (delays, expires, timeouts, keeps):
        # PostgreSQL 17 and newer would make an infinite time of it.
        if not all(map(isfinite, filter(None, column))):
            raise RowRejected("delay, expires, timeout and keep must be finite")
    return [
        [job.id for job in jobs],
        [job.type for job in jobs],
        [job.priority for job in jobs],
        delays,
        [job.run_at for job in jobs],
        expires,
        [job.max_attempts for job in jobs],
        timeouts,
        [array(job.tags) if job.tags else None for job in jobs],
        [None if job.retry is None else as_text(job.retry) for job in jobs],
        [None if job.metadata == b"{}" else as_text(job.metadata) for job in jobs],
        [as_text(job.payload) for job in jobs],
        [None if job.trace is None else stored_trace(job.trace) for job in jobs],
        unless_empty(keeps),
        unless_empty([job.webhook for job in jobs]),
        unless_empty([None if job.origin is None else job.origin.encode() for job in jobs]),
    ]


def unless_empty(column: list[T | None]) -> list[T | None]:
    """Leave out a column of nothing but NULL: `unnest` fills it up, and the driver takes its time over each value."""
    return column if any(value is not None for value in column) else []
