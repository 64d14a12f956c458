"""Ticks of schedules: which are due, and deciding them. See `SupportsSchedules`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import DuplicateJob
from aioqueue.store_rules._schedules import ENQUEUED_BEFORE, OVERLAPPED
from aioqueue.testing.memory._insert import insert
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.testing.memory._rows_jobs import FOR_EVER
from aioqueue.testing.memory._rows_schedules import with_ticks
from aioqueue.testing.memory._transaction_draft import Draft, make_changes
from aioqueue.vocabulary._schedules import DecidedTick, DueSchedules, Ticked, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._new_job import NewJob
    from aioqueue.vocabulary._schedules import StoredSchedule, Tick

__all__ = ["due_schedules", "next_tick", "tick"]


def due_schedules(database: Database, limit: int, *, cron: bool, without: Collection[str]) -> DueSchedules:
    """See which ticks are due. See `SupportsSchedules.due_schedules`."""
    now = database.now()
    rows = [row for row in ticking(database) if row.name not in without and (cron or row.definition.cron is None)]
    due = sorted((row for row in rows if is_due(row, now)), key=lambda row: (row.next_at or row.since, row.name))
    later = [row.next_at for row in rows if row.next_at not in (None, FOR_EVER) and not is_due(row, now)]
    return DueSchedules(
        now=now, schedules=tuple(replace(row, ticks=()) for row in due[:limit]), next_in=_seconds_until(later, now)
    )


def ticking(database: Database) -> list[StoredSchedule]:
    """The schedules that have ticks."""
    return [row for row in database.schedules.rows.values() if not row.paused]


def is_due(row: StoredSchedule, now: datetime) -> bool:
    """Whether there is something to decide about a schedule, if only when its next tick is."""
    return row.next_at is None or row.next_at <= now


def next_tick(database: Database) -> float | None:
    """Seconds until there is something to decide about any schedule; None without any."""
    now = database.now()
    return _seconds_until([row.next_at or now for row in ticking(database) if row.next_at != FOR_EVER], now)


def _seconds_until(moments: Iterable[datetime | None], now: datetime) -> float | None:
    first = min((each for each in moments if each is not None), default=None)
    return None if first is None else max(0.0, (first - now).total_seconds())


def tick(database: Database, ticks: Sequence[Tick]) -> list[Ticked]:
    """Decide ticks, all or none. See `SupportsSchedules.tick`."""
    now = database.now()
    rows = dict(database.schedules.rows)
    inserting = any(each.jobs for each in ticks)
    # A job that is refused may be the last of them: nothing of the others is stored then.
    draft = Draft(database) if inserting else database
    results = [_tick(draft, rows, each, now) for each in ticks]
    database.schedules.rows.update({name: row for name, row in rows.items() if name in {each.name for each in ticks}})
    if isinstance(draft, Draft):
        make_changes(database, draft.changes)
        for notification in draft.told:
            database.tell(notification)
    return results


def _tick(database: Database, rows: dict[str, StoredSchedule], each: Tick, now: datetime) -> Ticked:
    row = rows.get(each.name)
    if row is None or not may_decide(row, each):
        return Ticked(decided=False)
    decided: list[DecidedTick] = []
    for new in each.jobs:
        became = _decide(database, row, each, new, now)
        decided.append(became)
        row = with_chain(row, became)
    decided += [
        DecidedTick(
            nominal_time=skip.nominal_time,
            decided_at=now,
            outcome=TickOutcome.SKIPPED,
            reason=skip.reason,
            count=skip.count,
        )
        for skip in each.skipped
    ]
    rows[each.name] = with_ticks(moved(row, each, decided), decided)
    return Ticked(decided=True, ticks=tuple(decided))


def may_decide(row: StoredSchedule, each: Tick) -> bool:
    """Whether a tick is still to be decided as it was worked out."""
    if row.version != each.version:
        return False
    return each.by_hand or (row.next_at == each.expected and not row.paused)


def _decide(database: Database, row: StoredSchedule, each: Tick, new: NewJob, now: datetime) -> DecidedTick:
    nominal_time = now if new.origin is None or new.origin.nominal_time is None else new.origin.nominal_time
    reason = why_skipped(database, row, each, nominal_time)
    if reason is not None:
        return DecidedTick(nominal_time=nominal_time, decided_at=now, outcome=TickOutcome.SKIPPED, reason=reason)
    (inserted,) = insert(database, [new], apart=True)
    there = inserted.refused.chain_id if isinstance(inserted.refused, DuplicateJob) else inserted.id
    outcome = TickOutcome.ENQUEUED if inserted.created or inserted.replaced else TickOutcome.DUPLICATE
    return DecidedTick(nominal_time=nominal_time, decided_at=now, outcome=outcome, chain_id=there)


def why_skipped(database: Database, row: StoredSchedule, each: Tick, nominal_time: datetime) -> str | None:
    """Why no job is inserted for a tick; None if one is to be."""
    if was_enqueued(row, nominal_time):
        return ENQUEUED_BEFORE
    return OVERLAPPED if each.alone and row.last_chain is not None and goes_on(database, row.last_chain) else None


def was_enqueued(row: StoredSchedule, nominal_time: datetime) -> bool:
    """Whether there is a job already for a tick, as far as that's known."""
    return any(tick.nominal_time == nominal_time and tick.outcome is not TickOutcome.SKIPPED for tick in row.ticks)


def goes_on(database: Database, chain_id: UUID) -> bool:
    """Whether a chain hasn't ended."""
    last = the_end(Chains(database).steps(chain_id))
    return last is not None and last.live


def with_chain(row: StoredSchedule, became: DecidedTick) -> StoredSchedule:
    """A schedule that has enqueued a tick, or found its duplicate: the next one looks at that chain, in the same call too."""
    return row if became.chain_id is None else replace(row, last_chain=became.chain_id)


def moved(row: StoredSchedule, each: Tick, decided: Sequence[DecidedTick]) -> StoredSchedule:
    """A schedule that has another next tick by now. What was done by hand stands beside its own ticks."""
    if each.by_hand:
        return row
    newest = [tick.nominal_time for tick in decided]
    last_at = max(newest if row.last_at is None else [row.last_at, *newest], default=None)
    return replace(row, next_at=each.next_at or FOR_EVER, last_at=last_at)
