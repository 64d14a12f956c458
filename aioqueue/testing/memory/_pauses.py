"""Pausing: types are left out by claims, jobs with a paused key are parked by them. See `SupportsPauses`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._rows_gates import is_in_fair_lane
from aioqueue.testing.memory._rows_pauses import ends_of, paused_key
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, Pause, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._pauses import NewPause

__all__ = ["RESUMED_AT_ONCE", "due_times_with_pauses", "list_pauses", "park", "pause", "resume", "type_is_paused", "unpark"]

RESUMED_AT_ONCE = 100
"""Parked jobs that `resume` brings back; `tend` goes on with the rest."""
COUNTED = 10_000
"""How far it's counted who waits for a pause's end."""


def pause(database: Database, pauses: Sequence[NewPause]) -> None:
    """Store pauses. See `SupportsPauses.pause`."""
    now = database.now()
    for each in pauses:
        stored = Pause(target=each.target, value=each.value, by=each.by, reason=each.reason, until=each.until, at=now)
        database.pauses.put(stored)
    database.gates.mark_sequences(database.rows.values())


def resume(database: Database, target: PauseTarget, values: Collection[str], by: str | None) -> int:
    """Lift pauses. See `SupportsPauses.resume`."""
    lifted = [each for each in database.pauses.valid(database.now()) if is_meant(each, target, values, by)]
    database.pauses.remove(lifted)
    if lifted:
        database.gates.mark_sequences(database.rows.values())
    unpark(database, RESUMED_AT_ONCE)
    if lifted and target is not PauseTarget.KEY:
        database.tell(Notification(types=None if target is PauseTarget.ALL else frozenset(values)))
    return len(lifted)


def is_meant(pause: Pause, target: PauseTarget, values: Collection[str], by: str | None) -> bool:
    """Whether a pause is one of those that are lifted."""
    return pause.target is target and pause.value in values and by in (None, pause.by)


def list_pauses(database: Database) -> list[Pause]:
    """What is paused, and how many wait. See `SupportsPauses.list_pauses`."""
    now = database.now()
    waiting = [row for row in database.rows.values() if waits_for_a_pause(row, now)]
    return [
        Pause(
            target=each.target,
            value=each.value,
            by=each.by,
            reason=each.reason,
            until=each.until,
            at=each.at,
            waiting=min(sum(1 for row in waiting if is_about(each, row)), COUNTED),
        )
        for each in database.pauses.valid(now)
    ]


def waits_for_a_pause(row: Row, now: datetime) -> bool:
    """Whether a job would be claimed if nothing were paused."""
    parked = row.state == StoredState.HELD and paused_key(row) is not None
    return (parked or row.state == StoredState.PENDING) and row.run_at <= now


def is_about(pause: Pause, row: Row) -> bool:
    """Whether a pause keeps a job from being claimed."""
    if pause.target is PauseTarget.KEY:
        return row.new.key == pause.value
    return pause.target is PauseTarget.ALL or row.new.type == pause.value


def type_is_paused(database: Database, name: str, now: datetime) -> bool:
    """Whether no job of a type may be claimed."""
    return bool(database.pauses.of_type(name, now))


def key_is_paused(database: Database, key: str | None, now: datetime) -> bool:
    """Whether no job with a key may be claimed."""
    return bool(database.pauses.of_key(key, now))


def park(database: Database, rows: Sequence[Row], now: datetime) -> list[Row]:
    """Put those aside, of jobs that are about to be claimed, whose key is paused; returns the others."""
    sound: list[Row] = []
    for row in rows:
        if row.new.key is not None and key_is_paused(database, row.new.key, now):
            database.park(row, HELD_BY_PAUSE + row.new.key)
        else:
            sound.append(row)
    return sound


def unpark(database: Database, limit: int) -> tuple[int, bool]:
    """Bring jobs back whose key isn't paused any more, a portion; returns how many, and whether there are more."""
    now = database.now()
    parked = [row for row in database.rows.values() if comes_back(database, row, now)]
    back = sorted(parked, key=lambda row: (row.new.priority, row.run_at, row.new.id))[:limit]
    for row in back:
        database.unpark(row, now)
    if back:
        delay = max(0.0, min((row.run_at - now).total_seconds() for row in back))
        database.tell(Notification(types=frozenset(row.new.type for row in back), delay=delay))
    return len(back), len(parked) > len(back)


def comes_back(database: Database, row: Row, now: datetime) -> bool:
    """Whether a job is parked, and need not be any more."""
    key = paused_key(row)
    return row.state == StoredState.HELD and key is not None and not key_is_paused(database, key, now) and not row.locked(now)


def due_times_with_pauses(database: Database, rows: Sequence[Row], now: datetime) -> list[datetime]:
    """When pending jobs are due, and parked ones may come back: not before the pauses end that keep them."""
    moments: list[datetime] = []
    for row in rows:
        if row.state == StoredState.PENDING or is_in_fair_lane(row):
            paused = database.pauses.of_type(row.new.type, now)
        elif paused_key(row) is not None:
            paused = [*database.pauses.of_type(row.new.type, now), *database.pauses.of_key(paused_key(row), now)]
            if not paused:
                continue  # it's for `tend`
        else:
            continue
        moments.append(max(row.run_at, ends_of(paused) or row.run_at))
    return moments
