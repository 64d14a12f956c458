"""Promotion: for each place that has become free, and for each start that a rate allows again, held jobs are let come.

A transaction of its own, which any claim does: it begins with the marks that were left, and takes them away when it has let
somebody come, so that one that dies loses nothing. It's a hint: the claim decides, and may hold them again. Of each type one is
let come for a place, since a type may be paused, or served by nobody.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreContended, StoreError
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._gates_lock import gate_lock_statements, lock_gates
from aioqueue.postgres._gates_look import EACH_AND_BASE, look_statements
from aioqueue.postgres._gates_refusals import Refusals, concerns_all
from aioqueue.postgres._notifications import due_note, notify_statements
from aioqueue.postgres._rows import moment
from aioqueue.vocabulary._gates import GateKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._gates_look import GateLooks
    from aioqueue.postgres._options_schema import Schema

__all__ = ["ALL_GATES", "Promotions", "let_come", "promote_statements"]

_MOST_MARKS = 200
_MOST_COME = 200
"""Jobs of one type that are let come at one gate at once."""
_MOST_LATER = 50
"""Jobs of one type and priority that have been put off, and that leave one gate at once."""
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
SELECT id, gate, freed FROM mark UNION ALL SELECT NULL, gate, {_MOST_COME} FROM rate"""
# Where nobody waits, nobody comes.
_CLEAR_MARKS = """SELECT cleared.last, cleared.others, cleared.waiting
FROM @schema@.clear_gate_marks($1::bigint, $2::text[], $3::integer) AS cleared"""

# What was put off while it was held waits for its time at no gate. Rows are compared so that no other index serves than that of
# gates: along that of types all that are held would be gone through for each gate.
_LET_COME = f"""WITH RECURSIVE kind(gate, jobs, type) AS (
    SELECT given.gate, given.jobs, (SELECT j.type FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = given.gate
                                    ORDER BY j.type LIMIT 1)
    FROM unnest($1::text[], $2::integer[]) AS given(gate, jobs)
    UNION ALL
    SELECT kind.gate, kind.jobs, (SELECT j.type FROM @schema@.job j
                                  WHERE j.state <= 0 AND j.gate COLLATE "C" = kind.gate AND j.type > kind.type
                                  ORDER BY j.type LIMIT 1)
    FROM kind WHERE kind.type IS NOT NULL
), first AS MATERIALIZED (
    SELECT head.id FROM kind CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j
        WHERE j.state <= 0 AND j.gate IS NOT NULL AND j.open_blockers <= 0 AND j.run_at <= now()
          AND (j.gate COLLATE "C", j.type) >= (kind.gate, kind.type) AND (j.gate COLLATE "C", j.type) <= (kind.gate, kind.type)
        ORDER BY j.gate COLLATE "C", j.type, j.priority, j.run_at, j.id LIMIT kind.jobs FOR UPDATE OF j SKIP LOCKED) AS head
    WHERE kind.type IS NOT NULL
), later AS MATERIALIZED (
    SELECT last.id FROM kind CROSS JOIN unnest(ARRAY[1, 2, 3, 4]::smallint[]) AS level(priority) CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j
        WHERE j.state <= 0 AND j.gate COLLATE "C" = kind.gate AND j.type = kind.type AND j.priority = level.priority
          AND j.open_blockers <= 0 AND j.run_at > now()
        ORDER BY j.run_at DESC, j.id DESC LIMIT {_MOST_LATER} FOR UPDATE OF j SKIP LOCKED) AS last
    WHERE kind.type IS NOT NULL
)
UPDATE @schema@.job j
SET state = 1, gate = CASE WHEN j.run_at <= now() THEN j.gate END,
    gates = CASE WHEN j.run_at > now() OR split_part(j.gate, ':', 1) IN ('rate', 'fair') THEN j.gates ELSE ARRAY[j.gate] END
WHERE j.id = ANY(ARRAY(SELECT id FROM first UNION ALL SELECT id FROM later)) AND j.state + 0 = 0
RETURNING j.type, j.priority, {moment("j.run_at")}, j.id, j.gate"""
_LET_COME_HEADS = f"""WITH first AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j CROSS JOIN unnest($1::uuid[], $2::text[]) AS given(id, gate)
    WHERE j.id = given.id AND j.state + 0 = 0 AND j.gate = given.gate AND j.open_blockers <= 0 FOR UPDATE OF j SKIP LOCKED
)
UPDATE @schema@.job j SET state = 1 WHERE j.id = ANY(ARRAY(SELECT id FROM first)) AND j.state + 0 = 0
RETURNING j.type, j.priority, {moment("j.run_at")}, j.id, j.gate"""

_LEAVE_MARKS = """INSERT INTO @schema@.gate_mark (gate, freed) SELECT given.gate, given.freed
FROM unnest($1::text[], $2::integer[]) AS given(gate, freed)"""
_MARK_AGAIN = f"""{_LEAVE_MARKS}
WHERE EXISTS (SELECT FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = given.gate OFFSET 0)"""
_WAKE = f"""UPDATE @schema@.gate_rate r SET wake_at = (
    SELECT CASE WHEN rate.places IS NULL THEN clock.now ELSE since.base + rate.each * (1 + given.tokens) END
    {EACH_AND_BASE.format(given="unnest($1::text[], $2::bigint[]) AS given(gate, tokens)")}
    WHERE given.gate = r.gate AND EXISTS (SELECT FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = given.gate))
WHERE r.gate = ANY($1::text[])"""


def promote_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "gates_waiting": _WAITING,
        "gates_take_marks": _TAKE_MARKS,
        "gates_clear_marks": _CLEAR_MARKS,
        "gates_let_come": _LET_COME,
        "gates_let_come_heads": _LET_COME_HEADS,
        "gates_leave_marks": _LEAVE_MARKS,
        "gates_mark_again": _MARK_AGAIN,
        "gates_wake": _WAKE,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **gate_lock_statements(schema),
        **look_statements(schema),
        **notify_statements(schema),
    }


@dataclass(frozen=True, slots=True)
class Come:
    """Who was let come.

    Attributes:
        firsts: The first in each lane.
        more: Whether others may be let come at once.
        jobs: How many.
    """

    firsts: Mapping[Lane, Floor]
    more: bool = False
    jobs: int = 0


async def let_come(
    connection: Connection,
    statements: dict[str, str],
    looks: GateLooks,
    freed: Mapping[str, int],
    *,
    origin: str | None,
    lock: bool = False,
) -> Come:
    """Look at gates, and let come whom they have room for, within the connection's open transaction.

    Arguments:
        connection: In a transaction, which has locked them in an earlier statement unless `lock` is given.
        statements: Those of this module, and maybe others.
        looks: Remembers who was there.
        freed: At which gates, and for how many places at most.
        origin: Who tells other processes; None if nobody is to be told.
        lock: Whether to lock them first.

    Raises:
        StoreContended: With `lock`: somebody keeps one of them.
    """
    states = await looks.look(connection, statements, freed, lock=freed if lock else ())
    counts: dict[str, int] = {}
    heads: dict[Any, str] = {}
    again: dict[str, int] = {}
    for gate, most in freed.items():
        state = states.get(gate)
        counts[gate] = 0
        if state is None:
            counts[gate] = most  # nothing keeps those that wait for their turn
        elif state.sequence:
            if state.head is not None:
                heads[state.head] = gate
        else:
            free = most if state.free is None else min(state.free, most)
            counts[gate] = min(free, _MOST_COME)
            if free > _MOST_COME:
                again[gate] = free - _MOST_COME
    rows: list[Any] = [*await connection.fetch(statements["gates_let_come"], list(counts), list(counts.values()))]
    if heads:
        rows += await connection.fetch(statements["gates_let_come_heads"], list(heads), list(heads.values()))
    again = {gate: most for gate, most in again.items() if any(row[4] == gate for row in rows)}
    if again:
        await connection.fetch(statements["gates_mark_again"], list(again), list(again.values()))
    if rates := [gate for gate in freed if kind_of(gate) is GateKind.RATE]:
        await connection.fetch(statements["gates_wake"], rates, [states[gate].free or 0 for gate in rates])
    firsts: dict[Lane, Floor] = {}
    for job_type, priority, run_at, job_id, gate in rows:
        if gate is None:
            continue
        firsts[job_type, priority] = min(firsts.get((job_type, priority), (run_at, job_id)), (run_at, job_id))
    if origin is not None and firsts and (note := due_note({name for name, _ in firsts}, 0.0, origin)) is not None:
        await connection.fetch(statements["notify"], note)
    return Come(firsts, bool(again), len(rows))


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
        self._nobody = False  # waited at the gates that were looked at last

    @property
    def floor(self) -> int:
        """Behind which mark others have to look; 0 while looking at all of them is quick."""
        return self._floor if self._full.pause else 0

    def expect(self) -> None:
        """Somebody has seen that marks were left. They may be before the floor, where a transaction has ended late."""
        self._expected = True

    async def run(self) -> Come:
        """Let come a portion, if somebody has left a gate, or a rate allows a start.

        Where a portion fails as a whole, half of it is tried, until those that are to blame are found: they're left alone.

        Raises:
            StoreError: The database can't be used.
        """
        due = self._expected or time.monotonic() - self._full.last > _FROM_THE_BEGINNING_SECONDS
        full, self._expected = due and self._full.pause == 0, False
        floor, began = 0 if full or self.refusals else self._floor, time.monotonic()  # behind it are those that were left
        left = self.refusals.names
        if ALL_GATES in left:
            return Come({})
        if self._nobody:
            ((last, others, waiting),) = await self._connection.fetch(
                self._statements["gates_clear_marks"], floor, left, _MOST_MARKS
            )
            self._nobody = not waiting
        else:
            last, others = None, False
            ((waiting,),) = await self._connection.fetch(self._statements["gates_waiting"], floor, left)
        if full:
            self._full.done(began, time.monotonic())
        if last is not None and not waiting:
            self._floor = last
        while waiting:
            gates: list[str] = []
            try:
                try:
                    come = await self._portion(floor, left, gates, waits=True)
                except StoreContended:  # somebody keeps the lock of a gate: only that one is left
                    come = await self._portion(floor, left, gates, waits=False)
            except StoreError as error:
                if concerns_all(error):
                    raise
                if self._most > 1 and len(gates) > 1 and time.monotonic() - began < _SEARCHING_SECONDS:
                    self._most = min(self._most, len(gates)) // 2
                    continue
                # As long as others wait behind those that are to blame, the next portion is a small one, too.
                self.refusals.add(gates if len(gates) == 1 or self._most == 1 else [ALL_GATES], error)
                return Come({}, more=bool(gates))
            self._most = min(2 * self._most, _MOST_MARKS)
            self.refusals.forget([ALL_GATES, *gates])
            self._nobody = come.jobs == 0
            return come
        return Come({}, more=others)

    async def _portion(self, floor: int, passed_over: Sequence[str], gates: list[str], *, waits: bool) -> Come:
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
            gates[:] = freed
            left: dict[str, int] = {}
            if freed and not waits:
                locked = await lock_gates(connection, self._statements, freed, waits=False)
                left = {gate: places for gate, places in freed.items() if gate in marked and gate not in locked}
                freed = {gate: freed[gate] for gate in locked}
                if left:
                    await connection.fetch(self._statements["gates_leave_marks"], list(left), list(left.values()))
            come = Come({})
            if freed:
                come = await let_come(connection, self._statements, self._looks, freed, origin=self._origin, lock=waits)
        self._floor = last
        return Come(come.firsts, come.more or bool(left) or marks == most, come.jobs)
