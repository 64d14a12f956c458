"""Jobs as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.store_rules._cursors import read_cursor, read_position_cursor, write_cursor, write_position_cursor
from aioqueue.store_rules._states import shown_state
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._job import Job, StoredState
from aioqueue.vocabulary._listing import ListOrder, Page
from aioqueue.vocabulary._trace import stored_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database, Row
    from aioqueue.vocabulary._job import JobState
    from aioqueue.vocabulary._listing import JobFilter

__all__ = ["fetch", "fetch_ends", "is_known", "list_chain", "list_jobs", "state_of"]

KNOWN_STATES = frozenset(StoredState)


def fetch(database: Database, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots in the order of the ids."""
    now = database.now()
    rows = [database.rows.get(each) for each in ids]
    return [None if row is None else _job(database, row, now) for row in rows]


def fetch_ends(database: Database, ids: Sequence[UUID]) -> list[Job | None]:
    """Snapshots of the steps that count, in the order of the ids. See `Store.fetch_ends`."""
    now, chains = database.now(), Chains(database)
    ends = [the_end(chains.steps_of(each)) for each in ids]
    return [None if row is None else _job(database, row, now) for row in ends]


def list_chain(database: Database, chain_id: UUID, limit: int, cursor: str | None) -> Page:
    """One page of a chain, the first step first. See `Store.list_chain`."""
    now, after = database.now(), -1 if cursor is None else read_position_cursor(cursor)
    steps = [row for row in Chains(database).steps(chain_id) if follows(row, after)]
    jobs = [_job(database, row, now) for row in steps[:limit]]
    return Page(tuple(jobs), write_position_cursor(jobs[-1].position) if len(steps) > limit else None)


def follows(row: Row, position: int) -> bool:
    """Whether a step belongs to a later page of its chain."""
    return row.position > position


def list_jobs(database: Database, where: JobFilter, limit: int, cursor: str | None) -> Page:
    """One page, the newest id first. See `Store.list`."""
    now, after = database.now(), None if cursor is None else read_cursor(ListOrder.NEWEST, cursor)[0]
    rows = (row for row in database.rows.values() if after is None or is_behind(row.new.id, after))
    fitting = (row for row in newest_first(rows) if not where.states or is_known(row))
    jobs = [job for row in fitting if _fits(job := _job(database, row, now), where)]
    return Page(tuple(jobs[:limit]), write_cursor(ListOrder.NEWEST, jobs[limit - 1].id) if len(jobs) > limit else None)


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """The order of a listing."""
    return sorted(rows, key=lambda row: row.new.id, reverse=True)


def is_behind(job_id: UUID, after: UUID) -> bool:
    """Whether a job belongs to a later page."""
    return job_id < after


def _fits(job: Job, where: JobFilter) -> bool:
    return (
        (not where.states or job.state in where.states)
        and (not where.types or job.type in where.types)
        and (where.key is None or job.key == where.key)
        and (where.tag is None or where.tag in job.tags)
    )


def is_known(row: Row) -> bool:
    """Whether a job's state is one that this code knows: what is found or counted by its state."""
    return row.state in KNOWN_STATES


def state_of(row: Row, now: datetime) -> JobState:
    """The state as people see it."""
    return shown_state(row.state, archived=not row.live, due=row.run_at <= now)


def _job(database: Database, row: Row, now: datetime) -> Job:
    new = row.new
    lease = database.leases.get(row.lease_id) if row.state == StoredState.RUNNING else None
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
        worker=None if lease is None else lease.worker,
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
    )
