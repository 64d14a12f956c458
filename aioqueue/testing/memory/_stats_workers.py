"""Who works, and where a job stands in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._workers import LeaseFacts, Standing

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["leases", "standing"]


def leases(database: Database) -> list[LeaseFacts]:
    """All leases, by the worker's name."""
    now = database.now()
    running = [row.lease_id for row in database.rows.values() if row.state == StoredState.RUNNING]
    return [
        LeaseFacts(
            id=lease_id,
            worker=lease.worker,
            opened_at=lease.opened_at,
            ends_in=(lease.expires_at - now).total_seconds(),
            extra=lease.extra,
            types=lease.types,
            slots=lease.slots,
            running=running.count(lease_id),
            singleton=lease.singleton,
        )
        for lease_id, lease in sorted(database.leases.items(), key=lambda item: (item[1].worker, item[0]))
    ]


def standing(database: Database, job_id: UUID, types: Collection[str]) -> Standing | None:
    """Where a live job stands."""
    row, now = database.rows.get(job_id), database.now()
    if row is None or not row.live:
        return None
    before = sum(1 for each in database.rows.values() if each.new.type in types and comes_before(each, row, now))
    return Standing(
        now=now,
        lease_id=row.lease_id if row.state == StoredState.RUNNING else None,
        before=before if row.state == StoredState.PENDING else 0,
    )


def comes_before(row: Row, other: Row, now: datetime) -> bool:
    """Whether a due job is claimed before another one."""
    return row.state == StoredState.PENDING and row.run_at <= now and place(row) < place(other)


def place(row: Row) -> tuple[int, datetime, UUID]:
    """What jobs are claimed in the order of."""
    return row.new.priority, row.run_at, row.new.id
