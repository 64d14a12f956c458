"""Gates, as claims look at them: who goes through, who is held, and who is let come. See `SupportsGates`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._gates import (
    Candidate,
    GateState,
    admit,
    fair_gate_of,
    gates_behind_turns,
    gates_of,
)
from aioqueue.testing.memory._rows_gates import UsedRate, gate_held_at, is_in_fair_lane
from aioqueue.vocabulary._gate_values import sequence_of
from aioqueue.vocabulary._gates import GateKind, SequenceMember, kind_of, name_of
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_gates import Limit
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._gates import GateRules

__all__ = [
    "come_back",
    "count_at",
    "fair_order",
    "held_at",
    "let_through",
    "look_at_gates",
    "next_token_at",
    "promote",
    "runs_at",
    "sort_into_lanes",
    "tokens_of",
    "turn_of",
    "when_gates_open",
    "with_turns",
]


def look_at_gates(database: Database) -> None:
    """See what has left gates since the last look, and tell everybody."""
    database.gates.look(database.rows)
    if database.gates.news:
        database.gates.news = False
        database.tell(Notification(gates=True))


def let_through(
    database: Database, rows: Sequence[Row], rules: Mapping[str, GateRules], now: datetime
) -> tuple[list[Row], bool]:
    """Look at the gates of due jobs, and hold those that may not run; returns those that may, and whether some are held.

    Arguments:
        rows: In the order of the claim.
        rules: By the types that have any.
    """
    enlist(database, rows, rules)
    candidates = [Candidate(row.new.id, gates_at(database, row, rules)) for row in rows]
    states = {gate: state_of(database, gate, now) for each in candidates for gate in each.gates}
    admission = admit(candidates, states, len(rows))
    gates = {each.id: each.gates for each in candidates}
    for gate, used in admission.used.items():
        spend(database, gate, used, now)
    for job_id, gate in admission.parked.items():
        database.gates.hold(database.rows[job_id], gate)
        if kind_of(gate) is GateKind.RATE:  # the next start, once those that go have been counted
            wake_later(database, gate, now)
    goes = [database.rows[job_id] for job_id in admission.goes]
    for row in goes:
        database.gates.let_through(row, gates[row.new.id])
    return goes, bool(admission.parked)


def enlist(database: Database, rows: Iterable[Row], rules: Mapping[str, GateRules]) -> None:
    """Put jobs into the sequences of their types that nobody has put into one, in the order in which they were made."""
    for row in sorted(rows, key=lambda row: (row.created_at, row.new.id)):
        of_type = rules.get(row.new.type)
        if of_type is None or row.chain in database.gates.members:
            continue
        name = sequence_of(of_type, row.new.payload, row.new.metadata)
        if name is not None:
            database.gates.enter(row, SequenceMember(name=name, strict=of_type.strict, block=of_type.block))


def gates_at(database: Database, row: Row, rules: Mapping[str, GateRules]) -> tuple[str, ...]:
    """The gates that a job has to pass."""
    member = database.gates.members.get(row.chain)
    sequence = None if member is None else member.sequence
    return gates_of(rules.get(row.new.type), sequence, row.new.payload, row.new.metadata)


# -- what a gate lets through -------------------------------------------------------------------------------------


def state_of(database: Database, gate: str, now: datetime) -> GateState:
    """What a gate lets through at the moment."""
    kind = kind_of(gate)
    if kind is GateKind.SEQUENCE:
        return GateState(sequence=True, head=turn_of(database, gate, now)[0])
    if kind is GateKind.RATE:
        return GateState(free=tokens_of(database, gate, now))
    limit = database.gates.limits.get(name_of(gate))
    return GateState(free=None if limit is None else max(0, limit.limit.places - count_at(database, gate)))


def count_at(database: Database, gate: str) -> int:
    """How many jobs run at a gate, whatever their leases say."""
    return sum(runs_at(row, gate) for row in database.rows.values())


def runs_at(row: Row, gate: str) -> bool:
    """Whether a job counts at a gate."""
    return row.state == StoredState.RUNNING and gate in (row.gates or ())


def turn_of(database: Database, gate: str, now: datetime) -> tuple[UUID | None, UUID | None]:
    """Whose turn it is in a sequence, and the failed member that keeps it; each None for nobody."""
    if count_at(database, gate):
        return None, None
    live = {row.chain: row for row in database.rows.values() if row.live}
    for chain, member in database.gates.members.items():
        if member.gate != gate:
            continue
        if member.keeps_others:
            return None, chain
        if chain in live:
            row = live[chain]
            if may_run(database, row, now):
                return row.new.id, None
            if member.strict:
                return None, None
    return None, None


def may_run(database: Database, row: Row, now: datetime) -> bool:
    """Whether a member of a sequence could run now, if it's its turn: neither its type nor its key is paused, either."""
    waits = row.state == StoredState.PENDING or gate_held_at(row) is not None
    paused = database.pauses.of_type(row.new.type, now) or database.pauses.of_key(row.new.key, now)
    return waits and row.run_at <= now and not paused


# -- rates --------------------------------------------------------------------------------------------------------


def each_of(limit: Limit) -> timedelta:
    """The time of one start of a rate, if they were evenly spread."""
    return max(timedelta(microseconds=1), timedelta(seconds=limit.limit.per or 0) / limit.limit.places)


def arrival_of(database: Database, gate: str, limit: Limit, now: datetime) -> datetime:
    """When the next start is due, were they evenly spread: as far back as starts may come at once."""
    used, burst = database.gates.rates.get(gate), limit.limit.burst or limit.limit.places
    full = now - each_of(limit) * burst
    return full if used is None else max(used.arrival, full)


def tokens_of(database: Database, gate: str, now: datetime) -> int | None:
    """How many starts a rate allows now; None for any number."""
    limit = database.gates.limits.get(name_of(gate))
    if limit is None or not limit.limit.places:
        return None if limit is None else 0
    return max(0, (now - arrival_of(database, gate, limit, now)) // each_of(limit))


def spend(database: Database, gate: str, number: int, now: datetime) -> None:
    """Note that so many have started, where a rate counts them."""
    limit = database.gates.limits.get(name_of(gate))
    if kind_of(gate) is GateKind.RATE and limit is not None:
        arrival = arrival_of(database, gate, limit, now) + each_of(limit) * number
        wake_at = database.gates.rates[gate].wake_at if gate in database.gates.rates else None
        database.gates.rates[gate] = UsedRate(arrival, wake_at)
        if wake_at is not None:
            wake_later(database, gate, now)


def next_token_at(database: Database, gate: str, now: datetime) -> datetime | None:
    """When a rate allows the next start; None for never, or if it isn't limited."""
    limit = database.gates.limits.get(name_of(gate))
    if limit is None or not limit.limit.places:
        return None
    return max(now, arrival_of(database, gate, limit, now) + each_of(limit))


def wake_later(database: Database, gate: str, now: datetime) -> None:
    """Have those that wait for a rate be let come with its next start."""
    at = next_token_at(database, gate, now)
    if gate not in database.gates.rates and at is not None:
        database.gates.rates[gate] = UsedRate(arrival_of(database, gate, database.gates.limits[name_of(gate)], now), at)
    elif gate in database.gates.rates:
        database.gates.rates[gate].wake_at = at


# -- who is let come ----------------------------------------------------------------------------------------------


def promote(database: Database, now: datetime) -> None:
    """Let jobs come that are held at gates that were left, or whose time has come: they're due, and claims decide."""
    due = [gate for gate, rate in database.gates.rates.items() if rate.wake_at is not None and rate.wake_at <= now]
    marks = {**dict.fromkeys(due, 0), **database.gates.marks}
    database.gates.marks.clear()
    came = [row for gate, freed in marks.items() for row in let_come(database, gate, freed, now)]
    for gate in due:
        database.gates.rates[gate].wake_at = None
    for gate in dict.fromkeys([*due, *marks]):
        if kind_of(gate) is GateKind.RATE and held_at(database, gate):
            wake_later(database, gate, now)
    if came:
        database.tell(Notification(types=frozenset(row.new.type for row in came)))


def let_come(database: Database, gate: str, freed: int, now: datetime) -> list[Row]:
    """Let jobs come that are held at a gate, as many of each type as were freed, and may run."""
    held = sorted(
        (row for row in held_at(database, gate) if not row.locked(now)),
        key=lambda row: (row.new.priority, row.run_at, row.new.id),
    )
    kind = kind_of(gate)
    if kind is GateKind.SEQUENCE:
        head = turn_of(database, gate, now)[0]
        come = [row for row in held if row.new.id == head]
    else:
        free = state_of(database, gate, now).free
        number = len(held) if free is None else free if kind is GateKind.RATE else min(free, freed)
        come = first_of_each_type(held, number)
    for row in come:
        database.gates.let_come(row)
    return come


def first_of_each_type(rows: Iterable[Row], number: int) -> list[Row]:
    """The first ones of each type: others may be paused, or served by nobody."""
    by_type: dict[str, list[Row]] = {}
    for row in rows:
        by_type.setdefault(row.new.type, []).append(row)
    return [row for of_type in by_type.values() for row in of_type[:number]]


def held_at(database: Database, gate: str) -> list[Row]:
    """The jobs that are held at a gate, and wait for nothing else."""
    return [row for row in database.rows.values() if gate_held_at(row) == gate and not row.open_blockers]


def come_back(database: Database, limit: int, now: datetime) -> None:
    """Let jobs come at all gates where some are held and could run: those that promotion has skipped."""
    for gate in dict.fromkeys(gate_held_at(row) for row in database.rows.values() if not is_in_fair_lane(row)):
        if gate is not None:
            database.gates.mark(gate, limit)
    promote(database, now)


def when_gates_open(database: Database, now: datetime) -> list[datetime]:
    """When claims would let somebody come."""
    moments = [rate.wake_at for rate in database.gates.rates.values() if rate.wake_at is not None]
    return [*moments, *([now] if database.gates.marks else [])]


# -- turns --------------------------------------------------------------------------------------------------------


def sort_into_lanes(database: Database, rows: Iterable[Row], rules: Mapping[str, GateRules]) -> None:
    """Put due jobs of types whose values take turns into the lanes of these, unless they were let come at another gate."""
    for row in rows:
        of_type = rules.get(row.new.type)
        lane = None if of_type is None else fair_gate_of(of_type, row.new.payload, row.new.metadata)
        if lane is not None and row.state == StoredState.PENDING and row.let_come is None:
            database.gates.hold(row, lane)


def with_turns(database: Database, rows: Sequence[Row], rules: Mapping[str, GateRules]) -> Sequence[Row]:
    """The rows, without those that get no turn now: some of their type wait at a gate of all of them."""
    behind = {(name, gate): each.type for name, each in rules.items() for gate in gates_behind_turns(each)}
    full = {behind.get((row.new.type, gate_held_at(row) or "")) for row in database.rows.values()} if behind else set[str]()
    return [row for row in rows if not (is_in_fair_lane(row) and row.new.type in rules and rules[row.new.type].type in full)]


def fair_order(database: Database, rows: Sequence[Row]) -> list[Row]:
    """Jobs in the order in which claims come to them: of those in lanes the first of each lane, then the second, and so on."""
    places: dict[str, int] = {}
    keyed: list[tuple[int, bool, str, int, Row]] = []
    for number, row in enumerate(rows):
        lane = row.held_by if is_in_fair_lane(row) else None
        if lane is None:
            keyed.append((0, False, "", number, row))
            continue
        places[lane] = places.get(lane, 0) + 1
        keyed.append((places[lane], lane <= database.gates.cursors.get(row.new.type, ""), lane, number, row))
    return [each[-1] for each in sorted(keyed, key=lambda each: each[:-1])]
