"""How gates are at a moment: what claims and promotions decide by. In an open transaction, during which nobody else writes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._pauses_conditions import BEFORE_GATES, BEHIND_GATES, key_is_paused, type_is_paused
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._gates import GateState
from aioqueue.vocabulary._gates import SEQUENCE, GateKind, kind_of, name_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["GATE_WORK", "LIVE_STEP", "Looked", "RateNow", "look_at_gates", "sequence_named"]

GATE_WORK = f"""(EXISTS (SELECT 1 FROM gate_mark)
    OR EXISTS (SELECT 1 FROM gate_rate INDEXED BY gate_rate_wake WHERE wake_at <= {NOW}))"""
"""Whether there is something to promote: where nobody uses gates, two empty tables are looked at."""

LIVE_STEP = """coalesce((SELECT id FROM job WHERE id = m.chain_id AND (chain_id IS NULL OR chain_id = id)),
        (SELECT id FROM job INDEXED BY job_chain WHERE chain_id = m.chain_id LIMIT 1))"""
"""The id of a member's live step."""

_LIMITS = "SELECT name, places, per, burst FROM gate_limit WHERE name IN (SELECT value FROM json_each(:names))"

_RUNNING = """
SELECT asked.value, (SELECT count(*) FROM gate_place AS p CROSS JOIN job ON job.id = p.job_id
                     WHERE p.gate = asked.value AND job.state = 2)
FROM json_each(:gates) AS asked
"""

_RATES = "SELECT gate, arrival FROM gate_rate WHERE gate IN (SELECT value FROM json_each(:gates))"

_MAY_RUN = f"""(job.run_at <= {NOW} AND NOT {type_is_paused("job.type")} AND NOT {key_is_paused("job.key")} AND (job.state = 1
        OR (job.state = 0 AND job.open_blockers = 0 AND job.gate IS NOT NULL
            AND NOT (job.gate > '{BEFORE_GATES}' AND job.gate < '{BEHIND_GATES}'))))"""

_HEADS = f"""
SELECT asked.value, (
    SELECT json_array(CAST(job.id AS TEXT), job.state = 0, CAST(job.gate AS TEXT), {_MAY_RUN} AND NOT EXISTS (
        SELECT 1 FROM gate_member AS other INDEXED BY gate_member_failed
        WHERE other.sequence = m.sequence AND other.ended = 6 AND other.block = 1 AND other.number < m.number))
    FROM gate_member AS m INDEXED BY gate_member_sequence CROSS JOIN job ON job.id = {LIVE_STEP}
    WHERE m.sequence = substr(asked.value, {len(SEQUENCE) + 2}) AND m.ended = 0
        AND (m.strict OR job.state = 2 OR {_MAY_RUN})
    ORDER BY m.number LIMIT 1)
FROM json_each(:gates) AS asked
"""
"""The first that may run, or that keeps all the others from it; and whether it does run next."""


@dataclass(frozen=True, slots=True)
class RateNow:
    """A rate at a moment, in microseconds.

    Attributes:
        each: Between two starts.
        arrival: When the newest start that isn't allowed any more would have been.
        now: The moment.
        burst: How many starts may come at once.
    """

    each: int
    arrival: int
    now: int
    burst: int

    @property
    def tokens(self) -> int:
        """How many may start now."""
        return min((self.now - self.arrival) // self.each, self.burst)

    def after(self, starts: int) -> int:
        """`arrival` once so many have started."""
        return self.arrival + self.each * starts

    def next_at(self, starts: int) -> int:
        """When one more may start than so many."""
        return self.after(starts + 1)


@dataclass(slots=True)
class Looked:
    """What was seen of gates.

    Attributes:
        states: For admission.
        held: Of sequences whose turn is a job's that is held there, its id.
        rates: Of those that let some start.
        stopped: Rates that let none start, until they're changed.
        running: How many run at each.
    """

    states: dict[str, GateState] = field(default_factory=dict[str, GateState])
    held: dict[str, str] = field(default_factory=dict[str, str])
    rates: dict[str, RateNow] = field(default_factory=dict[str, RateNow])
    stopped: set[str] = field(default_factory=set[str])
    running: dict[str, int] = field(default_factory=dict[str, int])


def sequence_named(gate: str) -> str:
    """The name of the sequence whose gate it is."""
    return gate.partition("=")[2]


def look_at_gates(connection: Statements, gates: Collection[str], now: int) -> Looked:
    """See how these are.

    Arguments:
        connection: In a transaction.
        gates: Their texts, of any kind; none is open to those in fair lanes.
        now: The database's time.
    """
    looked = Looked()
    kinds = {gate: kind_of(gate) for gate in gates}
    limited = [gate for gate, kind in kinds.items() if kind in {GateKind.LIMIT, GateKind.RATE}]
    counted = dump([gate for gate, kind in kinds.items() if kind in {GateKind.LIMIT, GateKind.SEQUENCE}])
    names = {"names": dump(sorted({name_of(gate) for gate in limited}))}
    limits = {row[0]: row[1:] for row in connection.execute(_LIMITS, names).fetchall()} if limited else {}
    looked.running = dict(connection.execute(_RUNNING, {"gates": counted}).fetchall())
    rates = dump([gate for gate, kind in kinds.items() if kind is GateKind.RATE])
    arrivals: dict[str, Any] = dict(connection.execute(_RATES, {"gates": rates}).fetchall()) if rates != "[]" else {}
    for gate in limited:
        limit = limits.get(name_of(gate))
        if kinds[gate] is GateKind.LIMIT:
            free = None if limit is None or limit[1] is not None else max(0, limit[0] - looked.running[gate])
            looked.states[gate] = GateState(free=free)
        else:
            looked.states[gate] = GateState(free=_look_at_rate(looked, gate, limit, arrivals.get(gate), now))
    _look_at_sequences(connection, looked, [gate for gate, kind in kinds.items() if kind is GateKind.SEQUENCE])
    return looked


def _look_at_rate(looked: Looked, gate: str, limit: Any, arrival: object, now: int) -> int | None:
    if limit is None:
        return None
    starts, per, burst = limit
    if not isinstance(per, (int, float)) or not 0 < per < math.inf:
        return None
    if starts == 0:
        looked.stopped.add(gate)
        return 0
    each = max(1, math.ceil(per * 1e6 / starts))
    at_once = max(1, burst if isinstance(burst, int) else starts)
    known = min(arrival, now) if isinstance(arrival, int) else 0
    looked.rates[gate] = rate = RateNow(each, max(known, now - each * at_once), now, at_once)
    return rate.tokens


def _look_at_sequences(connection: Statements, looked: Looked, gates: list[str]) -> None:
    if not gates:
        return
    for gate, found in connection.execute(_HEADS, {"gates": dump(gates)}).fetchall():
        looked.states[gate] = state = GateState(sequence=True)
        if found is None or looked.running[gate]:
            continue
        job_id, is_held, held_by, may_run = load(found)
        if job_id is None or not may_run:
            continue
        state.head = id_of(job_id)
        if is_held and held_by == gate:
            looked.held[gate] = job_id
