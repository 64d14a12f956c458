"""Whose turn it is: the lanes of one type, one after the other, and the heads of each.

A process remembers what it has taken of each lane, and begins behind that; where it's slow to go through the lanes, since
those of somebody's old snapshot can't be removed, it remembers which lanes there are, too. Both for a second, or for as long as
looking anew is a twentieth of the time.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Any, NamedTuple

from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._rows import moment
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Head", "TurnsOfType", "turn_statements"]

_SLOW_SECONDS = 0.005
_FROM_THE_BEGINNING_SECONDS = 1.0
_MOST_REMEMBERED_LANES = 20_000
_MOST_HEADS = 1_000
"""At which is looked where there are few lanes: some may have less than their part."""

# Of one type, from one lane to the next behind the cursor. The lane of those without a value comes before the others.
_NEXT = f"""coalesce(
    CASE WHEN {{after}} COLLATE "C" < '{FAIR}' || $1::text THEN (
        SELECT j.gate FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = '{FAIR}' || $1::text LIMIT 1) END,
    (SELECT j.gate FROM @schema@.job j
     WHERE j.state <= 0 AND j.gate COLLATE "C" > greatest({{after}} COLLATE "C", '{FAIR}' || $1::text || '=')
       AND j.gate COLLATE "C" < '{FAIR}' || $1::text || '>'
     ORDER BY j.gate COLLATE "C" LIMIT 1))"""
_LANES = f"""WITH RECURSIVE turn(gate) AS (
    SELECT {_NEXT.format(after="$2::text")}
    UNION ALL
    SELECT {_NEXT.format(after="turn.gate")} FROM turn WHERE turn.gate IS NOT NULL
)
SELECT gate FROM turn WHERE gate IS NOT NULL LIMIT $3::integer"""

# The first of each lane before the second of any. Rows are compared so that no other index serves than that of gates.
# What was put off while it was held, or is in a sequence, can't be taken at once.
_HEADS = f"""SELECT given.gate, head.priority, {moment("head.run_at")}, head.id, head.at_once
FROM unnest($2::text[], $3::smallint[], $4::timestamptz[], $5::uuid[])
         WITH ORDINALITY AS given(gate, floor_priority, floor_at, floor_id, place)
CROSS JOIN LATERAL (
    SELECT first.*, row_number() OVER (ORDER BY first.priority, first.run_at, first.id) AS nth
    FROM unnest($1::text[]) AS name(type) CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.id, j.run_at <= now() AND j.gates IS NULL AS at_once FROM @schema@.job j
        WHERE j.state <= 0 AND j.gate IS NOT NULL AND j.open_blockers <= 0
          AND (j.gate COLLATE "C", j.type) <= (given.gate, name.type)
          AND (j.gate COLLATE "C", j.type, j.priority, j.run_at, j.id)
              > (given.gate, name.type, coalesce(given.floor_priority, 0::smallint),
                 coalesce(given.floor_at, '-infinity'::timestamptz),
                 coalesce(given.floor_id, '00000000-0000-0000-0000-000000000000'::uuid))
        ORDER BY j.gate COLLATE "C", j.type, j.priority, j.run_at, j.id LIMIT $6::integer) AS first
    ORDER BY first.priority, first.run_at, first.id LIMIT $6::integer) AS head
ORDER BY head.nth, given.place LIMIT $7::integer"""


def turn_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"fair_lanes": schema.render(_LANES), "fair_heads": schema.render(_HEADS)}


class Head(NamedTuple):
    """A job whose turn it is.

    Attributes:
        gate: Its lane.
        place: Its priority, due time and id, by which the lane is in order.
        at_once: Whether it's due, and in no sequence.
    """

    gate: str
    place: tuple[int, Any, UUID]
    at_once: bool


class TurnsOfType:
    """Walks through the lanes of one type.

    Arguments:
        connection: The claims'.
        statements: Those of this module, and maybe others.
        name: The type's, by which its lanes are named.

    Attributes:
        waiting: Whose turn it is, and who hasn't left their lanes yet.
    """

    def __init__(self, connection: ReservedConnection, statements: dict[str, str], name: str) -> None:
        self._connection = connection
        self._statements = statements
        self._name = name
        self._cursor = ""
        self._all: list[str] = []  # the lanes, where all of them were seen
        self._walk = Throttle(_SLOW_SECONDS)
        self._floors: dict[str, tuple[int, Any, UUID]] = {}
        self._full = Throttle(_SLOW_SECONDS)
        self.waiting: list[Head] = []

    async def heads(self, types: Sequence[str], most: int) -> list[Head]:
        """Whose turn it is, in order: from where the last round ended, one of each lane before the second of any.

        Arguments:
            types: The names under which jobs are stored.
            most: How many.
        """
        lanes = await self._lanes(most)
        full = self._full.pause == 0 and time.monotonic() - self._full.last > _FROM_THE_BEGINNING_SECONDS
        self.waiting = await self._look(types, lanes, most, full=full) if lanes else []
        if lanes and not self.waiting and not full and self._full.pause == 0:
            self.waiting = await self._look(types, lanes, most, full=True)
        if self._all:
            found = {head.gate for head in self.waiting}
            gone = {lane for lane in lanes if lane not in found}
            self._all = [lane for lane in self._all if lane not in gone] if len(self.waiting) < most else self._all
        return self.waiting

    async def _look(self, types: Sequence[str], lanes: Sequence[str], most: int, *, full: bool) -> list[Head]:
        began = time.monotonic()
        if full or len(self._floors) > _MOST_REMEMBERED_LANES:
            self._floors.clear()
        floors = [self._floors.get(lane, (None, None, None)) for lane in lanes]
        each = min(most, max(-(-most // len(lanes)), _MOST_HEADS // len(lanes)))
        rows = await self._connection.fetch(
            self._statements["fair_heads"], list(types), lanes, *map(list, zip(*floors, strict=True)), each, most
        )
        if full:
            self._full.done(began, time.monotonic())
        return [Head(gate, (priority, run_at, job_id), at_once) for gate, priority, run_at, job_id, at_once in rows]

    async def _lanes(self, most: int) -> list[str]:
        """The next lanes in which jobs wait."""
        if self._all and self._walk.pause > 0:
            behind = bisect_right(self._all, self._cursor)
            return [*self._all[behind:], *self._all[:behind]][:most]
        began = time.monotonic()
        lanes = await self._behind(self._cursor, most)
        if len(lanes) < most and self._cursor:
            known = set(lanes)
            lanes += [lane for lane in await self._behind("", most - len(lanes)) if lane not in known]
        self._walk.done(began, time.monotonic())
        self._all = sorted(lanes) if len(lanes) < most else []
        return lanes

    async def _behind(self, cursor: str, most: int) -> list[str]:
        return [row[0] for row in await self._connection.fetch(self._statements["fair_lanes"], self._name, cursor, most)]

    def gone(self, ids: Collection[UUID]) -> None:
        """Some of the heads have left their lanes; the others are the next ones.

        Arguments:
            ids: Which, and maybe others.
        """
        left: set[str] = set()
        for head in self.waiting:
            if head.place[2] not in ids:
                left.add(head.gate)
                continue
            self._cursor = head.gate
            if head.gate not in left:
                self._floors[head.gate] = head.place
        self.waiting = []

    def sorted_into(self, gate: str, place: tuple[int, Any, UUID]) -> None:
        """A job waits for its turn from now on.

        Arguments:
            gate: Its lane.
            place: Its priority, due time and id.
        """
        if gate in self._floors and self._floors[gate] >= place:
            del self._floors[gate]
        if self._all and gate not in self._all[bisect_right(self._all, gate) - 1 :][:1]:
            insort(self._all, gate)
