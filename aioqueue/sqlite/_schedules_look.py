"""Looking at schedules: which are due, one page by name, some by their names. The functions run in one snapshot of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_ids import RowId, any_id
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.sqlite._schedules_rows import COLUMNS, NEVER, schedule_of, with_ticks
from aioqueue.vocabulary._schedules import DueSchedules, SchedulePage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._schedules import StoredSchedule

__all__ = ["NEXT_TICK", "due_schedules", "fetch_schedules", "list_schedules"]

NEXT_TICK = f"""(SELECT iif(next_at IS NULL, 0, nullif(next_at, {NEVER})) FROM schedule INDEXED BY schedule_due
    WHERE paused = 0 ORDER BY next_at LIMIT 1)"""
"""When the first tick of any schedule is due; 0 where one isn't known."""

_COUNTS = "(:cron OR cron IS NULL) AND name NOT IN (SELECT value FROM json_each(:without))"

_DUE = f"""
SELECT * FROM (
    SELECT {COLUMNS} FROM schedule INDEXED BY schedule_due
    WHERE paused = 0 AND next_at IS NULL AND {_COUNTS} ORDER BY name LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT {COLUMNS} FROM schedule INDEXED BY schedule_due
    WHERE paused = 0 AND next_at <= :now AND {_COUNTS} ORDER BY next_at, name LIMIT :limit)
LIMIT :limit
"""

_THERE = "SELECT 1 FROM schedule WHERE name = :name"

_NEXT = f"""
SELECT next_at FROM schedule INDEXED BY schedule_due
WHERE paused = 0 AND next_at > :now AND next_at < {NEVER} AND {_COUNTS} ORDER BY next_at LIMIT 1
"""

_PAGE = f"""
SELECT {COLUMNS}, CAST(name AS BLOB) FROM schedule WHERE name > {any_id("after")} ORDER BY name LIMIT :limit
"""

_FETCH = f"SELECT {COLUMNS} FROM schedule WHERE name IN (SELECT value FROM json_each(:names))"


def due_schedules(connection: Statements, limit: int, *, cron: bool, without: Collection[str]) -> DueSchedules:
    """Which ticks are due, as `aioqueue.abc.SupportsSchedules.due_schedules` says."""
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    asked = {"now": now, "limit": limit, "cron": cron, "without": dump(sorted(without))}
    following = connection.execute(_NEXT, asked).fetchone()
    due = map(schedule_of, connection.execute(_DUE, asked).fetchall())
    return DueSchedules(
        now=moment(now),
        schedules=tuple(each for each in due if _can_be_named(connection, each.name)),
        next_in=None if following is None else (following[0] - now) / 1e6,
    )


def _can_be_named(connection: Statements, name: str) -> bool:
    """Whether a schedule is found by its name as it's read: not one that somebody has written as what isn't UTF-8."""
    return "\ufffd" not in name or connection.execute(_THERE, {"name": name}).fetchone() is not None


def list_schedules(connection: Statements, limit: int, cursor: str | None) -> SchedulePage:
    """One page, as `aioqueue.abc.SupportsSchedules.list_schedules` says. A cursor is the last name's bytes, as they're stored.

    Raises:
        ValueError: The cursor isn't one of ours, or the limit isn't positive.
    """
    if limit < 1:
        raise ValueError(f"limit must be positive, not {limit!r}")
    after = RowId(blob=False, raw=b"" if cursor is None else bytes.fromhex(cursor))
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    rows = connection.execute(_PAGE, {**after.parameters("after"), "limit": limit + 1}).fetchall()
    page = rows[:limit]
    return SchedulePage(
        schedules=tuple(with_ticks(connection, [schedule_of(row[:-1]) for row in page])),
        cursor=page[-1][-1].hex() if len(rows) > limit else None,
        now=moment(now),
    )


def fetch_schedules(connection: Statements, names: Sequence[str]) -> list[StoredSchedule | None]:
    """Schedules in the order of the names."""
    rows = connection.execute(_FETCH, {"names": dump(list(names))}).fetchall()
    found = {each.name: each for each in with_ticks(connection, [schedule_of(row) for row in rows])}
    return [found.get(each) for each in names]
