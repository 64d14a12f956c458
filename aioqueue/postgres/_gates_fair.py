"""Turns: due jobs of a type whose values take turns are sorted into lanes, held there, and let come one after the other.

What was let come is pending, with its lane as its gate, and claims take it like others. So at most as many are let come as a
claim has room for; what the last one left counts.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError
from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._gates_refusals import Refusals, concerns_all
from aioqueue.postgres._pauses_parked import type_is_free
from aioqueue.postgres._rows import moment
from aioqueue.store_rules._gates import fair_gate_of, gates_behind_turns
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._gates import GateRules

__all__ = ["FAIR_DUE", "FairTurns", "fair_statements", "without_turns"]

_SORTED_AT_ONCE = 1_000
_SORTING_SECONDS = 0.2
"""For which a claim sorts, all types together; the next one goes on with it. Meanwhile each takes one job of the type: slots
aren't empty for seconds, and few of them are gone when it's seen who else waits.
"""

_FROM_THE_BEGINNING_SECONDS = 1.0

_LANES = """(
    SELECT given.type, given.priority, coalesce(given.floor_at, '-infinity'::timestamptz) AS floor_at,
           coalesce(given.floor_id, '00000000-0000-0000-0000-000000000000'::uuid) AS floor_id
    FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
        AS given(type, priority, floor_at, floor_id)) AS lane"""
_IN_LANE = """SELECT j.id FROM @schema@.job j
        WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority AND j.run_at <= now()
          AND (j.run_at, j.id) > (lane.floor_at, lane.floor_id) AND j.gate IS NULL"""
_ARE_UNSORTED = f"""SELECT array_agg(DISTINCT lane.type) FROM {_LANES}
WHERE {type_is_free("lane.type")} AND EXISTS ({_IN_LANE})"""
_UNSORTED = f"""SELECT j.id, j.type, j.priority, {moment("j.run_at")}, j.payload::text, j.metadata::text FROM @schema@.job j
WHERE j.id = ANY(ARRAY(
    SELECT taken.id FROM {_LANES}
    CROSS JOIN LATERAL ({_IN_LANE} ORDER BY j.run_at, j.id LIMIT {_SORTED_AT_ONCE} FOR UPDATE OF j SKIP LOCKED) AS taken
    WHERE {type_is_free("lane.type")} LIMIT {_SORTED_AT_ONCE}))"""
_SORT = """UPDATE @schema@.job j SET state = 0, gate = ($2::text[])[array_position($1::uuid[], j.id)]
WHERE j.id = ANY($1::uuid[]) AND j.state + 0 = 1"""

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

# What somebody has locked keeps nobody else from a turn.
_FULL = """SELECT given.type FROM unnest($1::text[], $2::text[]) AS given(type, gate) CROSS JOIN LATERAL (
    SELECT j.id FROM @schema@.job j
    WHERE j.state = 0 AND j.gate COLLATE "C" = given.gate AND j.type = given.type AND j.open_blockers <= 0
    LIMIT 1 FOR UPDATE OF j SKIP LOCKED) AS held"""

FAIR_DUE = f"""EXISTS (SELECT FROM unnest(@types@::text[]) AS given(type) WHERE {type_is_free("given.type")} AND (
        EXISTS (SELECT FROM @schema@.job j WHERE j.state = 0 AND j.gate COLLATE "C" = '{FAIR}' || given.type)
        OR EXISTS (SELECT FROM @schema@.job j WHERE j.state = 0 AND j.gate COLLATE "C" > '{FAIR}' || given.type || '='
                   AND j.gate COLLATE "C" < '{FAIR}' || given.type || '>')))"""
"""An expression: whether something waits for its turn, of types whose parameter stands for `@types@`."""


def fair_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "fair_full": _FULL,
        "fair_are_unsorted": _ARE_UNSORTED,
        "fair_unsorted": _UNSORTED,
        "fair_sort": _SORT,
        "fair_turns": _TURNS,
        "fair_take_turns": _TAKE_TURNS,
    }
    return {name: schema.render(template) for name, template in templates.items()}


async def without_turns(
    fetch: Callable[..., Awaitable[Sequence[Any]]],
    statements: Mapping[str, str],
    rules: Mapping[str, GateRules],
    types: Sequence[str],
) -> set[str]:
    """Those of the types of which nobody gets a turn now: some wait at a gate of all of them.

    Arguments:
        fetch: Runs a statement.
        statements: Those of this module, and maybe others.
        rules: Of the types that have any.
        types: Those of them that are asked about.
    """
    behind = [(name, gate) for name in types for gate in gates_behind_turns(rules[name])]
    if not behind:
        return set()
    return {rules[row[0]].type for row in await fetch(statements["fair_full"], *map(list, zip(*behind, strict=True)))}


class FairTurns:
    """Sorts, and lets come in turn, over the connection of the claims.

    Arguments:
        connection: The claims'.
        statements: Those of this module, and maybe others.

    Attributes:
        refusals: Types that are left alone for the moment.
        sorting: Types that have more due jobs than could be sorted before this claim.
    """

    def __init__(self, connection: ReservedConnection, statements: dict[str, str]) -> None:
        self.refusals = Refusals()
        self.sorting: set[str] = set()
        self._connection = connection
        self._statements = statements
        self._cursors: dict[str, str] = {}
        self._come: Counter[str] = Counter()
        self._sorted: dict[Lane, Floor] = {}
        self._full = Throttle()

    async def run(
        self, rules: Mapping[str, GateRules], types: Sequence[str], limit: int, came: Collection[str] = ()
    ) -> dict[Lane, Floor]:
        """Let come as many of each type as a claim has room for; returns the first in each lane.

        Arguments:
            rules: Of the types that have any.
            types: What is claimed.
            limit: Jobs at most.
            came: The types of those that were let come at other gates, and go before those that would get a turn.

        Raises:
            StoreError: The database can't be used.
        """
        left = set(self.refusals.names) if rules else set[str]()
        fair = [name for name in types if name in rules and rules[name].fair_by is not None]
        fair = [name for name in fair if rules[name].type not in left]
        self.sorting.clear()
        until = time.monotonic() + _SORTING_SECONDS
        for name in await self._unsorted(fair) if fair else ():
            await self._tried(rules[name].type, partial(self._sort_some, rules, name, until))
        firsts: dict[Lane, Floor] = {}
        full = await without_turns(self._connection.fetch, self._statements, rules, fair)
        full.update(rules[name].type for name in came if name in fair and gates_behind_turns(rules[name]))
        # Of those that are stored under an alias the lanes are named as of the others.
        for name in dict.fromkeys(rules[name].type for name in fair if rules[name].type not in full):
            most = limit if self.sorting.isdisjoint(each for each in fair if rules[each].type == name) else 1
            if (room := most - self._come[name]) > 0:
                await self._tried(name, partial(self._let_come, name, room, firsts))
        return firsts

    def taken(self, rules: Mapping[str, GateRules], types: Iterable[str], *, short: bool) -> None:
        """Jobs were claimed.

        Arguments:
            rules: Of the types that have any.
            types: Those of the jobs.
            short: Whether there were fewer than were asked for: then all that were let come are gone.
        """
        if short:
            self._come.clear()
        elif self._come:
            self._come -= Counter(rules[name].type for name in types if name in rules)

    async def _tried(self, name: str, do: Callable[[], Awaitable[None]]) -> None:
        """What refuses is left alone for a while; its jobs are claimed as they come then."""
        try:
            await do()
        except StoreError as error:
            if concerns_all(error):
                raise
            self.refusals.add([name], error)
        else:
            self.refusals.forget([name])

    async def _unsorted(self, types: Sequence[str]) -> Sequence[str]:
        """Which of them have jobs that aren't sorted. Those that came late, and are due earlier, are seen within a second."""
        began = time.monotonic()
        full = self._full.pause == 0 and began - self._full.last > _FROM_THE_BEGINNING_SECONDS
        if full:
            self._sorted.clear()
        ((names,),) = await self._connection.fetch(self._statements["fair_are_unsorted"], *self._behind_floors(types))
        if full:
            self._full.done(began, time.monotonic())
        return names or ()

    def _behind_floors(self, types: Sequence[str]) -> tuple[list[str], list[int], list[Any], list[Any]]:
        names, priorities = lanes_of(types)
        floors = [self._sorted.get(lane, (None, None)) for lane in zip(names, priorities, strict=True)]
        return names, priorities, [at for at, _ in floors], [job_id for _, job_id in floors]

    async def _sort_some(self, rules: Mapping[str, GateRules], name: str, until: float) -> None:
        """Sort a portion at least; a type that isn't done with by then is added to `sorting`."""
        while await self._sort(rules[name], name):
            if time.monotonic() >= until:
                self.sorting.add(name)
                break

    async def _sort(self, rules: GateRules, name: str) -> bool:
        """Sort a portion of what isn't sorted yet; returns whether there may be more."""
        async with self._connection.transaction(HOLD_BRIEFLY) as connection:
            rows = await connection.fetch(self._statements["fair_unsorted"], *self._behind_floors([name]))
            gates: dict[UUID, str] = {}
            ends: dict[Lane, Floor] = {}
            for job_id, job_type, priority, run_at, payload, metadata in rows:
                gate = fair_gate_of(rules, payload.encode(), metadata.encode())
                if gate is not None:
                    gates[job_id] = gate
                ends[job_type, priority] = max((run_at, job_id), ends.get((job_type, priority), (run_at, job_id)))

            async def sort(ids: Sequence[UUID]) -> None:
                await connection.fetch(self._statements["fair_sort"], list(ids), [gates[each] for each in ids])

            refused = await in_halves(connection, list(gates), sort) if gates else []
        self._sorted.update(ends)
        return len(rows) == _SORTED_AT_ONCE and len(refused) < len(rows)

    async def _let_come(self, name: str, room: int, firsts: dict[Lane, Floor]) -> None:
        """Let come so many of a type: one of each lane before the second of any, from where the last round ended."""
        lanes = await self._lanes(name, room)
        if not lanes:
            return
        each, more = divmod(room, len(lanes))
        jobs = [each + (place < more) for place in range(len(lanes))]
        for job_type, priority, run_at, job_id in await self._connection.fetch(
            self._statements["fair_take_turns"], lanes, jobs
        ):
            self._come[name] += 1
            first = (run_at, job_id)
            firsts[job_type, priority] = min(first, firsts.get((job_type, priority), first))
        self._cursors[name] = lanes[(more or len(lanes)) - 1]

    async def _lanes(self, name: str, most: int) -> list[str]:
        cursor = self._cursors.get(name, "")
        lanes = [row[0] for row in await self._connection.fetch(self._statements["fair_turns"], name, cursor, most)]
        if len(lanes) < most and cursor:
            known = set(lanes)
            again = await self._connection.fetch(self._statements["fair_turns"], name, "", most - len(lanes))
            lanes += [row[0] for row in again if row[0] not in known]
        return lanes
