"""What operators do to jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.testing.memory._insert import holder_of
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._answers import Changed, Pruned
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.testing.memory._rows import Database, Row

__all__ = ["delete", "prune", "retry", "run_now"]


def retry(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Make failed and cancelled jobs pending again. See `Store.retry`."""
    now = database.now()
    return _change(database, ids, lambda steps: _retry(database, changed_by(steps), now), due)


def run_now(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Make pending jobs due. See `Store.run_now`."""
    now = database.now()
    return _change(database, ids, lambda steps: _run_now(changed_by(steps), now), due)


def delete(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Remove chains that don't run. See `Store.delete`."""
    return _change(database, ids, lambda steps: _delete(database, steps), gone)


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
    change: Callable[[Sequence[Row]], Changed],
    notification: Callable[[Sequence[Row]], Notification],
) -> list[Changed]:
    results: list[Changed] = []
    changed: list[Row] = []
    chains = Chains(database)
    done: set[UUID] = set()
    for steps in [named_by(chains, job_id) for job_id in ids]:
        if steps and steps[0].chain in done:
            results.append(Changed.DONE)
            continue
        results.append(change(steps) if steps else Changed.NOT_FOUND)
        if results[-1] is Changed.DONE:
            changed.append(changed_by(steps))
            done.add(steps[0].chain)
    if changed:
        database.tell(notification(changed))
    return results


def named_by(chains: Chains, job_id: UUID) -> Sequence[Row]:
    """What an operator means by an id: the steps of its chain."""
    return chains.steps_of(job_id)


def changed_by(steps: Sequence[Row]) -> Row:
    """The step that is retried or run for its chain."""
    row = the_end(steps)
    assert row is not None
    return row


def due(rows: Sequence[Row]) -> Notification:
    """What listeners are told of jobs that may be claimed now."""
    return Notification(types=frozenset(row.new.type for row in rows))


def gone(rows: Sequence[Row]) -> Notification:
    """What listeners are told of chains that were deleted: nobody's result will come."""
    return Notification(finished=frozenset(row.chain for row in rows))


def _retry(database: Database, row: Row, now: datetime) -> Changed:
    if row.state == StoredState.RUNNING:
        return Changed.RUNNING
    if row.state not in (StoredState.FAILED, StoredState.CANCELLED) or key_is_taken(database, row):
        return Changed.WRONG_STATE
    row.state, row.run_at, row.attempt, row.reschedules = StoredState.PENDING, now, 0, 0
    row.expires_at = row.started_at = row.finished_at = row.outcome = row.output = row.written = None
    return Changed.DONE


def key_is_taken(database: Database, row: Row) -> bool:
    """Whether somebody else has got a finished job's unique key."""
    if row.unique_hash is None:
        return False
    return any(holder_of(rows, (row.unique_hash,)) is not None for rows in (database.rows, database.uncommitted))


def _run_now(row: Row, now: datetime) -> Changed:
    if row.state != StoredState.PENDING:
        return Changed.RUNNING if row.state == StoredState.RUNNING else Changed.WRONG_STATE
    row.run_at = min(row.run_at, now)
    return Changed.DONE


def _delete(database: Database, steps: Sequence[Row]) -> Changed:
    if any(row.state == StoredState.RUNNING for row in steps):
        return Changed.RUNNING
    for row in removed(steps):
        database.remove(row)
    return Changed.DONE


def removed(steps: Sequence[Row]) -> Sequence[Row]:
    """What goes with a chain that is deleted."""
    return steps
