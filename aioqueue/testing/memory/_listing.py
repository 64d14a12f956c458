"""Jobs as people see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._cursors import read_cursor, read_position_cursor, write_cursor, write_position_cursor
from aioqueue.store_rules._phases import shown_phases
from aioqueue.store_rules._states import shown_state
from aioqueue.testing.memory._insert_keys import holds_key
from aioqueue.testing.memory._operate_cancel import asked_why
from aioqueue.testing.memory._resolve import is_an_end
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.testing.memory._rows_jobs import stored_origin
from aioqueue.vocabulary._job import Job, JobState, StoredState
from aioqueue.vocabulary._listing import IdPage, ListOrder, Page
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["fetch", "fetch_ends", "find", "is_known", "list_chain", "list_ids", "list_jobs", "state_of"]

KNOWN_STATES = frozenset(StoredState)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fetch(database: Database, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots in the order of the ids."""
    now = database.now()
    rows = [database.rows.get(each) for each in ids]
    return [None if row is None else _whole(database, row, now) for row in rows]


def fetch_ends(database: Database, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots of the steps that count, in the order of the ids. See `Store.fetch_ends`."""
    now, chains = database.now(), Chains(database)
    ends = [the_end(chains.steps_of(each)) for each in ids]
    return [None if row is None else _whole(database, row, now) for row in ends]


def list_chain(database: Database, chain_id: UUID, limit: int, cursor: str | None) -> Page:
    """One page of a chain, the first step first. See `Store.list_chain`."""
    now, after = database.now(), -1 if cursor is None else read_position_cursor(cursor)
    steps = [row for row in Chains(database).steps(chain_id) if follows(row, after)]
    jobs = [_job(database, row, now) for row in steps[:limit]]
    return Page(tuple(jobs), write_position_cursor(jobs[-1].position) if len(steps) > limit else None)


def follows(row: Row, position: int) -> bool:
    """Whether a step belongs to a later page of its chain."""
    return row.position > position


def list_jobs(database: Database, where: JobFilter, limit: int, cursor: str | None, order: ListOrder) -> Page:
    """One page in some order. See `Store.list`."""
    now, after = database.now(), None if cursor is None else read_cursor(order, cursor)
    ends = ends_of(database) if where.ends else None
    rows = [row for row in database.rows.values() if is_of_order(row, order) and (not where.states or is_known(row))]
    fitting = [row for row in in_order(rows, order) if after is None or is_behind(row, after, order)]
    jobs = [job for row in fitting if (ends is None or row.new.id in ends) and fits(job := _job(database, row, now), where)]
    return Page(tuple(jobs[:limit]), _cursor_behind(jobs[limit - 1], order) if len(jobs) > limit else None)


def list_ids(database: Database, where: JobFilter, limit: int, cursor: str | None) -> IdPage:
    """One page of ids, the newest first. See `Store.list_ids`."""
    page = list_jobs(database, where, limit, cursor, ListOrder.NEWEST)
    return IdPage(tuple(job.id for job in page.jobs), page.cursor)


def find(database: Database, types: Collection[str], key: str) -> Job | None:
    """The live or last step of the chain with a key. See `Store.find`."""
    chains = Chains(database)
    all_steps = [chains.steps(each) for each in dict.fromkeys(row.chain for row in database.rows.values())]
    ends = [steps[-1] for steps in all_steps if steps[0].new.type in types and steps[-1].new.key == key]
    best = max((row for row in ends if is_an_end(row)), key=found_before, default=None)
    return None if best is None else _job(database, best, database.now())


def found_before(row: Row) -> tuple[bool, bool, UUID]:
    """Which of several chains with one key is meant: the greatest."""
    return row.unique_hash is not None and holds_key(row), row.live, row.chain


def ends_of(database: Database) -> set[UUID]:
    """The live or last steps of all chains: not those that went on, though what followed is gone."""
    last: dict[UUID, Row] = {}
    for row in database.rows.values():
        if row.chain not in last or last[row.chain].position < row.position:
            last[row.chain] = row
    return {row.new.id for row in last.values() if is_an_end(row)}


def is_of_order(row: Row, order: ListOrder) -> bool:
    """Whether a listing in this order is about a job."""
    if order is ListOrder.DUE:
        return row.live
    return order is not ListOrder.FINISHED or not row.live


def in_order(rows: Iterable[Row], order: ListOrder) -> list[Row]:
    """The order of a listing."""
    return sorted(rows, key=lambda row: _place(row, order), reverse=order in (ListOrder.NEWEST, ListOrder.FINISHED))


def is_behind(row: Row, after: tuple[UUID, float | None], order: ListOrder) -> bool:
    """Whether a job belongs to a later page."""
    last, at = after
    place, end = _place(row, order), (0 if at is None else at, last)
    return place < end if order in (ListOrder.NEWEST, ListOrder.FINISHED) else place > end


def _place(row: Row, order: ListOrder) -> tuple[float, UUID]:
    at = {ListOrder.DUE: row.run_at, ListOrder.FINISHED: row.finished_at}.get(order)
    return 0 if at is None else _microseconds(at), row.new.id


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _cursor_behind(job: Job, order: ListOrder) -> str:
    at = {ListOrder.DUE: job.run_at, ListOrder.FINISHED: job.finished_at}.get(order)
    return write_cursor(order, job.id, None if at is None else _microseconds(at))


def fits(job: Job, where: JobFilter) -> bool:
    """Whether a job is one of those that are meant."""
    newest_error = None if job.last_error is None else job.last_error.type
    return (
        (not where.states or job.state in where.states)
        and (not where.types or job.type in where.types)
        and (where.tag is None or where.tag in job.tags)
        and where.key in (None, job.key)
        and where.chain_id in (None, job.chain_id)
        and (where.worker is None or (job.state is JobState.RUNNING and job.worker == where.worker))
        and where.outcome in (None, job.outcome)
        and where.error_type in (None, newest_error)
        and (where.first_id is None or where.first_id <= job.id)
        and (where.last_id is None or job.id <= where.last_id)
        and is_within(job.created_at, where.created_after, where.created_before)
        and is_within(job.finished_at, where.finished_after, where.finished_before)
    )


def is_within(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    """Whether a time is at one bound or later, and before the other."""
    if at is None:
        return after is None and before is None
    return (after is None or after <= at) and (before is None or at < before)


def is_known(row: Row) -> bool:
    """Whether a job's state is one that this code knows: what is found or counted by its state."""
    return row.state in KNOWN_STATES


def state_of(row: Row, now: datetime) -> JobState:
    """The state as people see it."""
    return shown_state(row.state, archived=not row.live, due=row.run_at <= now, blocked=row.open_blockers > 0)


def _whole(database: Database, row: Row, now: datetime) -> Job:
    """A snapshot with phases and progress, which listings don't have."""
    job, come = _job(database, row, now), database.come
    phases = shown_phases(come.phases_of(row.new.id), job.state)
    return replace(job, phases=phases, progress=come.progress_of(row.new.id))


def worker_of(database: Database, row: Row) -> str | None:
    """The name of the worker that runs a job, or has ended it."""
    if row.state == StoredState.RUNNING:
        lease = database.leases.get(row.lease_id)
        return None if lease is None else lease.worker
    return None if row.live else database.workers.get(row.lease_id)


def _job(database: Database, row: Row, now: datetime) -> Job:
    new = row.new
    return Job(
        id=new.id,
        chain_id=row.chain,
        position=row.position,
        type=new.type,
        state=state_of(row, now),
        priority=new.priority,
        payload=new.payload,
        created_at=row.created_at,
        run_at=row.run_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        attempt=row.attempt,
        max_attempts=new.max_attempts,
        worker=worker_of(database, row),
        output_json=row.output,
        outcome=row.outcome,
        errors=row.errors,
        key=new.key,
        tags=new.tags,
        metadata_json=new.metadata,
        timeout=new.timeout,
        expires_at=row.expires_at,
        reschedules=row.reschedules,
        trace=stored_trace(row.new.trace),
        open_blockers=row.open_blockers,
        cancel_reason=asked_why(database, row) if row.live else None,
        purge_at=row.purge_at,
        webhook=new.webhook or None,
        origin=stored_origin(new.origin),
        held_by=row.held_by,
    )
