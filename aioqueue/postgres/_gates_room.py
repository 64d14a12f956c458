"""Gates at which jobs are held and that seem to have room, found without a lock: who locks them looks again.

A walk goes from one gate to the next along the index of those that are held. At each a few rows tell: of a limit as many places
as may be taken, of a rate its next start, of a sequence the members up to the one whose turn it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._gates_lock import MOST_GATES
from aioqueue.postgres._gates_look import EACH_AND_BASE, MAY_RUN
from aioqueue.vocabulary._gates import FAIR, RATE, SEQUENCE
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from aioqueue.postgres._options_schema import Schema

__all__ = ["ALL_GATES", "ALL_LANES", "ALL_SEQUENCES", "room_statements"]

ALL_GATES = "", "\U0010ffff"
ALL_LANES = FAIR, f"{FAIR[:-1]};"
ALL_SEQUENCES = f"{SEQUENCE}=", f"{SEQUENCE}>"
"""Behind which gate a walk begins, and before which it ends: `;` comes after `:`, and `>` after `=`."""

_MOST_MEMBERS = 200
"""Of a sequence that are passed on the way to the one whose turn it is: behind them it's left to those who lock it."""
_PAST_PAUSES = f"{HELD_BY_PAUSE[:-1]};"
_NEXT = """(SELECT j.gate FROM @schema@.job j
     WHERE j.state <= 0 AND j.gate COLLATE "C" > {after} AND j.gate COLLATE "C" < $2::text
     ORDER BY j.gate COLLATE "C" LIMIT 1)"""
_BEYOND = f"""(CASE WHEN starts_with(held.gate, '{HELD_BY_PAUSE}') THEN '{_PAST_PAUSES}'
          WHEN starts_with(held.gate, '{FAIR}') THEN '{ALL_LANES[1]}' ELSE held.gate END) COLLATE "C\""""

# Places of jobs that don't run any more are removed by upkeep, which leaves marks with that.
_LIMIT_HAS_ROOM = """coalesce((
        SELECT (SELECT count(*) FROM (SELECT FROM @schema@.gate_place p WHERE p.gate = held.gate LIMIT l.places) AS taken)
               < l.places
        FROM @schema@.gate_limit l WHERE l.name = split_part(held.gate, '=', 1) AND l.per IS NULL), true)"""
# Or nothing wakes those that wait for it, once it has.
_RATE_HAS_ROOM = f"""(
        SELECT rate.places IS NULL
            OR (rate.places > 0 AND (used.wake_at IS NULL OR since.base + rate.each <= clock.now))
        {EACH_AND_BASE.format(given="(SELECT held.gate) AS given(gate)")})"""
_NAME = f"substr(held.gate, {len(SEQUENCE) + 2})"
_MEMBERS = f"""SELECT {{}} FROM @schema@.gate_member m WHERE m.sequence = {_NAME} AND NOT m.failed ORDER BY m.number"""
_STEP = f"SELECT j.state, j.gate, {MAY_RUN} AS may FROM @schema@.job j"
_SEQUENCE_HAS_ROOM = f"""(SELECT true FROM @schema@.gate_place p WHERE p.gate = held.gate LIMIT 1) IS NULL AND coalesce((
        SELECT step.may AND step.gate = held.gate AND (
                   SELECT true FROM @schema@.gate_member f
                   WHERE f.sequence = {_NAME} AND f.failed AND f.number < m.number LIMIT 1) IS NULL
        FROM ({_MEMBERS.format("m.chain_id, m.number, m.strict")} LIMIT {_MOST_MEMBERS}) AS m CROSS JOIN LATERAL (
            {_STEP} WHERE j.id = m.chain_id UNION ALL {_STEP} WHERE j.chain_id = m.chain_id LIMIT 1) AS step
        WHERE step.may OR m.strict OR step.state = 2
        ORDER BY m.number LIMIT 1), ({_MEMBERS.format("true")} OFFSET {_MOST_MEMBERS} LIMIT 1) IS NOT NULL)"""

# From the first one with room on, in their order, which that of the walk is: it's not sorted, so that it may end early.
_ROOM = f"""WITH RECURSIVE held(gate, place) AS (
    SELECT {_NEXT.format(after="$1::text")}, 1
    UNION ALL
    SELECT {_NEXT.format(after=_BEYOND)}, held.place + 1 FROM held WHERE held.gate IS NOT NULL AND held.place < $3::integer
), open AS MATERIALIZED (
    SELECT held.gate FROM held
    WHERE held.gate IS NOT NULL AND NOT starts_with(held.gate, '{HELD_BY_PAUSE}') AND NOT starts_with(held.gate, '{FAIR}')
      AND CASE WHEN starts_with(held.gate, '{SEQUENCE}=') THEN {_SEQUENCE_HAS_ROOM}
               WHEN starts_with(held.gate, '{RATE}') THEN {_RATE_HAS_ROOM}
               ELSE {_LIMIT_HAS_ROOM} END
    LIMIT {MOST_GATES}
)
SELECT ARRAY(SELECT gate FROM open),
       CASE WHEN (SELECT count(*) FROM open) = {MOST_GATES} THEN (SELECT gate FROM open ORDER BY gate COLLATE "C" DESC LIMIT 1)
            ELSE (SELECT held.gate FROM held WHERE held.place = $3::integer) END"""
_LANES = f"""WITH RECURSIVE held(gate, place) AS (
    SELECT {_NEXT.format(after="$1::text")}, 1
    UNION ALL
    SELECT {_NEXT.format(after="held.gate")}, held.place + 1 FROM held WHERE held.gate IS NOT NULL AND held.place < {MOST_GATES}
)
SELECT ARRAY(SELECT gate FROM held WHERE gate IS NOT NULL), (SELECT gate FROM held WHERE place = {MOST_GATES})"""


def room_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name: each gives gates, and where the next walk goes on, or NULL at the end.

    `gates_with_room` gives as many gates as one transaction locks, of so many at which it looks; `lanes_held` as many lanes.
    """
    return {"gates_with_room": schema.render(_ROOM), "lanes_held": schema.render(_LANES)}
