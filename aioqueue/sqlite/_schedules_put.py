"""Storing schedules: those that were put at run time, and those of a registry's code. Runs inside an open write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import ScheduleOwned
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._schedules_rows import COLUMNS, definition_values, schedule_of
from aioqueue.store_rules._generations import KEPT_GENERATIONS, KnownGeneration, decide
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._schedules import Reconciled

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from aioqueue.vocabulary._schedules import Generation, NewSchedule, StoredSchedule

__all__ = ["FORGET_TICKS", "put_schedules", "reconcile_schedules"]

_FETCH = f"SELECT {COLUMNS} FROM schedule WHERE name = :name"

_INSERT = """
INSERT INTO schedule (name, owner, job_type, template, cron, every, timezone, catch_up, grace, catch_up_limit, overlap,
                      version, since, anchor)
VALUES (:name, :owner, :job_type, :template, :cron, :every, :timezone, :catch_up, :grace, :catch_up_limit, :overlap,
        1 + abs(random() % 1000000000), :now, :now)
"""
"""A tick of one that was deleted isn't taken for one of another with its name: no two begin with the same version."""

_CHANGE = """
UPDATE schedule SET job_type = :job_type, template = :template, cron = :cron, every = :every, timezone = :timezone,
    catch_up = :catch_up, grace = :grace, catch_up_limit = :catch_up_limit, overlap = :overlap, version = version + 1,
    since = iif(:anew, :now, since), anchor = iif(:anew, :now, anchor), next_at = iif(:anew, NULL, next_at)
WHERE name = :name
"""

_KNOWN = f"SELECT digest, release, seen, live_until > {NOW} FROM schedule_generation WHERE owner = :owner"

_LIVES = f"""
INSERT INTO schedule_generation (owner, seen, digest, release, live_until)
VALUES (:owner, :seen, :digest, :release, {NOW} + :live)
ON CONFLICT (owner, seen) DO UPDATE SET live_until = max(live_until, excluded.live_until)
"""

_FORGET_GENERATIONS = """
DELETE FROM schedule_generation WHERE owner = :owner AND seen IN (
    SELECT seen FROM schedule_generation WHERE owner = :owner ORDER BY live_until DESC, seen DESC LIMIT -1 OFFSET :kept)
"""

_OTHERS = """
SELECT name FROM schedule INDEXED BY schedule_owner
WHERE owner = :owner AND name NOT IN (SELECT value FROM json_each(:names)) ORDER BY name
"""

_REMOVE = """
DELETE FROM schedule WHERE name IN (
    SELECT name FROM schedule INDEXED BY schedule_owner
    WHERE owner = :owner AND name NOT IN (SELECT value FROM json_each(:names)))
"""

FORGET_TICKS = "DELETE FROM schedule_tick WHERE schedule IN (SELECT value FROM json_each(:names))"


def put_schedules(connection: sqlite3.Connection, schedules: Sequence[NewSchedule]) -> tuple[list[bool], Notification | None]:
    """Store schedules without an owner, as `aioqueue.abc.SupportsSchedules.put_schedules` promises.

    Raises:
        ScheduleOwned: One has the name of a registry's schedule.
    """
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    changed: list[bool] = []
    for each in schedules:
        stored = _stored(connection, each.name)
        if stored is not None and stored.definition.owner is not None:
            raise ScheduleOwned(
                f"the schedule {each.name!r} is defined in the code of {stored.definition.owner!r}: change it there, or "
                "choose another name",
                name=each.name,
            )
        changed.append(_put(connection, each, stored, now))
    return changed, Notification(schedules=True) if any(changed) else None


def _stored(connection: sqlite3.Connection, name: str) -> StoredSchedule | None:
    row = connection.execute(_FETCH, {"name": name}).fetchone()
    return None if row is None else schedule_of(row)


def _put(connection: sqlite3.Connection, schedule: NewSchedule, stored: StoredSchedule | None, now: int) -> bool:
    """Store one, or change it to this. Returns whether that was needed."""
    values = {**definition_values(schedule), "now": now}
    if stored is None:
        connection.execute(_INSERT, values)
        return True
    if stored.definition == schedule:
        return False
    connection.execute(_CHANGE, {**values, "anew": stored.definition.timing != schedule.timing})
    return True


def reconcile_schedules(
    connection: sqlite3.Connection, generation: Generation, schedules: Sequence[NewSchedule], live: float
) -> tuple[Reconciled, Notification | None]:
    """Make these the schedules of their owner, as `aioqueue.abc.SupportsSchedules.reconcile_schedules` promises."""
    owner = {"owner": generation.owner}
    rows = connection.execute(_KNOWN, owner).fetchall()
    known = [KnownGeneration(digest, release, seen, bool(lives)) for digest, release, seen, lives in rows]
    decision = decide(generation, known)
    if decision.refused:
        return Reconciled(current=False, refused=True), None
    this = {**owner, "seen": decision.seen, "digest": generation.digest, "release": generation.release}
    connection.execute(_LIVES, {**this, "live": round(live * 1e6)})
    connection.execute(_FORGET_GENERATIONS, {**owner, "kept": KEPT_GENERATIONS})
    if not decision.current:
        return Reconciled(current=False), None
    changed, taken = _store_own(connection, generation.owner, schedules)
    asked = {**owner, "names": dump([each.name for each in schedules])}
    removed = [row[0] for row in connection.execute(_OTHERS, asked).fetchall()]
    if removed:
        connection.execute(_REMOVE, asked)
        connection.execute(FORGET_TICKS, {"names": dump(removed)})
    told = Notification(schedules=True) if changed or removed else None
    return Reconciled(current=True, changed=tuple(changed), removed=tuple(removed), taken=tuple(taken)), told


def _store_own(connection: sqlite3.Connection, owner: str, schedules: Sequence[NewSchedule]) -> tuple[list[str], list[str]]:
    """Store those whose names nobody else has. Returns the names of those that weren't stored like this before, and of those
    whose names are taken.
    """
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    changed: list[str] = []
    taken: list[str] = []
    for each in schedules:
        stored = _stored(connection, each.name)
        if stored is not None and stored.definition.owner != owner:
            taken.append(each.name)
        elif _put(connection, each, stored, now):
            changed.append(each.name)
    return changed, sorted(taken)
