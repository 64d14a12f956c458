"""Upkeep of gates: those held whose place is free, and what is left behind of jobs that are gone.

All gates at which jobs are held are looked at in turn without a lock, 5,000 of them each time, as are all places, members and
rates. Those that seem to have room are locked then, and looked at again.
So whoever waits where no mark was left waits for no longer than a look for each 5,000 gates with held jobs: about 5 s each with
one worker that tends, less with more of them. Stale places take nobody's: claims count those whose jobs run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioqueue.errors import StoreError
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._errors import breaks_connection, cuts_short
from aioqueue.postgres._gates_come import MOST_COME, let_come
from aioqueue.postgres._gates_lock import MOST_GATES, lock_gates
from aioqueue.postgres._gates_look import GateLooks
from aioqueue.postgres._gates_promote import promote_statements
from aioqueue.postgres._gates_refusals import PassedOver, Refusals
from aioqueue.postgres._gates_room import ALL_GATES, ALL_LANES
from aioqueue.vocabulary._gates import FAIR
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Connection, Reader
    from aioqueue.postgres._options_schema import Schema

__all__ = ["GateSweep", "Swept", "sweep_statements"]

_SWEPT_ROWS = 5_000
"""Gates, places, or members, that one look goes through."""
_NIL = UUID(int=0)
_PLACES = f"""WITH place AS MATERIALIZED (
    SELECT p.gate, p.number, p.job_id FROM @schema@.gate_place p
    WHERE (p.gate, p.number) > ($1::text, $2::bigint) ORDER BY p.gate, p.number LIMIT {_SWEPT_ROWS}
)
SELECT place.gate, place.number, (SELECT true FROM @schema@.job j WHERE j.id = place.job_id AND j.state + 0 = 2 LIMIT 1) IS NULL
FROM place ORDER BY place.gate, place.number"""
_MEMBERS = f"""WITH member AS MATERIALIZED (
    SELECT m.chain_id, m.failed FROM @schema@.gate_member m WHERE m.chain_id > $1::uuid ORDER BY m.chain_id LIMIT {_SWEPT_ROWS}
)
SELECT member.chain_id, NOT member.failed AND (SELECT true FROM @schema@.job j WHERE j.id = member.chain_id LIMIT 1) IS NULL
       AND (SELECT true FROM @schema@.job j WHERE j.chain_id = member.chain_id LIMIT 1) IS NULL
FROM member ORDER BY member.chain_id"""

# As many may start there at once as if none ever had: nothing is lost with it.
_IS_SPARE = """r.wake_at IS NULL AND r.arrival <= clock_timestamp() - coalesce((
    SELECT CASE WHEN l.places > 0
                THEN ceil(l.per * 1000000 / l.places) * interval '1 us' * greatest(1, coalesce(l.burst, l.places))
                ELSE interval '1000 years' END
    FROM @schema@.gate_limit l WHERE l.name = split_part(r.gate, '=', 1) AND l.per IS NOT NULL LIMIT 1), interval '0')"""
_RATES = f"""SELECT r.gate, {_IS_SPARE} FROM @schema@.gate_rate r WHERE r.gate > $1::text ORDER BY r.gate LIMIT {_SWEPT_ROWS}"""
_DROP_RATES = f"DELETE FROM @schema@.gate_rate r WHERE r.gate = ANY($1::text[]) AND {_IS_SPARE}"
_DROP_PLACES = """WITH gone AS (
    DELETE FROM @schema@.gate_place p USING unnest($1::text[], $2::bigint[]) AS given(gate, number)
    WHERE p.gate = given.gate AND p.number = given.number
      AND (SELECT true FROM @schema@.job j WHERE j.id = p.job_id AND j.state + 0 = 2 LIMIT 1) IS NULL
    RETURNING p.gate
)
INSERT INTO @schema@.gate_mark (gate, freed) SELECT gate, count(*) FROM gone GROUP BY gate"""
_DROP_MEMBERS = """WITH gone AS (
    DELETE FROM @schema@.gate_member m WHERE m.chain_id = ANY($1::uuid[]) AND NOT m.failed
      AND (SELECT true FROM @schema@.job j WHERE j.id = m.chain_id LIMIT 1) IS NULL
      AND (SELECT true FROM @schema@.job j WHERE j.chain_id = m.chain_id LIMIT 1) IS NULL
    RETURNING m.sequence
)
INSERT INTO @schema@.gate_mark (gate) SELECT DISTINCT 'sequence=' || sequence FROM gone"""


def sweep_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "gates_places": _PLACES,
        "gates_members": _MEMBERS,
        "gates_rates": _RATES,
        "gates_drop_rates": _DROP_RATES,
        "gates_drop_places": _DROP_PLACES,
        "gates_drop_members": _DROP_MEMBERS,
    }
    return {**{name: schema.render(template) for name, template in templates.items()}, **promote_statements(schema)}


@dataclass(slots=True)
class Swept:
    """What one look has found.

    Attributes:
        gates: At which jobs are held, and that seem to have room.
        lanes: In which jobs are held.
        more: Whether other gates have room, too.
        trouble: What has gone wrong with some of the looks.
        places: Stale ones, by gate and number.
        members: Chains that are members, and gone.
        rates: Of which nothing has to be remembered any more.
    """

    gates: Sequence[str] = ()
    lanes: Sequence[str] = ()
    more: bool = False
    trouble: list[StoreError] = field(default_factory=list["StoreError"])
    places: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    members: list[UUID] = field(default_factory=list[UUID])
    rates: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return bool(self.gates or self.lanes or self.is_over)

    @property
    def is_over(self) -> bool:
        """Whether there is something to remove."""
        return bool(self.places or self.members or self.rates)


class GateSweep:
    """Looks at gates in turn, and puts them in order.

    Arguments:
        reader: Runs the looks.
        schema: Where the tables are.
        origin: Who tells other processes; None if nobody is to be told.
    """

    def __init__(self, reader: Reader, schema: Schema, origin: str | None) -> None:
        self._reader = reader
        self._statements = sweep_statements(schema)
        self._origin = origin
        self._gate, self._end = ALL_GATES
        self._most = _SWEPT_ROWS
        self._lane, self._last_lane = ALL_LANES
        self._place: tuple[str, int] = ("", 0)
        self._member = _NIL
        self._rate = ""
        self._walks = Throttle()
        self._looks = GateLooks()
        self._refusals = Refusals()
        self._passed_over = PassedOver()

    async def look(self) -> Swept:
        """Look through the next ones. What goes wrong with one kind of look keeps no other from it."""
        swept = Swept()
        for look in (
            self._look_at_gates,
            self._look_at_lanes,
            self._look_at_places,
            self._look_at_members,
            self._look_at_rates,
        ):
            try:
                await look(swept)
            except StoreError as error:
                if breaks_connection(error) or cuts_short(error):
                    raise
                swept.trouble.append(error)
        return swept

    async def _look_at_gates(self, swept: Swept) -> None:
        if self._walks.pause > 0:
            return
        began, most = time.monotonic(), self._most
        self._most = max(1, most // 2)  # unless it succeeds
        try:
            ((swept.gates, last),) = await self._reader.read(self._statements["gates_with_room"], self._gate, self._end, most)
        except StoreError as error:
            if most == 1 and not (breaks_connection(error) or cuts_short(error)):  # it's that one: the others come next
                ((gates, _),) = await self._reader.read(self._statements["lanes_held"], self._gate, self._end)
                self._gate = gates[0] if gates else ALL_GATES[0]
            raise
        self._gate, self._most = last or ALL_GATES[0], min(2 * most, _SWEPT_ROWS)
        self._walks.done(began, time.monotonic())
        swept.more = len(swept.gates) == MOST_GATES

    async def _look_at_lanes(self, swept: Swept) -> None:
        ((swept.lanes, last),) = await self._reader.read(self._statements["lanes_held"], self._lane, self._last_lane)
        self._lane = last or ALL_LANES[0]

    async def _look_at_places(self, swept: Swept) -> None:
        rows = await self._reader.read(self._statements["gates_places"], *self._place)
        self._place = (rows[-1][0], rows[-1][1]) if len(rows) == _SWEPT_ROWS else ("", 0)
        swept.places = [(row[0], row[1]) for row in rows if row[2]]

    async def _look_at_members(self, swept: Swept) -> None:
        rows = await self._reader.read(self._statements["gates_members"], self._member)
        self._member = rows[-1][0] if len(rows) == _SWEPT_ROWS else _NIL
        swept.members = [row[0] for row in rows if row[1]]

    async def _look_at_rates(self, swept: Swept) -> None:
        rows = await self._reader.read(self._statements["gates_rates"], self._rate)
        self._rate = rows[-1][0] if len(rows) == _SWEPT_ROWS else ""
        swept.rates = [row[0] for row in rows if row[1]]

    async def let_come(self, connection: Connection, gates: Sequence[str]) -> tuple[int, Notification]:
        """Let come whom these gates have room for, within the connection's open transaction; not at gates that are locked.

        Of those that wait for their turn a single one of each lane: it may be that no worker gives turns any more.

        Returns:
            How many have come, and what listeners are to be told.
        """
        await connection.execute(HOLD_BRIEFLY)
        left = set(self._refusals.names)
        free = await lock_gates(connection, self._statements, [gate for gate in gates if gate not in left], waits=False)
        jobs, types = 0, set[str]()

        async def some(part: Sequence[str], *, singly: bool = False) -> None:
            nonlocal jobs
            freed = {gate: 1 if gate.startswith(FAIR) else MOST_COME for gate in part}
            passed_over = self._passed_over
            come = await let_come(
                connection, self._statements, self._looks, freed, passed_over, origin=self._origin, singly=singly
            )
            jobs += come.jobs
            types.update(name for name, _ in come.firsts)

        refusing = [gate for gate, why in await in_halves(connection, list(free), some) if why is not None]
        for gate, why in await in_halves(connection, refusing, partial(some, singly=True)):
            if why is not None:
                self._refusals.add([gate], why)
        return jobs, Notification(types=frozenset(types))

    async def drop(self, connection: Connection, swept: Swept) -> None:
        """Remove what is left behind, within the connection's open transaction; claims are told by marks."""
        arguments: list[tuple[str, list[Any]]] = [
            ("gates_drop_places", [[gate for gate, _ in swept.places], [number for _, number in swept.places]]),
            ("gates_drop_members", [swept.members]),
            ("gates_drop_rates", [swept.rates]),
        ]
        for name, given in arguments:
            if given[0]:
                await connection.fetch(self._statements[name], *given)
