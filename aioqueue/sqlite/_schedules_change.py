"""What operators do to schedules, and working out their next ticks anew. The functions run inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._schedules_put import FORGET_TICKS
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._schedules import ScheduleChange

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

__all__ = ["delete_schedules", "pause_schedules", "recompute_schedules", "resume_schedules"]

_OF_THESE = "name IN (SELECT value FROM json_each(:names))"

_THERE = f"SELECT name FROM schedule WHERE {_OF_THESE}"

_PAUSE = f"UPDATE schedule SET paused = 1, reason = :reason, by = :by WHERE {_OF_THESE}"

_RESUME = f"""
UPDATE schedule SET paused = 0, reason = '', by = '', since = {NOW}, next_at = NULL, version = version + 1
WHERE {_OF_THESE} AND paused = 1
"""

_DELETABLE = f"""
SELECT name, owner IS NOT NULL AND EXISTS (
    SELECT 1 FROM schedule_generation AS g WHERE g.owner = schedule.owner AND g.live_until > {NOW})
FROM schedule WHERE {_OF_THESE}
"""

_DELETE = f"DELETE FROM schedule WHERE {_OF_THESE}"

_RECOMPUTE_ALL = f"""
UPDATE schedule SET next_at = NULL, last_at = min(last_at, {NOW}), since = min(since, {NOW}), version = version + 1
WHERE next_at > {NOW}
"""
_RECOMPUTE = f"{_RECOMPUTE_ALL} AND {_OF_THESE}"


def pause_schedules(
    connection: sqlite3.Connection, names: Sequence[str], reason: str, by: str
) -> tuple[list[bool], Notification | None]:
    """Decide no ticks of these any more."""
    asked = {"names": dump(list(names))}
    connection.execute(_PAUSE, {**asked, "reason": reason, "by": by})
    return _there(connection, names), None


def resume_schedules(connection: sqlite3.Connection, names: Sequence[str]) -> tuple[list[bool], Notification | None]:
    """Decide ticks of these again, from now on."""
    resumed = connection.execute(_RESUME, {"names": dump(list(names))}).rowcount
    return _there(connection, names), Notification(schedules=True) if resumed else None


def _there(connection: sqlite3.Connection, names: Sequence[str]) -> list[bool]:
    found = {row[0] for row in connection.execute(_THERE, {"names": dump(list(names))}).fetchall()}
    return [each in found for each in names]


def delete_schedules(connection: sqlite3.Connection, names: Sequence[str]) -> tuple[list[ScheduleChange], None]:
    """Remove schedules that no live generation has."""
    found: dict[str, int] = dict(connection.execute(_DELETABLE, {"names": dump(list(names))}).fetchall())
    gone = {"names": dump([name for name, owned in found.items() if not owned])}
    connection.execute(_DELETE, gone)
    connection.execute(FORGET_TICKS, gone)
    answers: dict[int | None, ScheduleChange] = {
        None: ScheduleChange.NOT_FOUND,
        0: ScheduleChange.DONE,
        1: ScheduleChange.OWNED,
    }
    return [answers[found.get(each)] for each in names], None


def recompute_schedules(connection: sqlite3.Connection, names: Collection[str] | None) -> tuple[int, Notification | None]:
    """Forget next ticks that aren't due, as `aioqueue.abc.SupportsSchedules.recompute_schedules` promises."""
    if names is None:
        changed = connection.execute(_RECOMPUTE_ALL).rowcount
    else:
        changed = connection.execute(_RECOMPUTE, {"names": dump(sorted(names))}).rowcount
    return changed, Notification(schedules=True) if changed else None
