"""Removing chains once they're old enough."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.testing.memory._operate import gone
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.testing.memory._rows_jobs import later
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._listing import IdPage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = ["find_old", "purge"]


def find_old(database: Database, ages: Mapping[StoredState, float], limit: int, cursor: str | None) -> IdPage:
    """Find chains that are old enough. See `SupportsRetention.find_old`."""
    now, chains = database.now(), Chains(database)
    times = [(at, row.new.id, row) for row in database.rows.values() if (at := removable_at(row, ages)) and at <= now]
    begin = _read_cursor(cursor)
    looked = sorted(each for each in times if begin is None or each[:2] > begin)[:limit]
    found = [row.chain for _, _, row in looked if what_counts(chains.steps(row.chain)) is row]
    ended = f"{looked[-1][0].isoformat()} {looked[-1][1]}" if len(looked) == limit else None
    return IdPage(tuple(found), ended)


def _read_cursor(cursor: str | None) -> tuple[datetime, UUID] | None:
    if cursor is None:
        return None
    at, _, after = cursor.partition(" ")
    return datetime.fromisoformat(at).astimezone(UTC), UUID(after)


def what_counts(steps: Sequence[Row]) -> Row | None:
    """The step whose age is its chain's: the live or last one."""
    return the_end(steps)


def removable_at(row: Row, ages: Mapping[StoredState, float]) -> datetime | None:
    """From when on a finished job may be removed; None if it may not."""
    if row.live or row.finished_at is None:
        return None
    age = ages.get(StoredState(row.state))
    if row.purge_at is not None or age is None:
        return row.purge_at
    return later(row.finished_at, age)


def purge(database: Database, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> list[UUID]:
    """Remove whole chains. See `SupportsRetention.purge`."""
    now, chains = database.now(), Chains(database)
    removed: list[Row] = []
    for chain_id in dict.fromkeys(chain_ids):
        steps = chains.steps(chain_id)
        last = what_counts(steps)
        if last is None or not may_be_removed(last, ages, now) or is_held(steps, now):
            continue
        for row in purged(steps):
            database.remove(row)
        removed.append(last)
    if removed:
        database.tell(gone(removed))
    return [row.chain for row in removed]


def may_be_removed(last: Row, ages: Mapping[StoredState, float], now: datetime) -> bool:
    """Whether a chain is old enough, of which this is the live or last step."""
    at = removable_at(last, ages)
    return at is not None and at <= now


def is_held(steps: Sequence[Row], now: datetime) -> bool:
    """Whether somebody has locked a chain."""
    return any(row.locked(now) for row in steps)


def purged(steps: Sequence[Row]) -> Sequence[Row]:
    """What goes with a chain that is old enough."""
    return steps
