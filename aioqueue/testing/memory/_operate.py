"""What operators do to jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.testing.memory._insert_rows import due_at
from aioqueue.testing.memory._operate_blockers import (
    in_turn,
    key_is_contended,
    key_is_taken,
    live_again,
    locked_behind,
    retry_dependents,
    staying,
    wait_again,
)
from aioqueue.testing.memory._resolve import note_deletion, tell_of_ends
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.testing.memory._rows_gates import gate_held_at
from aioqueue.testing.memory._rows_pauses import paused_key
from aioqueue.vocabulary._answers import Changed, Pruned
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["delete", "gone", "prune", "reschedule", "retry", "run_now"]

_RETRIED = (StoredState.FAILED, StoredState.CANCELLED)


def retry(database: Database, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> list[Changed]:
    """Make failed and cancelled jobs pending again. See `Store.retry`."""
    now = database.now()
    revived: list[Row] = []
    results: dict[UUID, Changed] = {}
    left, tried = _in_turn(database, ids), 0

    def begin_anew(steps: Sequence[Row]) -> Changed:
        row = changed_by(steps)
        if cascade and row.state in _RETRIED and locked_behind(database, row, now):
            return Changed.CONTENDED
        return _retry(database, row, now)

    while left and tried != len(left):
        tried = len(left)
        became = _change(database, left, begin_anew, revived)
        results.update(zip(left, became, strict=True))
        left = [each for each in left if results[each] is Changed.BLOCKER_FAILED]
    if from_start:
        for row in revived:
            database.forget_progress(row)
    if cascade:
        revived += retry_dependents(database, revived, now)
    if revived:
        database.tell(due(revived))
    return [results[each] for each in ids]


def _in_turn(database: Database, ids: Sequence[UUID]) -> list[UUID]:
    """The ids, so that a chain follows those of the others for which it waits."""
    chains = Chains(database)
    asked: dict[UUID, list[UUID]] = {}
    ends: dict[UUID, Row] = {}
    for each in dict.fromkeys(ids):
        steps = named_by(chains, each)
        chain = steps[0].chain if steps else each
        asked.setdefault(chain, []).append(each)
        if steps:
            ends[chain] = changed_by(steps)
    return [each for chain in dict.fromkeys([*(row.chain for row in in_turn(database, ends)), *asked]) for each in asked[chain]]


def run_now(database: Database, ids: Sequence[UUID]) -> list[Changed]:
    """Make pending jobs due. See `Store.run_now`."""
    now = database.now()
    changed: list[Row] = []
    results = _change(database, ids, lambda steps: _run_now(database, changed_by(steps), now), changed)
    if changed:
        database.tell(due(changed))
    return results


def reschedule(database: Database, ids: Sequence[UUID], delay: float | None, run_at: datetime | None) -> list[Changed]:
    """Change when pending jobs are due. See `Store.reschedule`."""
    now = database.now()
    due_then = max(now, due_at(now, run_at, delay))
    changed: list[Row] = []
    results = _change(database, ids, lambda steps: _reschedule(database, changed_by(steps), now, due_then), changed)
    if changed:
        database.tell(replace(due(changed), delay=(due_then - now).total_seconds()))
    return results


def delete(database: Database, ids: Sequence[UUID], *, cascade: bool = False) -> list[Changed]:
    """Remove chains, whatever their states. See `Store.delete`."""
    now = database.now()
    changed: list[Row] = []
    chains = {steps[0].chain: steps for each in ids if (steps := named_by(Chains(database), each))}
    contended = {chain for chain, steps in chains.items() if any(row.locked(now) for row in steps)}
    stays: set[UUID] = set() if cascade else staying(database, chains.keys() - contended)

    def remove(steps: Sequence[Row]) -> Changed:
        if steps[0].chain in contended:
            return Changed.CONTENDED
        return Changed.BLOCKS if steps[0].chain in stays else _delete(database, steps, cascade=cascade)

    results = _change(database, ids, remove, changed)
    if changed:
        leases = frozenset(row.lease_id for row in changed if row.state == StoredState.RUNNING)
        database.tell(replace(gone(changed), leases=leases))
        tell_of_ends(database, changed, now)
    return results


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
    database: Database, ids: Sequence[UUID], change: Callable[[Sequence[Row]], Changed], changed: list[Row]
) -> list[Changed]:
    results: list[Changed] = []
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
    return Notification(types=frozenset(row.new.type for row in rows if row.state == StoredState.PENDING))


def gone(rows: Sequence[Row]) -> Notification:
    """What listeners are told of chains that were deleted: nobody's result will come."""
    return Notification(finished=frozenset(row.chain for row in rows))


def _retry(database: Database, row: Row, now: datetime) -> Changed:
    if row.state == StoredState.RUNNING:
        return Changed.RUNNING
    if row.state not in _RETRIED:
        return Changed.WRONG_STATE
    if row.locked(now) or key_is_contended(database, row):
        return Changed.CONTENDED
    if key_is_taken(database, row):
        return Changed.KEY_HELD
    open_blockers = wait_again(database, row)
    if open_blockers is None:
        return Changed.BLOCKER_FAILED
    database.reopen(row, now, open_blockers)
    live_again(database, row)
    return Changed.DONE


def _run_now(database: Database, row: Row, now: datetime) -> Changed:
    why_not = _not_movable(row, now)
    if why_not is None:
        database.bring_forward(row, now)
    return why_not or Changed.DONE


def _reschedule(database: Database, row: Row, now: datetime, run_at: datetime) -> Changed:
    why_not = _not_movable(row, now)
    if why_not is None:
        database.reschedule(row, run_at)
    return why_not or Changed.DONE


def _not_movable(row: Row, now: datetime) -> Changed | None:
    """Why a job can't be made due at another time; None if it can."""
    if row.state != StoredState.PENDING and paused_key(row) is None and gate_held_at(row) is None:
        return Changed.RUNNING if row.state == StoredState.RUNNING else Changed.WRONG_STATE
    return Changed.CONTENDED if row.locked(now) else None


def _delete(database: Database, steps: Sequence[Row], *, cascade: bool) -> Changed:
    note_deletion(database, steps[-1], cascade=cascade)
    for row in removed(steps):
        database.remove(row)
    return Changed.DONE


def removed(steps: Sequence[Row]) -> Sequence[Row]:
    """What goes with a chain that is deleted."""
    return steps
