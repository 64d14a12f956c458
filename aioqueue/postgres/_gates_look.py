"""What gates let through at the moment, for whoever has locked them.

Whoever runs at a gate has a row there, whose number is higher than all before it, since it's given under the gate's lock. A
process remembers which rows it has seen: the next look is at those, and at what has come after them. So it never walks over the
entries of those that have gone, of which there are many where somebody keeps an old snapshot. Once a second it forgets what it
has seen, as far as that is quick: numbers may begin anew where a database was restored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._gates_lock import lock_gates, room_for
from aioqueue.postgres._pauses_parked import key_is_paused, type_is_free
from aioqueue.store_rules._gates import GateState
from aioqueue.vocabulary._gates import SEQUENCE, GateKind, kind_of
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["EACH_AND_BASE", "MAY_RUN", "GateLooks", "look_statements"]

_FORGET_SECONDS = 1.0
_MOST_REMEMBERED_GATES = 20_000

# Locks the first ones, and then gives a row for each of the others, with the numbers of those that run there.
_LOOK_PLACES = """SELECT seen.gate, seen.places, seen.numbers, seen.highest
FROM @schema@.count_places($1::text[], $2::text[], $3::bigint[], $4::text[]) AS seen"""

MAY_RUN = f"""CASE j.state
    WHEN 1 THEN j.run_at <= statement_timestamp() AND {type_is_free("j.type")} AND NOT {key_is_paused("j.key")}
    WHEN 0 THEN j.gate IS NOT NULL AND j.open_blockers <= 0 AND j.run_at <= statement_timestamp()
                AND NOT starts_with(j.gate, '{HELD_BY_PAUSE}') AND {type_is_free("j.type")}
    ELSE false END"""
"""Of a live job `j` that is a member of a sequence: whether its turn may come: it's due, and neither waits nor is paused."""
# The first that may run, or that runs, or behind which the others wait.
_LOOK_SEQUENCES = f"""SELECT given.gate,
       CASE WHEN first.may AND (block.number IS NULL OR block.number > first.number) THEN first.id END
FROM unnest($1::text[]) AS given(gate)
LEFT JOIN LATERAL (
    SELECT m.number FROM @schema@.gate_member m
    WHERE m.sequence = substr(given.gate, {len(SEQUENCE) + 2}) AND m.failed ORDER BY m.number LIMIT 1
) AS block ON true
LEFT JOIN LATERAL (
    SELECT m.number, step.id, step.may FROM @schema@.gate_member m
    CROSS JOIN LATERAL (
        SELECT j.id, j.state, {MAY_RUN} AS may
        FROM @schema@.job j WHERE j.id = m.chain_id
        UNION ALL
        SELECT j.id, j.state, {MAY_RUN} AS may
        FROM @schema@.job j WHERE j.chain_id = m.chain_id
        LIMIT 1
    ) AS step
    WHERE m.sequence = substr(given.gate, {len(SEQUENCE) + 2}) AND NOT m.failed AND (step.may OR m.strict OR step.state = 2)
    ORDER BY m.number LIMIT 1
) AS first ON true"""

EACH_AND_BASE = """FROM (SELECT clock_timestamp() AS now) AS clock CROSS JOIN {given}
LEFT JOIN LATERAL (
    SELECT l.places, ceil(l.per * 1000000 / nullif(l.places, 0)) * interval '1 us' AS each,
           greatest(1, coalesce(l.burst, l.places)) AS burst
    FROM @schema@.gate_limit l WHERE l.name = split_part(given.gate, '=', 1) AND l.per IS NOT NULL LIMIT 1
) AS rate ON true
LEFT JOIN LATERAL (SELECT r.arrival, r.wake_at FROM @schema@.gate_rate r WHERE r.gate = given.gate LIMIT 1) AS used ON true
CROSS JOIN LATERAL (
    SELECT least(greatest(used.arrival, clock.now - rate.each * rate.burst), clock.now) AS base
) AS since"""
"""For each `given.gate` the time between two starts, and the time since which starts may be made up for; NULL for a rate that
allows none, or isn't there. Where the clock was set back the starts of what is in the future now count as made just now."""
_TOKENS = """CASE WHEN rate.places > 0
        THEN greatest(0, floor(extract(epoch FROM clock.now - since.base) / extract(epoch FROM rate.each)))
    WHEN rate.places = 0 THEN 0 END::bigint"""
_LOOK_RATES = f"""SELECT given.gate, {_TOKENS} {EACH_AND_BASE.format(given="unnest($1::text[]) AS given(gate)")}"""


def look_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "gates_look_places": schema.render(_LOOK_PLACES),
        "gates_look_sequences": schema.render(_LOOK_SEQUENCES),
        "gates_look_rates": schema.render(_LOOK_RATES),
    }


@dataclass(slots=True)
class _Seen:
    """What a process remembers of a gate.

    Attributes:
        high: The highest number that there was, of any gate: those of later places are higher.
        numbers: Those that were there.
    """

    high: int = 0
    numbers: list[int] = field(default_factory=list[int])


class GateLooks:
    """Looks at gates, and remembers who was there."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._connection: object = None
        self._full = Throttle()

    def _begin(self, connection: Connection) -> bool:
        """Forget what was seen, where that is due; returns whether it was."""
        due = time.monotonic() - self._full.last > _FORGET_SECONDS and self._full.pause == 0
        if due or connection is not self._connection or len(self._seen) > _MOST_REMEMBERED_GATES:
            self._seen.clear()
            self._connection = connection
            return True
        return False

    async def look(
        self,
        connection: Connection,
        statements: dict[str, str],
        gates: Collection[str],
        *,
        lock: Collection[str] = (),
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> dict[str, GateState]:
        """Look at gates.

        Arguments:
            connection: In a transaction at READ COMMITTED that has locked them in an earlier statement.
            statements: Those of this module, of `_gates_lock`, and maybe others.
            gates: Which.
            lock: Those that aren't locked yet, which is waited for first.
            prepare: What needs the locks, and is to be done before it's looked whose turn it is in a sequence.

        Raises:
            StoreContended: Somebody keeps one of those that aren't locked yet.
        """
        kinds: dict[GateKind, list[str]] = {}
        for gate in gates:
            kinds.setdefault(kind_of(gate), []).append(gate)
        states: dict[str, GateState] = {}
        sequences, limits = kinds.get(GateKind.SEQUENCE, []), kinds.get(GateKind.LIMIT, [])
        if placed := sequences + limits:
            running = await self._running(connection, statements, placed, lock)
            for gate in limits:
                most, count = running[gate]
                states[gate] = GateState(free=None if most is None else max(0, most - count))
            if prepare is not None:
                await prepare()
            if sequences:
                rows = await connection.fetch(statements["gates_look_sequences"], sequences)
                heads = {row[0]: row[1] for row in rows}
                for gate in sequences:
                    states[gate] = GateState(head=None if running[gate][1] else heads[gate], sequence=True)
        elif lock:
            await lock_gates(connection, statements, lock)
        if rates := kinds.get(GateKind.RATE):
            for gate, free in await connection.fetch(statements["gates_look_rates"], rates):
                states[gate] = GateState(free=free)
        return states

    async def _running(
        self, connection: Connection, statements: dict[str, str], gates: list[str], lock: Collection[str]
    ) -> dict[str, tuple[int | None, int]]:
        """How many may run at gates, and how many do."""
        full, began = self._begin(connection), time.monotonic()
        seen = [self._seen.setdefault(gate, _Seen()) for gate in gates]
        with room_for(len(lock)):
            rows = await connection.fetch(
                statements["gates_look_places"],
                list(lock),
                gates,
                [each.high for each in seen],
                [f"{{{','.join(map(str, each.numbers))}}}" for each in seen],
            )
        if full:
            self._full.done(began, time.monotonic())
        running: dict[str, tuple[int | None, int]] = {}
        for gate, most, numbers, highest in rows:
            known = self._seen[gate]
            known.numbers, known.high = list(numbers), highest
            running[gate] = most, len(known.numbers)
        return running
