"""What operators do to jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.testing.memory._insert import key_holder
from aioqueue.vocabulary._answers import Changed, Pruned
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.testing.memory._rows import Database, Row

__all__ = ["delete", "prune", "retry", "run_now"]


def retry(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Make failed and cancelled jobs pending again. See `Store.retry`."""
    return _change(database, ids, lambda row: _retry(database, row), due)


def run_now(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Make pending jobs due. See `Store.run_now`."""
    return _change(database, ids, lambda row: _run_now(database, row), due)


def delete(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Remove jobs that don't run. See `Store.delete`."""
    return _change(database, ids, lambda row: _delete(database, row), gone)


def prune(
    database: Database,
    state: StoredState,
    older_than: float,
    types: Collection[str] | None,
    limit: int,
    cursor: str | None,
) -> Pruned:
    """Remove a portion of what finished long ago. See `SupportsPrune.prune`."""
    at, _, after = (cursor or f"0001-01-01T00:00:00+00:00 {UUID(int=0)}").partition(" ")
    begin = datetime.fromisoformat(at), UUID(after)
    old = sorted(
        (row.finished_at, row.new.id, row)
        for row in database.rows.values()
        if row.state == state and row.finished_at is not None and finished_before(row, database.now(), older_than)
    )
    looked = [each for each in old if each[:2] > begin][:limit]
    rows = [row for _, _, row in looked if types is None or row.new.type in types]
    for row in rows:
        database.remove(row)
    if rows:
        database.tell(gone(rows))
    ended = f"{looked[-1][0].isoformat()} {looked[-1][1]}" if len(looked) == limit else None
    return Pruned(tuple(row.new.id for row in rows), ended)


def finished_before(row: Row, now: datetime, seconds: float) -> bool:
    """Whether a job finished as many seconds ago, or earlier."""
    return row.finished_at is not None and now - row.finished_at >= timedelta(seconds=seconds)


def _change(
    database: Database,
    ids: Sequence[UUID],
    change: Callable[[Row], Changed],
    notification: Callable[[Sequence[Row]], Notification],
) -> list[Changed]:
    results: list[Changed] = []
    changed: list[Row] = []
    for job_id in ids:
        row = database.rows.get(job_id)
        results.append(Changed.NOT_FOUND if row is None else change(row))
        if row is not None and results[-1] is Changed.DONE:
            changed.append(row)
    if changed:
        database.tell(notification(changed))
    return results


def due(rows: Sequence[Row]) -> Notification:
    """What listeners are told of jobs that may be claimed now."""
    return Notification(types=frozenset(row.new.type for row in rows))


def gone(rows: Sequence[Row]) -> Notification:
    """What listeners are told of jobs that were deleted: nobody's result will come."""
    return Notification(finished=frozenset(row.new.id for row in rows))


def _retry(database: Database, row: Row) -> Changed:
    if row.state == StoredState.RUNNING:
        return Changed.RUNNING
    if row.state not in (StoredState.FAILED, StoredState.CANCELLED) or key_is_taken(database, row):
        return Changed.WRONG_STATE
    row.state, row.run_at, row.attempt, row.reschedules = StoredState.PENDING, database.now(), 0, 0
    row.expires_at = row.started_at = row.finished_at = row.outcome = row.output = row.written = None
    return Changed.DONE


def key_is_taken(database: Database, row: Row) -> bool:
    """Whether somebody else has got a finished job's unique key."""
    if not row.new.unique:
        return False
    return any(key_holder(rows, row.new) is not None for rows in (database.rows, database.uncommitted))


def _run_now(database: Database, row: Row) -> Changed:
    if row.state != StoredState.PENDING:
        return Changed.RUNNING if row.state == StoredState.RUNNING else Changed.WRONG_STATE
    row.run_at = min(row.run_at, database.now())
    return Changed.DONE


def _delete(database: Database, row: Row) -> Changed:
    if row.state == StoredState.RUNNING:
        return Changed.RUNNING
    database.remove(row)
    return Changed.DONE
