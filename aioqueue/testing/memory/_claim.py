"""Claiming due jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aioqueue.errors import LeaseLost
from aioqueue.store_rules._events import body_of_end
from aioqueue.store_rules._quotas import Rooms
from aioqueue.testing.memory._gates import fair_order, let_through, promote, sort_into_lanes, with_turns
from aioqueue.testing.memory._pauses import park, type_is_paused
from aioqueue.testing.memory._rows_gates import is_in_fair_lane
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import AttemptError, SettlementKind, StoredState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._quota import Quota

__all__ = ["claim", "readable"]


def claim(
    database: Database,
    lease_id: int,
    types: Sequence[str],
    limit: int,
    leases: Mapping[str, int],
    *,
    dry_run: bool = False,
    quotas: Sequence[Quota] = (),
    rules: Mapping[str, GateRules] | None = None,
) -> list[ClaimedJob]:
    """Take due jobs, the most urgent first. See `Store.claim`."""
    now, rules = database.now(), rules or {}
    for each in (lease_id, *leases.values()):
        require_valid(database, each, now)
    promote(database, now)
    names = frozenset(name for name in types if not type_is_paused(database, name, now))
    sort_into_lanes(database, due_rows(database, names, now), rules)
    taken: list[tuple[Row, ClaimedJob]] = []
    goes_on = True
    while goes_on:
        due = with_turns(database, due_rows(database, names, now), rules)
        due = within(in_turn(database, readable(database, due, now)), quotas)
        # Those that are parked count for the limit, so that a claim's cost has a bound: whoever claims comes again.
        unpaused = park(database, due[: limit - len(taken)], now)
        goes, goes_on = let_through(database, unpaused, rules, now)
        database.turns.serve({row.new.type for row in goes})
        quotas = left_of(quotas, goes)
        for row in sorted(goes, key=urgency):
            if dry_run:
                database.make_dry(row)
            taken.append((row, database.take(row, owner(row, lease_id, leases), now)))
    return [claimed for _, claimed in sorted(taken, key=lambda pair: urgency(pair[0]))]


def due_rows(database: Database, names: frozenset[str], now: datetime) -> list[Row]:
    """The jobs of the types that may be taken, as far as it's for them to say."""
    return [row for row in database.rows.values() if is_of(row, names) and is_claimable(row, now)]


def left_of(quotas: Sequence[Quota], taken: Sequence[Row]) -> Sequence[Quota]:
    """What the quotas have room for, now that these were taken."""
    rooms = Rooms(quotas)
    rooms.fill([row.new.type for row in taken])
    return rooms.left()


def require_valid(database: Database, lease_id: int, now: datetime) -> None:
    """Raise unless a lease may claim."""
    if not database.valid(lease_id, now):
        raise LeaseLost(f"lease {lease_id} isn't valid")


def is_of(row: Row, names: frozenset[str]) -> bool:
    """Whether a job is of one of the types."""
    return row.new.type in names


def is_claimable(row: Row, now: datetime) -> bool:
    """Whether a job may be taken at this moment."""
    is_free = row.state == StoredState.PENDING or is_in_fair_lane(row)
    return is_free and row.run_at <= now and not row.locked(now)


def urgency(row: Row) -> tuple[int, datetime, UUID]:
    """The order in which jobs of one type are taken."""
    return (row.new.priority, row.run_at, row.new.id)


def in_turn(database: Database, rows: Iterable[Row]) -> list[Row]:
    """Rows as claims come to them: by priority; in each the types take turns, each with its most urgent one."""
    places: Counter[tuple[str, int]] = Counter()
    keyed: list[tuple[tuple[int, int, int, int], Row]] = []
    for number, row in enumerate(fair_order(database, sorted(rows, key=urgency))):
        lane = (row.new.type, row.new.priority)
        keyed.append(((row.new.priority, places[lane], database.turns.of(row.new.type), number), row))
        places[lane] += 1
    return [row for _, row in sorted(keyed)]


def within(rows: Sequence[Row], quotas: Sequence[Quota]) -> list[Row]:
    """The rows, without those for which the quota of their types has no room."""
    rooms = Rooms(quotas)
    kept: list[Row] = []
    for row in rows:
        if rooms.has_room(row.new.type):
            kept.append(row)
            rooms.fill([row.new.type])
    return kept


def owner(row: Row, lease_id: int, leases: Mapping[str, int]) -> int:
    """The lease for which a job is taken."""
    return leases.get(row.new.type, lease_id)


def readable(database: Database, rows: Iterable[Row], now: datetime) -> list[Row]:
    """The rows that can be read. Each of the others fails alone."""
    sound: list[Row] = []
    for row in rows:
        if row.unreadable:
            error = AttemptError(attempt=0, at=now, type="UnreadableRow", message=row.unreadable)
            row.state, row.errors, row.unreadable, row.finished_at = StoredState.FAILED, (error,), "", now
            database.note_delivery(row)
            database.log(EventKind.FAILED, row, body_of_end(SettlementKind.FAILED, error=error))
        else:
            sound.append(row)
    return sound
