"""The queue in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._listing import is_known, state_of
from aioqueue.testing.memory._rows_gates import is_in_fair_lane
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._stats import Stats, TypeStats

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["stats"]


def stats(database: Database) -> Stats:
    """Numbers by type and state, all of them exact."""
    now = database.now()
    counts: dict[str, dict[JobState, int]] = {}
    oldest: dict[str, float] = {}
    for row in counted(database.rows.values()):
        name, state = row.new.type, state_of(row, now)
        of_type = counts.setdefault(name, {})
        of_type[state] = of_type.get(state, 0) + 1
        if state is JobState.READY or is_in_fair_lane(row):
            oldest[name] = max(oldest.get(name, 0.0), (now - row.run_at).total_seconds())
    types = {name: TypeStats(counts=of_type, oldest_ready=oldest.get(name)) for name, of_type in counts.items()}
    leases = [lease for lease in database.leases.values() if lease.expires_at > now and not lease.extra]
    return Stats(types=types, workers=tuple(lease.worker for lease in leases))


def counted(rows: Collection[Row]) -> Collection[Row]:
    """The jobs that count: all of them, finished or not, whose state is known."""
    return [row for row in rows if is_known(row)]
