"""Turns: due jobs of a type whose values take turns are sorted into lanes, held there, and let come one after the other.

What was let come is pending, with its lane as its gate, and claims take it like others. So at most as many are let come as a
claim has room for; what the last one left counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._pauses_parked import type_is_free
from aioqueue.postgres._rows import moment
from aioqueue.store_rules._gates import fair_gate_of
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._gates import GateRules

__all__ = ["FAIR_DUE", "FairTurns", "fair_statements"]

_SORTED_AT_ONCE = 5_000
_SORTING_SECONDS = 5.0
"""For which a claim sorts; the next one goes on with it."""

_UNSORTED = f"""SELECT j.id, j.type, j.payload::text, j.metadata::text FROM @schema@.job j WHERE j.id = ANY(ARRAY(
    SELECT taken.id FROM unnest($1::text[], $2::smallint[]) AS lane(type, priority)
    CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j
        WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority AND j.run_at <= now() AND j.gate IS NULL
        ORDER BY j.run_at, j.id LIMIT {_SORTED_AT_ONCE} FOR UPDATE OF j SKIP LOCKED) AS taken
    WHERE {type_is_free("lane.type")} LIMIT {_SORTED_AT_ONCE}))"""
_SORT = """UPDATE @schema@.job j SET state = 0, gate = given.gate FROM unnest($1::uuid[], $2::text[]) AS given(id, gate)
WHERE j.id = ANY($1::uuid[]) AND j.id = given.id AND j.state + 0 = 1"""

# What was let come and hasn't been taken, counted up to the room of a claim.
_COME = f"""SELECT given.type, (
    SELECT count(*) FROM (
        SELECT FROM unnest(ARRAY[1, 2, 3, 4]::smallint[]) AS level(priority) CROSS JOIN LATERAL (
            SELECT j.gate FROM @schema@.job j
            WHERE j.state = 1 AND j.type = given.type AND j.priority = level.priority AND j.run_at <= now()
            ORDER BY j.run_at, j.id LIMIT $2::integer) AS first
        WHERE starts_with(first.gate, '{FAIR}') LIMIT $2::integer) AS come)
FROM unnest($1::text[]) AS given(type) WHERE {type_is_free("given.type")}"""
# Of one type, from one lane to the next behind the cursor. The lane of those without a value comes before the others.
_NEXT = f"""coalesce(
    CASE WHEN {{after}} COLLATE "C" < '{FAIR}' || $1::text THEN (
        SELECT j.gate FROM @schema@.job j WHERE j.state = 0 AND j.gate COLLATE "C" = '{FAIR}' || $1::text LIMIT 1) END,
    (SELECT j.gate FROM @schema@.job j
     WHERE j.state = 0 AND j.gate COLLATE "C" > greatest({{after}} COLLATE "C", '{FAIR}' || $1::text || '=')
       AND j.gate COLLATE "C" < '{FAIR}' || $1::text || '>'
     ORDER BY j.gate COLLATE "C" LIMIT 1))"""
_TURNS = f"""WITH RECURSIVE turn(gate) AS (
    SELECT {_NEXT.format(after="$2::text")}
    UNION ALL
    SELECT {_NEXT.format(after="turn.gate")} FROM turn WHERE turn.gate IS NOT NULL
)
SELECT gate FROM turn WHERE gate IS NOT NULL LIMIT $3::integer"""
_TAKE_TURNS = f"""WITH first AS MATERIALIZED (
    SELECT head.id FROM unnest($1::text[], $2::integer[]) AS given(gate, jobs) CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j WHERE j.state = 0 AND j.gate = given.gate AND j.open_blockers <= 0
        ORDER BY j.priority, j.run_at, j.id LIMIT given.jobs FOR UPDATE OF j SKIP LOCKED) AS head
)
UPDATE @schema@.job j SET state = 1 WHERE j.id = ANY(ARRAY(SELECT id FROM first)) AND j.state + 0 = 0
RETURNING j.type, j.priority, {moment("j.run_at")}, j.id"""

FAIR_DUE = f"""EXISTS (SELECT FROM unnest(@types@::text[]) AS given(type) WHERE {type_is_free("given.type")} AND (
        EXISTS (SELECT FROM @schema@.job j WHERE j.state = 0 AND j.gate COLLATE "C" = '{FAIR}' || given.type)
        OR EXISTS (SELECT FROM @schema@.job j WHERE j.state = 0 AND j.gate COLLATE "C" > '{FAIR}' || given.type || '='
                   AND j.gate COLLATE "C" < '{FAIR}' || given.type || '>')))"""
"""An expression: whether something waits for its turn, of types whose parameter stands for `@types@`."""


def fair_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "fair_unsorted": _UNSORTED,
        "fair_sort": _SORT,
        "fair_come": _COME,
        "fair_turns": _TURNS,
        "fair_take_turns": _TAKE_TURNS,
    }
    return {name: schema.render(template) for name, template in templates.items()}


class FairTurns:
    """Sorts, and lets come in turn, over the connection of the claims.

    Arguments:
        connection: The claims'.
        statements: Those of this module, and maybe others.
    """

    def __init__(self, connection: ReservedConnection, statements: dict[str, str]) -> None:
        self._connection = connection
        self._statements = statements
        self._cursors: dict[str, str] = {}

    async def run(self, rules: Mapping[str, GateRules], types: Sequence[str], limit: int) -> dict[Lane, Floor]:
        """Let come as many of each type as a claim has room for; returns the first in each lane.

        Arguments:
            rules: Of the types that have any.
            types: What is claimed.
            limit: Jobs at most.
        """
        fair = [name for name in types if name in rules and rules[name].fair_by is not None]
        began = time.monotonic()
        while fair and await self._sort(rules, fair) and time.monotonic() - began < _SORTING_SECONDS:
            pass
        firsts: dict[Lane, Floor] = {}
        # Of those that are stored under an alias the lanes are named as of the others.
        stored = {rules[name].type for name in fair}
        if stored:
            come = dict(await self._connection.fetch(self._statements["fair_come"], list(stored), limit))
            for name, left in come.items():
                if limit > left:
                    for job_type, priority, run_at, job_id in await self._let_come(name, limit - left):
                        first = (run_at, job_id)
                        firsts[job_type, priority] = min(first, firsts.get((job_type, priority), first))
        return firsts

    async def _sort(self, rules: Mapping[str, GateRules], types: Sequence[str]) -> bool:
        """Sort a portion of what isn't sorted yet; returns whether there may be more."""
        async with self._connection.transaction() as connection:
            await connection.execute(HOLD_BRIEFLY)
            rows = await connection.fetch(self._statements["fair_unsorted"], *lanes_of(types))
            gates: dict[UUID, str] = {}
            for job_id, job_type, payload, metadata in rows:
                gate = fair_gate_of(rules[job_type], payload.encode(), metadata.encode())
                if gate is not None:
                    gates[job_id] = gate

            async def sort(ids: Sequence[UUID]) -> None:
                await connection.fetch(self._statements["fair_sort"], list(ids), [gates[each] for each in ids])

            refused = await in_halves(connection, list(gates), sort) if gates else []
        return len(rows) == _SORTED_AT_ONCE and len(refused) < len(rows)

    async def _let_come(self, name: str, room: int) -> Sequence[Any]:
        """Let come so many of a type: one of each lane before the second of any, from where the last round ended."""
        async with self._connection.transaction() as connection:
            await connection.execute(HOLD_BRIEFLY)
            lanes = await self._lanes(connection, name, room)
            if not lanes:
                return []
            each, more = divmod(room, len(lanes))
            jobs = [each + (place < more) for place in range(len(lanes))]
            rows = await connection.fetch(self._statements["fair_take_turns"], lanes, jobs)
        self._cursors[name] = lanes[(more or len(lanes)) - 1]
        return rows

    async def _lanes(self, connection: Connection, name: str, most: int) -> list[str]:
        cursor = self._cursors.get(name, "")
        lanes = [row[0] for row in await connection.fetch(self._statements["fair_turns"], name, cursor, most)]
        if len(lanes) < most and cursor:
            known = set(lanes)
            again = await connection.fetch(self._statements["fair_turns"], name, "", most - len(lanes))
            lanes += [row[0] for row in again if row[0] not in known]
        return lanes
