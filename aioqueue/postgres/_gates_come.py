"""Letting held jobs come, from gates that somebody has locked: as many as those have room for, of each type.

A job that refuses it, such as by a trigger or as its row is broken, is passed over for a minute, and another one comes for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._gates_look import EACH_AND_BASE, look_statements
from aioqueue.postgres._notifications import due_note, notify_statements
from aioqueue.postgres._rows import moment
from aioqueue.vocabulary._gates import GateKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._gates_look import GateLooks
    from aioqueue.postgres._gates_refusals import PassedOver
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.store_rules._gates import GateState

__all__ = ["MOST_COME", "Come", "come_statements", "let_come"]

MOST_COME = 200
"""Jobs of one type that are let come at one gate at once."""
_MOST_LATER = 50
"""Jobs of one type and priority that have been put off, and that leave one gate at once."""
_MOST_TRIES = 5
"""Of letting others come instead of those that refuse it; then marks are left for them."""

# What was put off while it was held waits for its time at no gate. Rows are compared so that no other index serves than that of
# gates: along that of types all that are held would be gone through for each gate.
_COMING = f"""WITH RECURSIVE kind(gate, jobs, type) AS (
    SELECT given.gate, given.jobs, (SELECT j.type FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = given.gate
                                    ORDER BY j.type LIMIT 1)
    FROM unnest($1::text[], $2::integer[]) AS given(gate, jobs)
    UNION ALL
    SELECT kind.gate, kind.jobs, (SELECT j.type FROM @schema@.job j
                                  WHERE j.state <= 0 AND j.gate COLLATE "C" = kind.gate AND j.type > kind.type
                                  ORDER BY j.type LIMIT 1)
    FROM kind WHERE kind.type IS NOT NULL
), first AS MATERIALIZED (
    SELECT head.id, kind.gate FROM kind CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j
        WHERE j.state <= 0 AND j.gate IS NOT NULL AND j.open_blockers <= 0 AND j.run_at <= now()
          AND (j.gate COLLATE "C", j.type) >= (kind.gate, kind.type) AND (j.gate COLLATE "C", j.type) <= (kind.gate, kind.type)
          AND NOT j.id = ANY($3::uuid[])
        ORDER BY j.gate COLLATE "C", j.type, j.priority, j.run_at, j.id LIMIT kind.jobs FOR UPDATE OF j SKIP LOCKED) AS head
    WHERE kind.type IS NOT NULL
), later AS MATERIALIZED (
    SELECT last.id, kind.gate FROM kind CROSS JOIN unnest(ARRAY[1, 2, 3, 4]::smallint[]) AS level(priority) CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j
        WHERE j.state <= 0 AND j.gate COLLATE "C" = kind.gate AND j.type = kind.type AND j.priority = level.priority
          AND j.open_blockers <= 0 AND j.run_at > now() AND NOT j.id = ANY($3::uuid[])
        ORDER BY j.run_at DESC, j.id DESC LIMIT {_MOST_LATER} FOR UPDATE OF j SKIP LOCKED) AS last
    WHERE kind.type IS NOT NULL
)"""


def _coming(ids: str) -> str:
    return f"""UPDATE @schema@.job j
SET state = 1, gate = CASE WHEN j.run_at <= now() THEN j.gate END,
    gates = CASE WHEN j.run_at > now() OR split_part(j.gate, ':', 1) IN ('rate', 'fair') THEN j.gates ELSE ARRAY[j.gate] END
WHERE j.id = ANY({ids}) AND j.state + 0 = 0
RETURNING j.type, j.priority, {moment("j.run_at")}, j.id, j.gate"""


_LET_COME = f"{_COMING} {_coming('ARRAY(SELECT id FROM first UNION ALL SELECT id FROM later)')}"
_LIST_COMING = f"{_COMING} SELECT id, gate FROM first UNION ALL SELECT id, gate FROM later"
_LET_COME_THESE = _coming("$1::uuid[]")
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


def come_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "gates_let_come": _LET_COME,
        "gates_list_coming": _LIST_COMING,
        "gates_let_come_these": _LET_COME_THESE,
        "gates_let_come_heads": _LET_COME_HEADS,
        "gates_leave_marks": _LEAVE_MARKS,
        "gates_mark_again": _MARK_AGAIN,
        "gates_wake": _WAKE,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
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
    passed_over: PassedOver,
    *,
    origin: str | None,
    lock: bool = False,
    singly: bool = False,
) -> Come:
    """Look at gates, and let come whom they have room for, within the connection's open transaction.

    Arguments:
        connection: In a transaction, which has locked them in an earlier statement unless `lock` is given.
        statements: Those of this module, and maybe others.
        looks: Remembers who was there.
        freed: At which gates, and for how many places at most.
        passed_over: Jobs that refuse it.
        origin: Who tells other processes; None if nobody is to be told.
        lock: Whether to lock them first.
        singly: Whether to find those that refuse it, and let come the others. Otherwise one that does fails all of it.

    Raises:
        StoreContended: With `lock`: somebody keeps one of them.
    """
    states = await looks.look(connection, statements, freed, lock=freed if lock else ())
    counts, heads, again = _room(states, freed)
    heads = {job_id: gate for job_id, gate in heads.items() if job_id not in passed_over}
    left: Mapping[str, int] = {}
    if singly:
        rows, left = await _come_singly(connection, statements, counts, heads, passed_over)
    else:
        ids = list(passed_over.ids)
        rows = [*await connection.fetch(statements["gates_let_come"], list(counts), list(counts.values()), ids)]
        if heads:
            rows += await connection.fetch(statements["gates_let_come_heads"], list(heads), list(heads.values()))
    again = {gate: most for gate, most in again.items() if any(row[4] == gate for row in rows)}
    if again := {**again, **left}:
        await connection.fetch(statements["gates_mark_again"], list(again), list(again.values()))
    if rates := [gate for gate in freed if kind_of(gate) is GateKind.RATE]:
        await connection.fetch(statements["gates_wake"], rates, [states[gate].free or 0 for gate in rates])
    firsts = _firsts(rows)
    if origin is not None and firsts and (note := due_note({name for name, _ in firsts}, 0.0, origin)) is not None:
        await connection.fetch(statements["notify"], note)
    return Come(firsts, bool(again), len(rows))


def _room(states: Mapping[str, GateState], freed: Mapping[str, int]) -> tuple[dict[str, int], dict[UUID, str], dict[str, int]]:
    """How many of each type may come at each gate, whose turn it is in sequences, and for how many there's room beyond that."""
    counts: dict[str, int] = {}
    heads: dict[UUID, str] = {}
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
            counts[gate] = min(free, MOST_COME)
            if free > MOST_COME:
                again[gate] = free - MOST_COME
    return counts, heads, again


def _firsts(rows: Sequence[Row]) -> dict[Lane, Floor]:
    """The first of those that have come in each lane, but for what leaves a gate to wait for its time."""
    firsts: dict[Lane, Floor] = {}
    for job_type, priority, run_at, job_id, gate in rows:
        if gate is not None:
            firsts[job_type, priority] = min(firsts.get((job_type, priority), (run_at, job_id)), (run_at, job_id))
    return firsts


async def _come_singly(
    connection: Connection,
    statements: dict[str, str],
    counts: Mapping[str, int],
    heads: Mapping[UUID, str],
    passed_over: PassedOver,
) -> tuple[list[Row], Mapping[str, int]]:
    """Let come all but those that refuse it, and others for them. Returns who came, and for how many nobody did.

    Raises:
        StoreError: More refuse it than are passed over.
    """
    rows: list[Row] = []

    async def come(ids: Sequence[UUID]) -> None:
        rows.extend(await connection.fetch(statements["gates_let_come_these"], ids))

    async def heads_come(ids: Sequence[UUID]) -> None:
        rows.extend(await connection.fetch(statements["gates_let_come_heads"], ids, [heads[each] for each in ids]))

    for job_id, why in await in_halves(connection, list(heads), heads_come):
        if why is not None:
            passed_over.add(job_id, heads[job_id], why)
    left: Mapping[str, int] = {gate: jobs for gate, jobs in counts.items() if jobs}
    for _ in range(_MOST_TRIES):
        asked = list(left), list(left.values()), list(passed_over.ids)
        gates: dict[UUID, str] = dict(await connection.fetch(statements["gates_list_coming"], *asked)) if left else {}
        undone = Counter[str]()
        for job_id, why in await in_halves(connection, list(gates), come):
            undone[gates[job_id]] += 1
            if why is not None:
                passed_over.add(job_id, gates[job_id], why)
        left = undone
        if not left:
            break
    return rows, left
