"""Removing what finished long ago, in portions along the index by state and time of the end. Runs in a write transaction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.sqlite._progress_kept import forget_beside
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._answers import Pruned
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

__all__ = ["prune"]

_LOOK = f"""
SELECT {ANY_ID}, typeof(coalesce(chain_id, id)) = 'blob', CAST(coalesce(chain_id, id) AS BLOB), finished_at,
    :types IS NULL OR type IN (SELECT value FROM json_each(:types))
FROM archive INDEXED BY archive_finished
WHERE state = :state AND finished_at <= {NOW} - :age AND (finished_at, id) > (:at, {any_id("after")})
ORDER BY finished_at, id LIMIT :limit
"""

_DELETE = f"DELETE FROM archive WHERE id = {any_id('id')}"

_BEGIN = RowId(blob=False, raw=b"")


def prune(
    connection: sqlite3.Connection,
    state: StoredState,
    older_than: float,
    types: Collection[str] | None,
    limit: int,
    cursor: str | None,
) -> tuple[Pruned, Notification | None]:
    """Remove one portion, as `aioqueue.abc.SupportsPrune` promises. Nothing can change between the two statements."""
    at, after = (-math.inf, _BEGIN) if cursor is None else _read(cursor)
    rows = connection.execute(
        _LOOK,
        {
            "state": int(state),
            "age": round(older_than * 1e6),
            "types": None if types is None else dump(list(types)),
            "at": at,
            "limit": limit,
            **after.parameters("after"),
        },
    ).fetchall()
    fitting = ((RowId.read(*row[0:2]), RowId.read(*row[2:4])) for row in rows if row[-1])
    removed = [each for each in fitting if connection.execute(_DELETE, each[0].parameters("id")).rowcount]
    forget_beside(connection, [row_id.text for row_id, _ in removed if not row_id.blob])
    following = _write(rows[-1][4], RowId.read(*rows[-1][0:2])) if len(rows) == limit else None
    pruned = Pruned(tuple(row_id.shown for row_id, _ in removed), following)
    # Chains go on without the steps that they have behind them.
    ended = frozenset(chain.shown for _, chain in removed) if state != StoredState.CONTINUED else frozenset[UUID]()
    return pruned, Notification(finished=ended) if ended else None


def _write(finished_at: float, row_id: RowId) -> str:
    return f"{finished_at!r} {'b' if row_id.blob else 't'}{row_id.raw.hex()}"


def _read(cursor: str) -> tuple[float, RowId]:
    """The time stays what it is in the table: an integer, or what somebody has written."""
    finished_at, _, row_id = cursor.partition(" ")
    at = int(finished_at) if finished_at.lstrip("-").isdecimal() else float(finished_at)
    return at, RowId(blob=row_id[0] == "b", raw=bytes.fromhex(row_id[1:]))
