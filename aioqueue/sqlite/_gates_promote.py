"""Promotion: where something has left a gate, or time has opened one, jobs that are held there come before a claim again.

It's a hint: the claim decides, and may hold them again. Inside an open write transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._gates_each import let_come
from aioqueue.sqlite._gates_look import look_at_gates
from aioqueue.sqlite._rows import dump, load
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._gates import SEQUENCE, GateKind, kind_of
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_look import Looked
    from aioqueue.sqlite._gates_news import PassedOver

__all__ = ["PORTION", "leave_marks", "promote", "promote_marked"]

PORTION = 1000
"""Jobs of one type that come from one gate at a time, at most."""

_MARKS_AT_ONCE = 1000

_MARKED = f"""
SELECT id, CAST(gate AS TEXT), iif(typeof(freed) = 'integer', freed, 1) FROM gate_mark ORDER BY id LIMIT {_MARKS_AT_ONCE}
"""

_FORGET_MARKS = "DELETE FROM gate_mark WHERE id IN (SELECT value FROM json_each(:marks))"

_DUE_RATES = (
    f"SELECT gate FROM gate_rate INDEXED BY gate_rate_wake WHERE wake_at <= {NOW} ORDER BY wake_at LIMIT {_MARKS_AT_ONCE}"
)

_FIRST = """
WITH RECURSIVE kind(type) AS (
    SELECT (SELECT min(type) FROM job INDEXED BY job_at_gate WHERE state = 0 AND open_blockers = 0 AND gate = :gate)
    UNION ALL
    SELECT (SELECT min(type) FROM job INDEXED BY job_at_gate
            WHERE state = 0 AND open_blockers = 0 AND gate = :gate AND type > kind.type)
    FROM kind WHERE kind.type IS NOT NULL)
SELECT (SELECT json_group_array(id) FROM (
    SELECT id FROM job INDEXED BY job_at_gate
    WHERE state = 0 AND open_blockers = 0 AND gate = :gate AND type = kind.type AND typeof(id) = 'text'
        AND id NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY priority, run_at, id LIMIT :limit))
FROM kind WHERE kind.type IS NOT NULL
"""
"""The first of each type that is held at a gate: some types may be paused, or served by nobody."""

_SEQUENCES = f"""
WITH RECURSIVE held(gate, place) AS (
    SELECT (SELECT min(gate) FROM job INDEXED BY job_at_gate
            WHERE state = 0 AND open_blockers = 0 AND gate > :after AND gate < '{SEQUENCE}>'), 1
    UNION ALL
    SELECT (SELECT min(gate) FROM job INDEXED BY job_at_gate
            WHERE state = 0 AND open_blockers = 0 AND gate > held.gate AND gate < '{SEQUENCE}>'), place + 1
    FROM held WHERE gate IS NOT NULL AND place < {_MARKS_AT_ONCE})
SELECT gate FROM held WHERE gate IS NOT NULL
"""
"""Those in which somebody waits, from one to the next: `>` comes after `=`."""

_IS_HELD = """
SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_at_gate WHERE state = 0 AND open_blockers = 0 AND gate = :gate)
"""

_WAKE = """
INSERT INTO gate_rate (gate, arrival, wake_at) VALUES (:gate, 0, :wake_at)
ON CONFLICT (gate) DO UPDATE SET wake_at = excluded.wake_at
"""

_SLEEP = "UPDATE gate_rate SET wake_at = NULL WHERE gate = :gate"

_LEAVE = "INSERT INTO gate_mark (gate, freed) SELECT value ->> 0, value ->> 1 FROM json_each(:rows)"


def leave_marks(connection: Statements, freed: Mapping[str, int]) -> None:
    """Leave marks at gates: how many places became free there."""
    if freed:
        connection.execute(_LEAVE, {"rows": dump(list(freed.items()))})


def promote_marked(connection: Statements, passed_over: PassedOver) -> set[str]:
    """Do so where there are marks, and at rates that let some start by now: one portion. Returns the types of who came."""
    marks = connection.execute(_MARKED).fetchall()
    freed = {row[0]: 1 for row in connection.execute(_DUE_RATES).fetchall()}
    for _, gate, count in marks:
        freed[gate] = freed.get(gate, 0) + max(1, count)
    if marks:
        connection.execute(_FORGET_MARKS, {"marks": dump([mark for mark, _, _ in marks])})
    if pauses := [gate for gate in freed if gate.startswith(HELD_BY_PAUSE)]:
        freed = {gate: places for gate, places in freed.items() if gate not in pauses}
        freed |= dict.fromkeys(_sequences(connection, pauses), 1)
    return promote(connection, freed, passed_over)


def _sequences(connection: Statements, pauses: Sequence[str]) -> list[str]:
    """Some sequences in which somebody may run now, as pauses have changed; a mark is left for the others.

    The marks of that say behind `HELD_BY_PAUSE` which was the last one that was looked at.
    """
    after = max(f"{SEQUENCE}=", min(pauses).removeprefix(HELD_BY_PAUSE))
    gates = [row[0] for row in connection.execute(_SEQUENCES, {"after": after}).fetchall()]
    if len(gates) == _MARKS_AT_ONCE:
        leave_marks(connection, {HELD_BY_PAUSE + gates[-1]: 1})
    return gates


def promote(connection: Statements, freed: Mapping[str, int], passed_over: PassedOver) -> set[str]:
    """Let jobs come that are held at these gates, of each type as many as became free, or can run if that's less.

    Arguments:
        connection: In a write transaction.
        freed: The gates, and how many places became free.
        passed_over: Jobs that refuse it: others come for them.

    Returns:
        The types of those that came.
    """
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    kinds = {gate: kind for gate in freed if (kind := kind_of(gate)) is not GateKind.FAIR}
    looked = look_at_gates(connection, kinds, now)
    skipped = set(passed_over.ids)
    types: set[str] = set()
    more: dict[str, int] = {}
    for gate, kind in kinds.items():
        if kind is GateKind.SEQUENCE:
            if gate in looked.held and looked.held[gate] not in skipped:
                types.update(let_come(connection, gate, [looked.held[gate]], passed_over, counts=False)[0])
            continue
        free = looked.states[gate].free
        wanted = freed[gate] if kind is GateKind.LIMIT or free is None else free
        coming = min(wanted if free is None else min(wanted, free), PORTION)
        types |= _first_come(connection, gate, coming, passed_over)
        if kind is GateKind.RATE:
            _wake_again(connection, looked, gate)
        if coming == PORTION < wanted and _is_held(connection, gate):
            more[gate] = wanted - coming
    leave_marks(connection, more)
    return types


def _first_come(connection: Statements, gate: str, most: int, passed_over: PassedOver) -> set[str]:
    """Let the first ones come that are held at a gate, so many of each type. Returns the types of those that came."""
    types: set[str] = set()
    while most > 0:
        asked = {"gate": gate, "limit": most, "skip": dump(passed_over.ids)}
        most = 0
        for (ids,) in connection.execute(_FIRST, asked).fetchall():
            came, refused = let_come(connection, gate, load(ids), passed_over, counts=True)
            types.update(came)
            most += refused  # others come for them
    return types


def _wake_again(connection: Statements, looked: Looked, gate: str) -> None:
    """See when the rate lets one more start than those that came, where somebody waits for it."""
    rate = looked.rates.get(gate)
    if rate is not None and _is_held(connection, gate):
        connection.execute(_WAKE, {"gate": gate, "wake_at": rate.next_at(max(0, rate.tokens))})
    else:
        connection.execute(_SLEEP, {"gate": gate})


def _is_held(connection: Statements, gate: str) -> bool:
    return bool(connection.execute(_IS_HELD, {"gate": gate}).fetchone()[0])
