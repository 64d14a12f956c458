"""What no mark leads to at gates: jobs that were passed over, places and members that are left over, lanes without turns.

Found in a snapshot, in portions, from the beginning again after the end of each walk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._gates_each import let_come_from_lanes
from aioqueue.sqlite._gates_look import LIVE_STEP, look_at_gates
from aioqueue.sqlite._gates_promote import promote
from aioqueue.sqlite._pauses_conditions import BEFORE_GATES, BEHIND_GATES
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._gates import GateKind, kind_of, name_of
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_look import Looked
    from aioqueue.sqlite._gates_news import GateNews

__all__ = ["GateSweep", "Swept"]

_GATES = 5000
_WALK = 1000
"""Gates at which one call looks; and places and members, each."""

_FIRST_NUMBER = -(2**63)

_NEXT = f"""(SELECT min(gate) FROM job INDEXED BY job_at_gate WHERE state = 0 AND open_blockers = 0
    AND gate > iif({{0}} > '{BEFORE_GATES}' AND {{0}} < '{BEHIND_GATES}', '{BEHIND_GATES}', {{0}}))"""

_HELD = f"""
WITH RECURSIVE named(gate, place) AS (
    SELECT {_NEXT.format(":after")}, 1
    UNION ALL SELECT {_NEXT.format("named.gate")}, place + 1 FROM named WHERE gate IS NOT NULL AND place < :walk)
SELECT gate FROM named WHERE gate IS NOT NULL
"""
"""From one gate to the next, and beyond all keys that are paused."""

_ASLEEP = """
SELECT named.value FROM json_each(:gates) AS named
WHERE NOT EXISTS (SELECT 1 FROM gate_rate WHERE gate = named.value AND wake_at IS NOT NULL)
"""

_PLACES = """
SELECT p.gate, p.job_id, NOT EXISTS (SELECT 1 FROM job WHERE id = p.job_id AND state = 2)
FROM gate_place AS p WHERE (p.gate, p.job_id) > (:gate, :job_id) ORDER BY p.gate, p.job_id LIMIT :walk
"""

_FORGET_PLACES = """
DELETE FROM gate_place WHERE job_id IN (SELECT value FROM json_each(:jobs))
    AND NOT EXISTS (SELECT 1 FROM job WHERE id = gate_place.job_id AND state = 2)
"""

_IS_NONE = f"""({LIVE_STEP} IS NULL AND (m.ended = 0
    OR NOT (EXISTS (SELECT 1 FROM archive WHERE id = m.chain_id AND state = m.ended)
            OR EXISTS (SELECT 1 FROM archive INDEXED BY archive_chain WHERE chain_id = m.chain_id AND state = m.ended))))"""

_MEMBERS = f"""
SELECT m.number, {_IS_NONE} FROM gate_member AS m WHERE m.number > :number ORDER BY m.number LIMIT :walk
"""

_MARK_MEMBERS = f"""
INSERT INTO gate_mark (gate) SELECT 'sequence=' || m.sequence
FROM json_each(:numbers) AS named CROSS JOIN gate_member AS m ON m.number = named.value WHERE {_IS_NONE}
"""

_FORGET_MEMBERS = f"""
DELETE FROM gate_member WHERE number IN (
    SELECT m.number FROM json_each(:numbers) AS named CROSS JOIN gate_member AS m ON m.number = named.value WHERE {_IS_NONE})
"""

_IS_SPARE = f"""wake_at IS NULL AND arrival <= {NOW} - coalesce((
    SELECT CASE WHEN places > 0 THEN (CAST(per * 1e6 / places AS INTEGER) + 1) * max(1, coalesce(burst, places)) ELSE {NOW} END
    FROM gate_limit WHERE per IS NOT NULL
        AND name = iif(instr(gate, '='), substr(gate, 1, instr(gate, '=') - 1), gate)), 0)"""
"""As many may start there at once as if none ever had: nothing is lost with it."""

_RATES = f"SELECT gate, {_IS_SPARE} FROM gate_rate WHERE gate > :gate ORDER BY gate LIMIT :walk"

_FORGET_RATES = f"DELETE FROM gate_rate WHERE gate IN (SELECT value FROM json_each(:gates)) AND {_IS_SPARE}"

_OF_LANES = """
SELECT job.id FROM json_each(:lanes) AS lane CROSS JOIN job INDEXED BY job_at_gate
    ON job.state = 0 AND job.open_blockers = 0 AND job.gate = lane.value
WHERE typeof(job.id) = 'text' LIMIT :limit
"""


@dataclass(slots=True)
class Swept:
    """What there is to do.

    Attributes:
        freed: Gates that are open to some who are held there, and to how many.
        lanes: Lanes in which nobody gets a turn any more.
        jobs: Those that have places, though they don't run.
        members: The numbers of those of which nothing is left.
        rates: Those of which nothing has to be remembered any more.
    """

    freed: dict[str, int] = field(default_factory=dict[str, int])
    lanes: list[str] = field(default_factory=list[str])
    jobs: list[str] = field(default_factory=list[str])
    members: list[int] = field(default_factory=list[int])
    rates: list[str] = field(default_factory=list[str])

    @property
    def nothing(self) -> bool:
        """Whether there's nothing to do."""
        return not (self.freed or self.lanes or self.jobs or self.members or self.rates)


class GateSweep:
    """The walks of one open store.

    Arguments:
        news: Knows which types take turns here.
    """

    def __init__(self, news: GateNews) -> None:
        self._news = news
        self._gate = ""
        self._place: tuple[Any, Any] = ("", "")
        self._member = _FIRST_NUMBER
        self._rate = ""

    def look(self, connection: Statements, limit: int) -> Swept:
        """See what there is to do, and move on in the walks."""
        swept = Swept()
        gates: list[str] = [row[0] for row in connection.execute(_HELD, {"after": self._gate, "walk": _GATES}).fetchall()]
        self._gate = gates[-1] if len(gates) == _GATES else ""
        held: dict[str, GateKind] = {}
        for gate in gates:
            if gate.startswith(HELD_BY_PAUSE):
                continue
            if (kind := kind_of(gate)) is not GateKind.FAIR:
                held[gate] = kind
            elif self._news.has_no_turns(name_of(gate)):
                swept.lanes.append(gate)
        if held:
            now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
            looked = look_at_gates(connection, held, now)
            asked = {"gates": dump([gate for gate, kind in held.items() if kind is GateKind.RATE])}
            asleep = {row[0] for row in connection.execute(_ASLEEP, asked).fetchall()}
            swept.freed = {gate: limit for gate, kind in held.items() if _is_open(looked, gate, kind, asleep)}
            swept.freed = dict.fromkeys(list(swept.freed)[:limit], max(1, limit // max(1, len(swept.freed))))
        self._look_at_rest(connection, swept)
        return swept

    def _look_at_rest(self, connection: Statements, swept: Swept) -> None:
        gate, job_id = self._place
        places = connection.execute(_PLACES, {"gate": gate, "job_id": job_id, "walk": _WALK}).fetchall()
        self._place = places[-1][:2] if len(places) == _WALK else ("", "")
        swept.jobs = [row[1] for row in places if row[2] and isinstance(row[1], str)]
        members = connection.execute(_MEMBERS, {"number": self._member, "walk": _WALK}).fetchall()
        self._member = members[-1][0] if len(members) == _WALK else _FIRST_NUMBER
        swept.members = [row[0] for row in members if row[1]]
        rates = connection.execute(_RATES, {"gate": self._rate, "walk": _WALK}).fetchall()
        self._rate = rates[-1][0] if len(rates) == _WALK else ""
        swept.rates = [row[0] for row in rates if row[1]]

    def write(self, connection: Statements, swept: Swept, limit: int) -> bool:
        """Do it, in a write transaction. Returns whether there is more to do at once."""
        if swept.jobs:
            connection.execute(_FORGET_PLACES, {"jobs": dump(swept.jobs)})
        if swept.members:
            numbers = {"numbers": dump(swept.members)}
            connection.execute(_MARK_MEMBERS, numbers)
            connection.execute(_FORGET_MEMBERS, numbers)
        if swept.rates:
            connection.execute(_FORGET_RATES, {"gates": dump(swept.rates)})
        promote(connection, swept.freed, self._news.passed_over)
        if not swept.lanes:
            return False
        rows: Sequence[Any] = connection.execute(_OF_LANES, {"lanes": dump(swept.lanes), "limit": limit}).fetchall()
        return let_come_from_lanes(connection, [row[0] for row in rows], self._news.passed_over) >= limit


def _is_open(looked: Looked, gate: str, kind: GateKind, asleep: set[str]) -> bool:
    if kind is GateKind.SEQUENCE:
        return gate in looked.held
    free = looked.states[gate].free
    return free is None or free > 0 or (gate in asleep and gate in looked.rates)
