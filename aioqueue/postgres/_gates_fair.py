"""Turns: due jobs of a type whose values take turns are sorted into lanes, held there, and taken from them in turn.

A claim is given the ids of those whose turn it is, and takes them from where they are. Where they wait at other gates, too, or
where there are pauses, they're let come: they're pending then, with their lane as their gate, and claims take them like others.
So at most as many are let come as a claim has room for; what the last one left counts.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError
from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._gates_refusals import Refusals, concerns_all
from aioqueue.postgres._gates_turns import TurnsOfType, turn_statements
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

__all__ = ["FAIR_DUE", "FairTurns", "Sorted", "fair_statements", "waits_at_gates", "without_turns"]

_SORTED_AT_ONCE = 1_000
_SORTING_SECONDS = 0.2
"""For which a claim sorts, all types together, before it takes jobs of others. The next one goes on with it."""
_SORTING_FIRST_SECONDS = 5.0
"""For which no job of a type is taken before all are sorted. Then each claim takes one: slots aren't empty for longer, and few
of them are gone when it's seen who else waits.
"""

_FROM_THE_BEGINNING_SECONDS = 1.0
_SLOW_SECONDS = 0.005

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

_LET_COME = f"""WITH first AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j
    WHERE j.id = ANY($1::uuid[]) AND j.state + 0 = 0 AND starts_with(j.gate, '{FAIR}') AND j.open_blockers <= 0
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE @schema@.job j SET state = 1 WHERE j.id = ANY(ARRAY(SELECT id FROM first)) AND j.state + 0 = 0
RETURNING j.type, j.priority, {moment("j.run_at")}, j.id"""

# What somebody has locked keeps nobody else from a turn.
_FULL = """SELECT given.type FROM unnest($1::text[], $2::text[]) AS given(type, gate) CROSS JOIN LATERAL (
    SELECT j.id FROM @schema@.job j
    WHERE j.state <= 0 AND j.gate COLLATE "C" = given.gate AND j.type = given.type AND j.open_blockers <= 0
    LIMIT 1 FOR UPDATE OF j SKIP LOCKED) AS held"""

FAIR_DUE = f"""EXISTS (SELECT FROM unnest(@types@::text[]) AS given(type) WHERE {type_is_free("given.type")} AND (
        EXISTS (SELECT FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = '{FAIR}' || given.type)
        OR EXISTS (SELECT FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" > '{FAIR}' || given.type || '='
                   AND j.gate COLLATE "C" < '{FAIR}' || given.type || '>')))"""
"""An expression: whether something waits for its turn, of types whose parameter stands for `@types@`."""


def fair_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "fair_full": _FULL,
        "fair_are_unsorted": _ARE_UNSORTED,
        "fair_unsorted": _UNSORTED,
        "fair_sort": _SORT,
        "fair_let_come": _LET_COME,
    }
    return {**{name: schema.render(template) for name, template in templates.items()}, **turn_statements(schema)}


def waits_at_gates(rules: GateRules) -> bool:
    """Whether jobs wait for more than their turn."""
    return rules.limit or rules.shared is not None or rules.rate or rules.sequence_by is not None


@dataclass(frozen=True, slots=True)
class Sorted:
    """What was done before a claim.

    Attributes:
        fronts: How far all was sorted in each lane of pending jobs.
        firsts: The first that was let come in each.
    """

    fronts: dict[Lane, Floor] = field(default_factory=dict["Lane", "Floor"])
    firsts: dict[Lane, Floor] = field(default_factory=dict["Lane", "Floor"])


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
    """Sorts, and says whose turn it is, over the connection of the claims.

    Arguments:
        connection: The claims'.
        statements: Those of this module, and maybe others.

    Attributes:
        refusals: Types that are left alone for the moment.
        sorting: Types that have more due jobs than could be sorted before this claim, and when that began.
    """

    def __init__(self, connection: ReservedConnection, statements: dict[str, str]) -> None:
        self.refusals = Refusals()
        self.sorting: dict[str, float] = {}
        self._connection = connection
        self._statements = statements
        self._turns: dict[str, TurnsOfType] = {}
        self._come: Counter[str] = Counter()
        self._sorted: dict[Lane, Floor] = {}
        self._full = Throttle(_SLOW_SECONDS)

    async def run(
        self, rules: Mapping[str, GateRules], types: Sequence[str], limit: int, came: Collection[str] = (), *, pausing: bool
    ) -> Sorted:
        """Sort; and of types that wait for more than their turn let come as many as a claim has room for.

        Arguments:
            rules: Of the types that have any.
            types: What is claimed.
            limit: Jobs at most.
            came: The types of those that were let come at other gates, and go before those that would get a turn.
            pausing: Whether there are pauses: then what waits for nothing else is let come, too.

        Raises:
            StoreError: The database can't be used.
        """
        done = Sorted()
        fair = self._fair(rules, types)
        since, self.sorting = self.sorting, {}
        until = time.monotonic() + _SORTING_SECONDS
        for name in await self._unsorted(fair) if fair else ():
            await self._tried(rules[name].type, partial(self._sort_some, rules, name, done, until, since))
        full = await without_turns(self._connection.fetch, self._statements, rules, fair)
        full.update(rules[name].type for name in came if name in fair and gates_behind_turns(rules[name]))
        for name, names in self._by_type(rules, fair).items():
            room = self.most(names, limit) - self._come[name]
            if room > 0 and name not in full and (pausing or waits_at_gates(rules[names[0]])):
                await self._tried(name, partial(self._let_come_of, name, names, room, done))
        return done

    async def heads(self, rules: Mapping[str, GateRules], types: Sequence[str], most: int) -> list[UUID]:
        """Whose turn it is, of types that wait for nothing else: they can be claimed from where they are.

        Arguments:
            rules: Of the types that have any.
            types: What is claimed.
            most: How many of each.
        """
        at_once: list[UUID] = []

        async def of_type(name: str, names: Sequence[str]) -> None:
            heads = await self._turns_of(name).heads(names, self.most(names, most))
            at_once.extend(head.place[2] for head in heads if head.at_once)
            if later := [head.place[2] for head in heads if not head.at_once]:
                await self._let_come(later)

        for name, names in self._by_type(rules, self._fair(rules, types)).items():
            if not waits_at_gates(rules[names[0]]):
                await self._tried(name, partial(of_type, name, names))
        return at_once

    def most(self, names: Iterable[str], limit: int) -> int:
        """How many jobs of one type a claim may take: none while all are sorted first, and one where that takes long.

        Arguments:
            names: Under which the type's jobs are stored.
            limit: Where all are sorted.
        """
        began = [self.sorting[name] for name in names if name in self.sorting]
        if not began:
            return limit
        return 0 if time.monotonic() - min(began) < _SORTING_FIRST_SECONDS else 1

    def gone(self, ids: Collection[UUID]) -> None:
        """These were claimed, of those whose turn it was."""
        for turns in self._turns.values():
            turns.gone(ids)

    async def let_come_all(self) -> None:
        """Let come those whose turn it is, since they can't be claimed from where they are."""
        for name, turns in self._turns.items():
            if left := [head.place[2] for head in turns.waiting]:
                turns.gone(left)
                await self._tried(name, partial(self._let_come, left))

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

    def _fair(self, rules: Mapping[str, GateRules], types: Sequence[str]) -> list[str]:
        left = set(self.refusals.names) if rules else set[str]()
        fair = [name for name in types if name in rules and rules[name].fair_by is not None]
        return [name for name in fair if rules[name].type not in left]

    def _by_type(self, rules: Mapping[str, GateRules], names: Sequence[str]) -> dict[str, list[str]]:
        """Of those that are stored under an alias the lanes are named as of the others."""
        types: dict[str, list[str]] = {}
        for name in names:
            types.setdefault(rules[name].type, []).append(name)
        return types

    def _turns_of(self, name: str) -> TurnsOfType:
        if name not in self._turns:
            self._turns[name] = TurnsOfType(self._connection, self._statements, name)
        return self._turns[name]

    async def _tried(self, name: str, do: Callable[[], Awaitable[object]]) -> None:
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
        floors = {} if full else self._sorted
        ((names,),) = await self._connection.fetch(self._statements["fair_are_unsorted"], *self._behind_floors(types, floors))
        if full:
            self._full.done(began, time.monotonic())
            for name in names or ():
                self._sorted = {lane: floor for lane, floor in self._sorted.items() if lane[0] != name}
        return names or ()

    def _behind_floors(
        self, types: Sequence[str], floors: Mapping[Lane, Floor]
    ) -> tuple[list[str], list[int], list[Any], list[Any]]:
        names, priorities = lanes_of(types)
        known = [floors.get(lane, (None, None)) for lane in zip(names, priorities, strict=True)]
        return names, priorities, [at for at, _ in known], [job_id for _, job_id in known]

    async def _sort_some(
        self, rules: Mapping[str, GateRules], name: str, done: Sorted, until: float, since: Mapping[str, float]
    ) -> None:
        """Sort a portion at least; a type that isn't done with by then is added to `sorting`, since when it was or now."""
        while await self._sort(rules[name], name, done):
            if time.monotonic() >= until:
                self.sorting[name] = since.get(name, time.monotonic())
                break

    async def _sort(self, rules: GateRules, name: str, done: Sorted) -> bool:
        """Sort a portion of what isn't sorted yet; returns whether there may be more."""
        async with self._connection.transaction(HOLD_BRIEFLY) as connection:
            rows = await connection.fetch(self._statements["fair_unsorted"], *self._behind_floors([name], self._sorted))
            gates: dict[UUID, str] = {}
            places: dict[UUID, tuple[int, Any, UUID]] = {}
            ends: dict[Lane, Floor] = {}
            for job_id, job_type, priority, run_at, payload, metadata in rows:
                gate = fair_gate_of(rules, payload.encode(), metadata.encode())
                if gate is not None:
                    gates[job_id], places[job_id] = gate, (priority, run_at, job_id)
                ends[job_type, priority] = max((run_at, job_id), ends.get((job_type, priority), (run_at, job_id)))

            async def sort(ids: Sequence[UUID]) -> None:
                await connection.fetch(self._statements["fair_sort"], list(ids), [gates[each] for each in ids])

            refused = await in_halves(connection, list(gates), sort) if gates else []
        turns = self._turns_of(rules.type)
        for job_id, gate in gates.items():
            turns.sorted_into(gate, places[job_id])
        self._sorted.update(ends)
        done.fronts.update(ends)
        return len(rows) == _SORTED_AT_ONCE and len(refused) < len(rows)

    async def _let_come_of(self, name: str, types: Sequence[str], room: int, done: Sorted) -> None:
        """Let come so many of a type."""
        turns = self._turns_of(name)
        ids = [head.place[2] for head in await turns.heads(types, room)]
        come = await self._let_come(ids) if ids else []
        turns.gone({job_id for _, (_, job_id) in come})
        self._come[name] += len(come)
        for lane, first in come:
            done.firsts[lane] = min(first, done.firsts.get(lane, first))

    async def _let_come(self, ids: Sequence[UUID]) -> list[tuple[Lane, Floor]]:
        """Let come what waits for its turn. Returns the lane and the place of each.

        Arguments:
            ids: Of the jobs.
        """
        rows = await self._connection.fetch(self._statements["fair_let_come"], ids)
        return [((job_type, priority), (run_at, job_id)) for job_type, priority, run_at, job_id in rows]
