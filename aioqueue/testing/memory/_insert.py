"""Storing new jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle, DuplicateJob, StoreContended, WrongJobType
from aioqueue.store_rules._batches import needed_of_batch
from aioqueue.testing.memory._insert_blockers import Waits, stored_ids, tell_of_ended, wait, waits_for, waits_of
from aioqueue.testing.memory._insert_decisions import decide
from aioqueue.testing.memory._insert_keys import key_holder
from aioqueue.testing.memory._transaction_draft import Draft, make_changes
from aioqueue.vocabulary._job import Inserted
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._insert_decisions import Decisions
    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import NewJob

__all__ = ["announce", "insert", "store"]


def insert(database: Database, jobs: Sequence[NewJob], *, repeated: bool = False, apart: bool = False) -> list[Inserted]:
    """Store jobs, all or none, or each for itself. See `Store.insert`. Finished ones are looked at in any case, not only for a
    repetition.
    """
    there_before = gone_on(database, jobs) if repeated else ()
    if not apart:
        return store(database, jobs, there_before)
    return [_alone(database, new, there_before) for new in jobs]


def _alone(database: Database, new: NewJob, there_before: Collection[UUID]) -> Inserted:
    try:
        (result,) = store(database, [new], there_before)
    except (DuplicateJob, WrongJobType) as error:
        return Inserted(new.id, created=False, refused=error)
    return result


def store(
    database: Database, jobs: Sequence[NewJob], there_before: Collection[UUID] = (), needed: Collection[UUID] = ()
) -> list[Inserted]:
    """Store jobs, all or none, with what they wait for.

    Arguments:
        database: Where.
        jobs: In their order.
        there_before: Ids of jobs that were stored, though they may be gone.
        needed: Ids of those for which somebody else waits who is stored with them.
    """
    needed_of_batch(jobs)
    for new in jobs:
        held = new.id in database.uncommitted or (new.unique and key_holder(database.uncommitted, new) is not None)
        if held:
            raise StoreContended(f"an open transaction holds the unique key of {new.id}")
    now = database.now()
    decisions = decide(database, jobs, there_before, needed, now)
    ids = stored_ids(jobs, decisions.in_order)
    if not decisions.may_close_a_circle:
        tell_of_ended(database, _write(database, decisions, ids, now), now)
    else:
        draft = Draft(database, holding=database.holding)
        waits = _write(draft, decisions, ids, now)
        # Before what has ended is counted: one that fails through it at once closes a circle all the same.
        _require_no_circle(draft, decisions, waits)
        tell_of_ended(draft, waits, now)
        make_changes(database, draft.changes)
        for notification in draft.told:
            database.tell(notification)
    return decisions.in_order


def gone_on(database: Database, jobs: Sequence[NewJob]) -> Collection[UUID]:
    """The ids of those jobs of whose chains later steps are left: they were stored, though they may have been pruned since."""
    return {new.id for new in jobs} & {row.chain for row in database.rows.values()}


def _write(database: Database, decisions: Decisions, ids: dict[UUID, UUID], now: datetime) -> Waits:
    fresh, replaced = decisions.fresh.values(), decisions.replaced.values()
    waits = waits_of(database, decisions.fresh, decisions.wanted(), ids, now)
    for holder in decisions.taken.values():
        database.let_go(database.rows[holder.new.id])
    # In the order of the batch, in which sequences run.
    for job_id in dict.fromkeys(each.id for each in decisions.in_order if each.created or each.replaced):
        if job_id in decisions.fresh:
            database.add(decisions.fresh[job_id])
        else:
            row = decisions.replaced[job_id]
            database.replace(database.rows[job_id], row.new, row.run_at, row.expires_at, row.open_blockers)
            database.drop_edges(job_id)
    for unique_hash, window in decisions.windows.items():
        database.keep_window(unique_hash, window)
    wait(database, waits)
    announce(database, [row for row in (*fresh, *replaced) if row.new.id not in waits.edges])
    return waits


def _require_no_circle(database: Database, decisions: Decisions, waits: Waits) -> None:
    for job_id in decisions.stood_in:
        if waits_for(database, job_id, [edge.chain_id for edge in waits.edges.get(job_id, ())]):
            raise BlockerCycle(f"the job {job_id} would wait for itself, if another one took its place")


def announce(database: Database, rows: Sequence[Row]) -> None:
    """Tell listeners of jobs that were committed."""
    if rows:
        first = min(row.run_at for row in rows)
        delay = max(0.0, (first - database.now()).total_seconds())
        database.tell(Notification(types=frozenset(row.new.type for row in rows), delay=delay))
