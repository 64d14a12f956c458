"""Limits as they're stored, and gates as they are, for people. The functions run in one snapshot of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._gates_look import LIVE_STEP, look_at_gates, sequence_named
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._gates import GateKind, GateStatus, KeptSequence, LimitKind, StoredLimit, kind_of, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_look import Looked

__all__ = ["gate_statuses", "kept_sequences", "list_limits"]

_PLACES = "SELECT 1 FROM gate_place AS p CROSS JOIN job ON job.id = p.job_id WHERE job.state = 2 AND {0}"
_HELD = "SELECT 1 FROM job INDEXED BY job_at_gate WHERE job.state = 0 AND job.open_blockers = 0 AND {0}"
_ITSELF = "{0}.gate = named.name"
_VALUES = "{0}.gate > named.name || '=' AND {0}.gate < named.name || '>'"

_LIMITS = f"""
SELECT named.name, named.places, named.per, named.burst, named.defined IS NOT NULL, named.changed,
    iif(named.per IS NOT NULL, 0, (SELECT count(*) FROM (
        {_PLACES.format(_ITSELF.format("p"))} UNION ALL {_PLACES.format(_VALUES.format("p"))} LIMIT {MOST_COUNTED_JOBS}))),
    (SELECT count(*) FROM (
        {_HELD.format(_ITSELF.format("job"))} UNION ALL {_HELD.format(_VALUES.format("job"))} LIMIT {MOST_COUNTED_JOBS}))
FROM gate_limit AS named ORDER BY named.name LIMIT 10000
"""

_LIMIT = "SELECT places, per FROM gate_limit WHERE name = :name"

_RUNNING = """
SELECT CAST(job.id AS TEXT) FROM gate_place AS p CROSS JOIN job ON job.id = p.job_id
WHERE p.gate = :gate AND job.state = 2 ORDER BY p.job_id LIMIT 10
"""

_WAITING = f"""
SELECT count(*) FROM (
    SELECT 1 FROM job INDEXED BY job_at_gate WHERE state = 0 AND open_blockers = 0 AND gate = :gate LIMIT {MOST_COUNTED_JOBS})
"""

_FAILED = (
    "coalesce((SELECT id FROM archive INDEXED BY archive_chain WHERE chain_id = m.chain_id AND state = 6 LIMIT 1), m.chain_id)"
)

_BLOCKED_BY = f"""
SELECT {_FAILED} FROM gate_member AS m WHERE m.sequence = :name AND m.ended = 6 AND m.block = 1 ORDER BY m.number LIMIT 1
"""

_AWAITED = f"""
SELECT CAST(job.id AS TEXT) FROM gate_member AS m INDEXED BY gate_member_sequence CROSS JOIN job ON job.id = {LIVE_STEP}
WHERE m.sequence = :name AND m.ended = 0 AND m.strict ORDER BY m.number LIMIT 1
"""
"""Where nobody runs and it's nobody's turn."""

_KEPT = f"""
SELECT m.sequence, CAST({_FAILED} AS TEXT), (SELECT count(*) FROM (
    {_HELD.format("job.gate = 'sequence=' || m.sequence")} LIMIT {MOST_COUNTED_JOBS}))
FROM gate_member AS m INDEXED BY gate_member_failed
WHERE m.ended = 6 AND m.block = 1
    AND m.number = (SELECT min(number) FROM gate_member INDEXED BY gate_member_failed
                    WHERE sequence = m.sequence AND ended = 6 AND block = 1)
ORDER BY m.sequence LIMIT 1000
"""


def list_limits(connection: Statements) -> list[StoredLimit]:
    """All limits, by name, as `aioqueue.abc.SupportsGates.list_limits` says."""
    return [
        StoredLimit(
            name=name,
            kind=LimitKind.PLACES if per is None else LimitKind.STARTS,
            places=places,
            per=per,
            burst=burst,
            defined=bool(defined),
            changed=bool(changed),
            running=running,
            waiting=waiting,
        )
        for name, places, per, burst, defined, changed, running, waiting in connection.execute(_LIMITS, {}).fetchall()
    ]


def kept_sequences(connection: Statements) -> list[KeptSequence]:
    """Sequences that a failed member keeps, as `aioqueue.abc.SupportsGates.kept_sequences` says."""
    return [
        KeptSequence(name=name, blocked_by=id_of(failed), waiting=waiting)
        for name, failed, waiting in connection.execute(_KEPT, {}).fetchall()
    ]


def gate_statuses(connection: Statements, gates: Sequence[str]) -> list[GateStatus]:
    """How gates are at the moment, in their order, as `aioqueue.abc.SupportsGates.gate_statuses` says."""
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    kinds = {gate: kind for gate in gates if (kind := kind_of(gate)) is not GateKind.FAIR}
    looked = look_at_gates(connection, kinds, now)
    return [_status(connection, gate, looked) for gate in gates]


def _status(connection: Statements, gate: str, looked: Looked) -> GateStatus:
    kind = kind_of(gate)
    limit = connection.execute(_LIMIT, {"name": name_of(gate)}).fetchone()
    places, per = (None, None) if limit is None or kind in {GateKind.SEQUENCE, GateKind.FAIR} else limit
    head = looked.states[gate].head if gate in looked.states else None
    count = looked.running.get(gate, 0)
    blocked = awaited = None
    if kind is GateKind.SEQUENCE:
        blocked = connection.execute(_BLOCKED_BY, {"name": sequence_named(gate)}).fetchone()
        if blocked is None and head is None and not count:
            awaited = connection.execute(_AWAITED, {"name": sequence_named(gate)}).fetchone()
    rate = looked.rates.get(gate)
    return GateStatus(
        gate=gate,
        kind=kind,
        places=places,
        per=per,
        running=tuple(id_of(row[0]) for row in connection.execute(_RUNNING, {"gate": gate}).fetchall()),
        count=count,
        waiting=connection.execute(_WAITING, {"gate": gate}).fetchone()[0],
        next_at=None if rate is None or rate.tokens > 0 else moment(rate.next_at(0)),
        head=head,
        blocked_by=None if blocked is None else id_of(blocked[0]),
        awaited=None if awaited is None else id_of(awaited[0]),
    )
