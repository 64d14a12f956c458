"""Finding the jobs of lost workers, and when there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._claim import readable
from aioqueue.testing.memory._gates import when_gates_open, with_turns
from aioqueue.testing.memory._pauses import due_times_with_pauses
from aioqueue.testing.memory._rows_jobs import FOR_EVER
from aioqueue.testing.memory._schedules_ticks import next_tick
from aioqueue.vocabulary._answers import Due
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["next_due", "take_expired"]


def take_expired(database: Database, limit: int, own: Collection[int]) -> list[ClaimedJob]:
    """Take one lease that has run out, and hand out jobs that run without any. See `Store.take_expired`."""
    now = database.now()
    ended = [lease_id for lease_id in database.leases if lease_id not in own and is_over(database, lease_id, now)][:1]
    for lease_id in ended:
        database.take_lease(lease_id)
        database.tell(Notification(leases=frozenset({lease_id})))
    found = readable(database, orphans(database, own, now), now)
    found.sort(key=lambda row: (row.started_at or now, row.new.id))
    return [database.recover(row) for row in found[:limit]]


def is_over(database: Database, lease_id: int, now: datetime) -> bool:
    """Whether a lease may be taken."""
    return not database.valid(lease_id, now)


def orphans(database: Database, own: Collection[int], now: datetime) -> list[Row]:
    """The jobs that run without a valid lease, whatever became of its row."""
    running = [row for row in database.rows.values() if row.state == StoredState.RUNNING]
    free = [row for row in running if not row.held]
    return [row for row in free if row.lease_id not in own and not database.valid(row.lease_id, now)]


def next_due(database: Database, types: Sequence[str], own: Collection[int], rules: Mapping[str, GateRules]) -> Due:
    """When there is something to do. See `Store.next_due`."""
    now, names = database.now(), frozenset(types)
    return Due(
        job=_soonest([*due_times(database, names, rules), *when_gates_open(database, now)], now),
        lease=_soonest(lease_ends(database, own, now), now),
        tick=next_tick(database),
    )


def due_times(database: Database, names: frozenset[str], rules: Mapping[str, GateRules]) -> list[datetime]:
    """When jobs may be claimed. What is never due isn't waited for."""
    rows = with_turns(database, [row for row in database.rows.values() if row.new.type in names], rules)
    return [each for each in due_times_with_pauses(database, rows, database.now()) if each != FOR_EVER]


def lease_ends(database: Database, own: Collection[int], now: datetime) -> list[datetime]:
    """When leases run out; now while a job runs without any."""
    ends = [lease.expires_at for lease_id, lease in database.leases.items() if lease_id not in own]
    if any(row.lease_id not in database.leases for row in orphans(database, own, now)):
        ends.append(now)
    return ends


def _soonest(moments: Iterable[datetime], now: datetime) -> float | None:
    first = min(moments, default=None)
    return None if first is None else max(0.0, (first - now).total_seconds())
