"""Who works, and where a job stands in line. Runs in a reader's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._lease_clock import LEASE_END, clock_parameters
from aioqueue.sqlite._rows import dump, tags_of, text_of
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._workers import LeaseFacts, Standing

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["read_leases", "read_standing"]

_LEASES = f"""
SELECT id, worker, opened_at, {LEASE_END} - {NOW}, extra, types, slots, singleton,
    (SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = lease.id LIMIT :cap))
FROM lease ORDER BY worker, id LIMIT 10000
"""

_STANDING = f"SELECT {NOW}, state, priority, run_at, lease_id FROM job WHERE id = :id"

# The row before which is counted belongs to one lane; of the more urgent ones everything that is due comes before it.
_BEFORE = f"""
SELECT count(*) FROM (
    SELECT 1 FROM json_each(:types) AS t CROSS JOIN json_each('[1,2,3,4]') AS p
    CROSS JOIN job INDEXED BY job_due
        ON job.state = 1 AND job.type = t.value AND job.priority = p.value
        AND job.run_at <= iif(p.value < :priority, {NOW}, min(:run_at, {NOW}))
    WHERE p.value <= :priority AND (p.value < :priority OR job.run_at < :run_at OR job.id < :id)
    LIMIT :cap)
"""


def read_leases(connection: Statements) -> list[LeaseFacts]:
    """All leases, as `aioqueue.abc.Store.leases` says."""
    rows = connection.execute(_LEASES, {**clock_parameters(), "cap": MOST_COUNTED_JOBS}).fetchall()
    return [_facts(*row) for row in rows]


def _facts(
    lease_id: int, worker: Any, opened_at: Any, ends_in: Any, extra: Any, types: Any, slots: Any, singleton: Any, running: int
) -> LeaseFacts:
    return LeaseFacts(
        id=lease_id,
        worker=text_of(worker),
        opened_at=None if opened_at is None else moment(opened_at),
        ends_in=ends_in / 1e6 if isinstance(ends_in, (int, float)) else 0.0,
        extra=bool(extra),
        types=None if types is None else tags_of(types),
        slots=slots if isinstance(slots, int) else None,
        running=running,
        singleton=None if singleton is None else text_of(singleton),
    )


def read_standing(connection: Statements, job_id: UUID, types: Collection[str]) -> Standing | None:
    """Where a live job stands, as `aioqueue.abc.Store.standing` says."""
    row = connection.execute(_STANDING, {"id": str(job_id)}).fetchone()
    if row is None:
        return None
    now, state, priority, run_at, lease_id = row
    before = 0
    if state == StoredState.PENDING:
        place = {"id": str(job_id), "priority": priority, "run_at": run_at}
        before = connection.execute(_BEFORE, {**place, "types": dump(sorted(types)), "cap": MOST_COUNTED_JOBS}).fetchone()[0]
    held = state == StoredState.RUNNING and isinstance(lease_id, int)
    return Standing(now=moment(now), lease_id=lease_id if held else None, before=before)
