"""The part of a statement that logs what it does to jobs, while somebody reads: see `_events`.

Where nobody reads that part ends before it has looked at anything but the readers' table, which is empty then. Where somebody
does, its rows are committed with what they tell of; a trigger of the table sends the notifications.
"""

from __future__ import annotations

from aioqueue.vocabulary._event_log import EventKind

__all__ = ["ENQUEUED", "UNLOGGED", "WATCHED", "logged", "logged_by"]

WATCHED = "EXISTS (SELECT FROM @schema@.reader r WHERE r.expires_at > now())"
"""Whether somebody reads, as far as the statement sees."""

_COLUMNS = ("kind", "job_id", "chain_id", "type", "attempt", "claims")

ENQUEUED = f"CASE WHEN {{state}} = 0 THEN '{EventKind.BLOCKED}' ELSE '{EventKind.ENQUEUED}' END"
"""What has happened to a new job in that state."""

UNLOGGED = """unlogged AS (
    DELETE FROM @schema@.event e
    WHERE e.xid = (SELECT pg_catalog.pg_current_xact_id()) AND e.job_id = ANY(ARRAY(SELECT id FROM {gone}))
)"""
"""A part of a `WITH`: takes back what this transaction has logged of jobs that were not to be stored after all."""


def logged(rows: str, *more: str, name: str = "logged") -> str:
    """A part of a `WITH` that logs.

    Arguments:
        rows: A query, whose first columns are `kind`, `job_id`, `chain_id`, `type`, `attempt` and `claims`. Of what has
            happened to one job what came first comes first.
        more: The names of its further columns.
        name: The part's.
    """
    columns = ", ".join((*_COLUMNS, *more))
    return f"""{name} AS (
    INSERT INTO @schema@.event ({columns})
    SELECT * FROM (
    {rows}
    ) AS happened WHERE {WATCHED}
)"""


def logged_by(call: str) -> str:
    """A query that logs by one of the schema's functions, whose result is NULL; somebody has to ask for that.

    For the statements of which there's one for each job where there's little to do: where nobody reads, a part that could
    insert by itself costs 10 µs and more, as that is made ready in any case, and this next to nothing.
    """
    return f"SELECT @schema@.{call} WHERE {WATCHED}"
