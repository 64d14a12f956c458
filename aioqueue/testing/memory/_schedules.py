"""Schedules: stored by name, or as what a registry's code says. See `SupportsSchedules`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import ScheduleOwned
from aioqueue.store_rules._generations import decide
from aioqueue.testing.memory._rows_jobs import FOR_EVER
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._schedules import Reconciled, ScheduleChange, SchedulePage, StoredSchedule

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._schedules import Generation, NewSchedule

__all__ = [
    "delete_schedules",
    "fetch_schedules",
    "list_schedules",
    "pause_schedules",
    "put_schedules",
    "recompute_schedules",
    "reconcile_schedules",
    "resume_schedules",
]


def put_schedules(database: Database, schedules: Sequence[NewSchedule]) -> list[bool]:
    """Store what has no owner. See `SupportsSchedules.put_schedules`."""
    now = database.now()
    for each in schedules:
        stored = database.schedules.rows.get(each.name)
        if stored is not None and is_anothers(stored, None):
            owner = stored.definition.owner
            raise ScheduleOwned(
                f"the schedule {each.name} is defined in the code of the registry {owner}: change it there, or put this one "
                "under another name",
                name=each.name,
            )
    results = [_put(database, each, now) for each in schedules]
    if any(results):
        database.tell(Notification(schedules=True))
    return results


def _put(database: Database, new: NewSchedule, now: datetime) -> bool:
    stored = database.schedules.rows.get(new.name)
    if stored is not None and not has_changed(stored, new):
        return False
    made = defined(stored, new, now)
    database.schedules.rows[new.name] = made if stored is not None else replace(made, version=first_version(database))
    return True


def first_version(database: Database) -> int:
    """The version of a new schedule: none of that name had it before."""
    database.schedules.stored += 1
    return 1_000_000 * database.schedules.stored


def has_changed(stored: StoredSchedule, new: NewSchedule) -> bool:
    """Whether something else is said of a schedule than before."""
    return stored.definition != new


def is_anothers(stored: StoredSchedule, owner: str | None) -> bool:
    """Whether a schedule isn't this owner's to change."""
    return stored.definition.owner != owner


def defined(stored: StoredSchedule | None, new: NewSchedule, now: datetime) -> StoredSchedule:
    """A schedule as it's defined, for the first time or anew: with another timing it begins at this moment."""
    if stored is None:
        return StoredSchedule(definition=new, version=1, since=now, anchor=now)
    changed = replace(stored, definition=new, version=stored.version + 1)
    return begun_anew(changed, now) if stored.definition.timing != new.timing else changed


def begun_anew(stored: StoredSchedule, now: datetime) -> StoredSchedule:
    """A schedule whose ticks are counted from this moment."""
    return replace(stored, since=now, anchor=now, next_at=None)


def reconcile_schedules(
    database: Database, generation: Generation, schedules: Sequence[NewSchedule], live: float
) -> Reconciled:
    """Make these the schedules of their owner. See `SupportsSchedules.reconcile_schedules`."""
    now, rows, owner = database.now(), database.schedules.rows, generation.owner
    decision = decide(generation, database.schedules.known(owner, now))
    if decision.refused:
        return Reconciled(current=False, refused=True)
    database.schedules.keep_alive(generation, decision.seen, now + timedelta(seconds=live))
    if not decision.current:
        return Reconciled(current=False)
    own = [each for each in schedules if each.name not in rows or not is_anothers(rows[each.name], owner)]
    changed = tuple(each.name for each in own if _put(database, each, now))
    removed = to_be_removed(database, owner, {each.name for each in schedules})
    for name in removed:
        del rows[name]
    if changed or removed:
        database.tell(Notification(schedules=True))
    taken = tuple(sorted({each.name for each in schedules} - {each.name for each in own}))
    return Reconciled(current=True, changed=changed, removed=removed, taken=taken)


def to_be_removed(database: Database, owner: str, names: Collection[str]) -> tuple[str, ...]:
    """Schedules that aren't in their owner's code any more."""
    rows = database.schedules.rows.values()
    return tuple(row.name for row in rows if not is_anothers(row, owner) and row.name not in names)


def recompute_schedules(database: Database, names: Collection[str] | None) -> int:
    """Have next ticks worked out again. See `SupportsSchedules.recompute_schedules`."""
    now, rows = database.now(), database.schedules.rows
    stale = [row for row in rows.values() if (names is None or row.name in names) and may_be_forgotten(row, now)]
    for row in stale:
        rows[row.name] = replace(row, next_at=None, last_at=last_possible(row.last_at, now), version=row.version + 1)
    if stale:
        database.tell(Notification(schedules=True))
    return len(stale)


def may_be_forgotten(row: StoredSchedule, now: datetime) -> bool:
    """Whether a schedule's next tick is known, and isn't due."""
    return row.next_at is not None and row.next_at > now


def last_possible(last_at: datetime | None, now: datetime) -> datetime | None:
    """The newest tick, or what counts as it where that lies ahead of a clock that has jumped back."""
    return last_at if last_at is None else min(last_at, now)


def list_schedules(database: Database, limit: int, cursor: str | None) -> SchedulePage:
    """One page by name. See `SupportsSchedules.list_schedules`."""
    names = sorted(name for name in database.schedules.rows if cursor is None or name > cursor)
    page = tuple(shown(database.schedules.rows[name]) for name in names[:limit])
    return SchedulePage(schedules=page, cursor=page[-1].name if len(names) > limit else None, now=database.now())


def fetch_schedules(database: Database, names: Sequence[str]) -> list[StoredSchedule | None]:
    """Schedules by name. See `SupportsSchedules.fetch_schedules`."""
    rows = database.schedules.rows
    return [shown(rows[name]) if name in rows else None for name in names]


def shown(row: StoredSchedule) -> StoredSchedule:
    """A schedule as people see it: a next tick that never comes is none."""
    return replace(row, next_at=None) if row.next_at == FOR_EVER else row


def pause_schedules(database: Database, names: Sequence[str], reason: str, by: str) -> list[bool]:
    """Decide no ticks of these. See `SupportsSchedules.pause_schedules`."""
    rows = database.schedules.rows
    for name in names:
        if name in rows:
            rows[name] = replace(rows[name], paused=True, reason=reason, by=by)
    return [name in rows for name in names]


def resume_schedules(database: Database, names: Sequence[str]) -> list[bool]:
    """Decide ticks of these again. See `SupportsSchedules.resume_schedules`."""
    rows, now = database.schedules.rows, database.now()
    paused = [name for name in names if name in rows and has_to_be_resumed(rows[name])]
    for name in paused:
        rows[name] = resumed(rows[name], now)
    if paused:
        database.tell(Notification(schedules=True))
    return [name in rows for name in names]


def has_to_be_resumed(row: StoredSchedule) -> bool:
    """Whether a schedule has no ticks any more since it's paused: another one goes on as it is."""
    return row.paused


def resumed(row: StoredSchedule, now: datetime) -> StoredSchedule:
    """A paused schedule as it goes on. It has another version: what was worked out before the pause isn't decided."""
    return replace(row, paused=False, reason="", by="", version=row.version + 1, since=now, next_at=None)


def delete_schedules(database: Database, names: Sequence[str]) -> list[ScheduleChange]:
    """Remove schedules. See `SupportsSchedules.delete_schedules`."""
    now, results = database.now(), list[ScheduleChange]()
    for name in names:
        row = database.schedules.rows.get(name)
        if row is None:
            results.append(ScheduleChange.NOT_FOUND)
        elif is_in_live_code(database, row, now):
            results.append(ScheduleChange.OWNED)
        else:
            del database.schedules.rows[name]
            results.append(ScheduleChange.DONE)
    return results


def is_in_live_code(database: Database, row: StoredSchedule, now: datetime) -> bool:
    """Whether workers live that would bring a schedule back."""
    owner = row.definition.owner
    return owner is not None and any(each.live for each in database.schedules.known(owner, now))
