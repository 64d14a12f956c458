"""At the gates: which of the jobs that a claim has come to may run, and what is written of these and of the others.

Inside the claim's own write transaction, which is all the lock that gates need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.sqlite._gates_look import look_at_gates
from aioqueue.sqlite._gates_members import JOIN
from aioqueue.sqlite._gates_promote import leave_marks
from aioqueue.sqlite._gates_triggers import create_gate_triggers
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.store_rules._gates import Candidate, admit, gates_of
from aioqueue.vocabulary._gate_values import sequence_of
from aioqueue.vocabulary._gates import GateKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_look import Looked
    from aioqueue.store_rules._gates import Admission
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Passage", "through_gates"]

_PLACES = frozenset({GateKind.LIMIT, GateKind.SEQUENCE})

_DETAILS = """
SELECT json_group_array(json_array(job.id, CAST(job.gate AS TEXT), job.gates IS NOT NULL, CAST(m.sequence AS TEXT)))
FROM json_each(:ids) AS asked CROSS JOIN job ON job.id = asked.value
LEFT JOIN gate_member AS m ON m.chain_id = coalesce(job.chain_id, job.id)
"""

_PARK = """
UPDATE job SET state = 0, gate = n.value ->> 1, gates = n.value ->> 2 FROM json_each(:rows) AS n
WHERE job.id = n.value ->> 0 AND job.state = 1
"""

_GO_THROUGH = """
UPDATE job SET gate = NULL, gates = n.value ->> 1 FROM json_each(:rows) AS n WHERE job.id = n.value ->> 0
"""

_TAKE_PLACES = """
INSERT OR REPLACE INTO gate_place (gate, job_id) SELECT value ->> 0, value ->> 1 FROM json_each(:rows)
"""

_START = """
INSERT INTO gate_rate (gate, arrival, wake_at) SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:rows) WHERE true
ON CONFLICT (gate) DO UPDATE SET arrival = excluded.arrival, wake_at = coalesce(excluded.wake_at, wake_at)
"""


@dataclass(frozen=True, slots=True)
class Passage:
    """Who goes through, and what is written of that once they're taken.

    Attributes:
        jobs: Those that run.
        parked: How many are held from now on.
        passed: Rows for the jobs that have passed gates, or were let come to some.
        places: Rows for the places that they take.
    """

    jobs: Sequence[ClaimedJob]
    parked: int = 0
    passed: Sequence[list[object]] = ()
    places: Sequence[list[object]] = ()

    def write(self, connection: Statements) -> None:
        """Write where they run."""
        if self.passed:
            connection.execute(_GO_THROUGH, {"rows": dump(list(self.passed))})
        if self.places:
            connection.execute(_TAKE_PLACES, {"rows": dump(list(self.places))})


@dataclass(frozen=True, slots=True)
class _Came:
    """What a job comes with: where it was let come, whether it has been at gates, and the sequence that it's in."""

    gate: str | None = None
    gated: bool = False
    sequence: str | None = None


def through_gates(
    connection: Statements, jobs: Sequence[ClaimedJob], gated: Collection[UUID], rules: Mapping[str, GateRules], now: int
) -> Passage:
    """Hold those of the jobs whose gates are closed. The others are to be taken, and then the passage written.

    Arguments:
        connection: In a write transaction.
        jobs: Due ones, in the order in which they're claimed.
        gated: Those of them that have been at gates before, or are in a sequence.
        rules: By type.
        now: The database's time.

    Raises:
        RowRejected: One of them can't be held.
    """
    there = [job for job in jobs if job.id in gated or job.type in rules]
    if not there:
        return Passage(jobs)
    create_gate_triggers(connection)
    came = _see(connection, there, rules)
    candidates: list[Candidate] = []
    for job in there:
        gates = gates_of(rules.get(job.type), came[job.id].sequence, job.payload, job.metadata)
        candidates.append(Candidate(job.id, gates))
    looked = look_at_gates(connection, {gate for each in candidates for gate in each.gates}, now)
    admission = admit(candidates, looked.states, len(candidates))
    _park(connection, admission, came)
    _spend(connection, admission, looked)
    passed: list[list[object]] = []
    places: list[list[object]] = []
    left: dict[str, int] = {}
    for each in candidates:
        if each.id in admission.parked:
            continue
        before = came[each.id]
        limits = [gate for gate in each.gates if kind_of(gate) is GateKind.LIMIT]
        places.extend([gate, str(each.id)] for gate in each.gates if kind_of(gate) in _PLACES)
        if limits or before.gated or before.gate is not None or before.sequence is not None:
            counted = dump(limits) if limits or before.sequence is not None else None
            passed.append([str(each.id), counted])
        if before.gate is not None and before.gate not in each.gates and kind_of(before.gate) is not GateKind.FAIR:
            left[before.gate] = left.get(before.gate, 0) + 1
    leave_marks(connection, left)
    goes = [job for job in jobs if job.id not in admission.parked]
    return Passage(goes, len(admission.parked), passed, places)


def _see(connection: Statements, jobs: Sequence[ClaimedJob], rules: Mapping[str, GateRules]) -> dict[UUID, _Came]:
    """See with what they come; those whose type puts them in a sequence are its members from now on."""
    rows = load(one(connection, _DETAILS, {"ids": dump([str(job.id) for job in jobs])})[0])
    found = {row[0]: _Came(row[1], bool(row[2]), row[3]) for row in rows}
    came = {job.id: found.get(str(job.id), _Came()) for job in jobs}
    joins: list[list[object]] = []
    for job in sorted(jobs, key=lambda each: (each.created_at, each.id)):
        rule, before = rules.get(job.type), came[job.id]
        if rule is None or before.sequence is not None:
            continue
        if (name := sequence_of(rule, job.payload, job.metadata)) is not None:
            came[job.id] = _Came(before.gate, before.gated, name)
            joins.append([str(job.id), str(job.chain_id), name, int(rule.strict), int(rule.block)])
    if joins:
        connection.execute(JOIN, {"rows": dump(joins)})
    return came


def _park(connection: Statements, admission: Admission, came: Mapping[UUID, _Came]) -> None:
    rows = [[str(job_id), gate, None if came[job_id].sequence is None else "[]"] for job_id, gate in admission.parked.items()]
    if rows and connection.execute(_PARK, {"rows": dump(rows)}).rowcount != len(rows):
        raise RowRejected("a row can't be held at its gate: its id can't be found again, or a trigger keeps it as it is")


def _spend(connection: Statements, admission: Admission, looked: Looked) -> None:
    """Spend a start for each that goes through a rate, and see when those that are held there may come."""
    waited_for = set(admission.parked.values())
    rows: list[list[object]] = []
    for gate, rate in looked.rates.items():
        starts = admission.used.get(gate, 0)
        if starts or gate in waited_for:
            rows.append([gate, rate.after(starts), rate.next_at(starts) if gate in waited_for else None])
    if rows:
        connection.execute(_START, {"rows": dump(rows)})
