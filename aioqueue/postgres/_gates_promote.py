"""Promotion: for each place that has become free, and for each start that a rate allows again, held jobs are let come.

A transaction of its own, which any claim does: it begins with the marks that were left, and takes them away when it has let
somebody come, so that one that dies loses nothing. It's a hint: the claim decides, and may hold them again. Of each type one is
let come for a place, since a type may be paused, or served by nobody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended, StoreError
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._gates_come import MOST_COME, Come, come_statements, let_come
from aioqueue.postgres._gates_lock import gate_lock_statements, lock_gates
from aioqueue.postgres._gates_refusals import PassedOver, Refusals, concerns_a_row, concerns_all
from aioqueue.postgres._gates_room import ALL_SEQUENCES, room_statements
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._gates_look import GateLooks
    from aioqueue.postgres._options_schema import Schema

__all__ = ["ALL_GATES", "Promotions", "promote_statements"]

_MOST_MARKS = 200
_MOST_SEQUENCES = 1_000
"""Of those in which somebody waits that one portion looks at when something was paused, or isn't any more."""
_FROM_THE_BEGINNING_SECONDS = 1.0
_SEARCHING_SECONDS = 2.0
"""For which one claim looks for what is to blame when nobody can be let come; the next one goes on with it."""

_SETTINGS = f"{HOLD_BRIEFLY}; SET LOCAL synchronous_commit = off"
"""What a crash takes back is there again, with its marks. Whoever claims a job that was let come waits for both."""

ALL_GATES = "all gates"
"""What is left alone where it isn't known yet which gate is to blame."""

_DUE_RATE = "r.wake_at IS NOT NULL AND r.wake_at <= statement_timestamp()"
# Those that are left alone for the moment are passed over.
_WAITING = f"""SELECT EXISTS (SELECT FROM @schema@.gate_mark m WHERE m.id > $1::bigint AND m.gate <> ALL($2::text[]))
    OR EXISTS (SELECT FROM @schema@.gate_rate r WHERE {_DUE_RATE} AND r.gate <> ALL($2::text[]))"""
# Nothing of rates is locked before their gates are: whoever has those writes them.
_TAKE_MARKS = f"""WITH mark AS (
    DELETE FROM @schema@.gate_mark m WHERE m.id = ANY(ARRAY(
        SELECT first.id FROM @schema@.gate_mark first WHERE first.id > $1::bigint AND first.gate <> ALL($2::text[])
        ORDER BY first.id LIMIT $3::integer FOR UPDATE OF first SKIP LOCKED))
    RETURNING m.id, m.gate, m.freed
), rate AS (
    SELECT r.gate FROM @schema@.gate_rate r WHERE {_DUE_RATE} AND r.gate <> ALL($2::text[]) ORDER BY r.wake_at LIMIT $3::integer
)
SELECT id, gate, freed FROM mark UNION ALL SELECT NULL, gate, {MOST_COME} FROM rate"""
# Where nobody waits, nobody comes.
_CLEAR_MARKS = """SELECT cleared.last, cleared.others, cleared.waiting
FROM @schema@.clear_gate_marks($1::bigint, $2::text[], $3::integer) AS cleared"""


def promote_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "gates_waiting": _WAITING,
        "gates_take_marks": _TAKE_MARKS,
        "gates_clear_marks": _CLEAR_MARKS,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **gate_lock_statements(schema),
        **room_statements(schema),
        **come_statements(schema),
    }


class Promotions:
    """Lets held jobs come, over the connection of the claims.

    Arguments:
        connection: The claims'.
        statements: Those of this module, and maybe others.
        looks: Remembers who was at which gate.
        origin: Who tells other processes; None if nobody is to be told.

    Attributes:
        refusals: The gates that are left alone for the moment, `ALL_GATES` for all of them.
    """

    def __init__(
        self, connection: ReservedConnection, statements: dict[str, str], looks: GateLooks, origin: str | None
    ) -> None:
        self.refusals = Refusals()
        self._connection = connection
        self._statements = statements
        self._looks = looks
        self._origin = origin
        self._floor = 0
        self._expected = False
        self._full = Throttle()
        self._most = _MOST_MARKS
        self._nobody_waited = False  # at the gates that were looked at last
        self._passed_over = PassedOver()

    @property
    def floor(self) -> int:
        """Behind which mark others have to look; 0 while looking at all of them is quick."""
        return self._floor if self._full.pause else 0

    def expect(self) -> None:
        """Somebody has seen that marks were left. They may be before the floor, where a transaction has ended late."""
        self._expected = True

    async def run(self) -> Come:
        """Let come a portion, if somebody has left a gate, or a rate allows a start.

        Where a job is to blame that it fails, the others come. Where it fails as a whole, half of it is tried, until the gates
        are found that are to blame: they're left alone.

        Raises:
            StoreError: The database can't be used.
        """
        due = self._expected or time.monotonic() - self._full.last > _FROM_THE_BEGINNING_SECONDS
        full, self._expected = due and self._full.pause == 0, False
        floor, began = 0 if full or self.refusals else self._floor, time.monotonic()  # behind it are those that were left
        left = self.refusals.names
        if ALL_GATES in left:
            return Come({})
        if self._nobody_waited:
            ((last, others, waiting),) = await self._connection.fetch(
                self._statements["gates_clear_marks"], floor, left, _MOST_MARKS
            )
            self._nobody_waited = not waiting
        else:
            last, others = None, False
            ((waiting,),) = await self._connection.fetch(self._statements["gates_waiting"], floor, left)
        if full:
            self._full.done(began, time.monotonic())
        if last is not None and not waiting:
            self._floor = last
        singly = False
        while waiting:
            gates: list[str] = []
            try:
                try:
                    come = await self._portion(floor, left, gates, waits=True, singly=singly)
                except StoreContended:  # somebody keeps the lock of a gate: only that one is left
                    come = await self._portion(floor, left, gates, waits=False, singly=singly)
            except StoreError as error:
                if concerns_all(error):
                    raise
                if not singly and concerns_a_row(error):
                    singly = True
                    continue
                if self._most > 1 and len(gates) > 1 and time.monotonic() - began < _SEARCHING_SECONDS:
                    self._most = min(self._most, len(gates)) // 2
                    continue
                # As long as others wait behind those that are to blame, the next portion is a small one, too.
                self.refusals.add(gates if len(gates) == 1 or self._most == 1 else [ALL_GATES], error)
                return Come({}, more=bool(gates))
            self._most = min(2 * self._most, _MOST_MARKS)
            self.refusals.forget([ALL_GATES, *gates])
            self._nobody_waited = come.jobs == 0
            return come
        return Come({}, more=others)

    async def _portion(self, floor: int, passed_over: Sequence[str], gates: list[str], *, waits: bool, singly: bool) -> Come:
        """Take marks, and let come whom they're for. The names of their gates are put in `gates`."""
        most, last = self._most, floor
        freed: dict[str, int] = {}
        marked: set[str] = set()
        marks = 0
        async with self._connection.transaction(_SETTINGS) as connection:
            for number, gate, places in await connection.fetch(self._statements["gates_take_marks"], floor, passed_over, most):
                freed[gate] = freed.get(gate, 0) + max(1, places)
                if number is not None:
                    last, marks = max(last, number), marks + 1
                    marked.add(gate)
            left: dict[str, int] = {}
            if pauses := [gate for gate in freed if gate.startswith(HELD_BY_PAUSE)]:
                found, left = await self._sequences(connection, pauses, most)
                freed = {gate: places for gate, places in freed.items() if gate not in pauses}
                freed.update({gate: 1 for gate in found if gate not in freed and gate not in passed_over})
                marked.update(found)
            gates[:] = freed
            if freed and not waits:
                locked = await lock_gates(connection, self._statements, freed, waits=False)
                left.update({gate: places for gate, places in freed.items() if gate in marked and gate not in locked})
                freed = {gate: freed[gate] for gate in locked}
            if left:
                await connection.fetch(self._statements["gates_leave_marks"], list(left), list(left.values()))
            come = Come({})
            if freed:
                come = await let_come(
                    connection,
                    self._statements,
                    self._looks,
                    freed,
                    self._passed_over,
                    origin=self._origin,
                    lock=waits,
                    singly=singly,
                )
        self._floor = last
        return Come(come.firsts, come.more or bool(left) or marks == most, come.jobs)

    async def _sequences(self, connection: Connection, pauses: Sequence[str], most: int) -> tuple[list[str], dict[str, int]]:
        """Find sequences in which somebody may run now, since pauses have changed. A portion: they may be many.

        Arguments:
            connection: In a transaction.
            pauses: The marks of that. Each says behind `HELD_BY_PAUSE` which was the last sequence that was looked at.
            most: Sequences at most.

        Returns:
            Their gates, and what marks to leave for the others.
        """
        begin, end = ALL_SEQUENCES
        after = max(begin, min(pauses).removeprefix(HELD_BY_PAUSE))
        ((found, last),) = await connection.fetch(self._statements["gates_with_room"], after, end, _MOST_SEQUENCES)
        if len(found) > most:
            found = found[:most]
            last = found[-1]
        return list(found), {} if last is None else {f"{HELD_BY_PAUSE}{last}": 1}
