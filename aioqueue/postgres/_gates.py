"""How gates are at a moment, for people who ask why a job waits; and sequences that somebody lets go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._gates_look import MAY_RUN
from aioqueue.postgres._notifications import gates_note, notify_statements
from aioqueue.postgres._rows import moment
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._gates import SEQUENCE, GateKind, GateStatus, KeptSequence, kind_of, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["GateStatuses", "gate_status_statements"]

_NAMED = 10
"""Running jobs that are named."""
_MOST_KEPT = 1_000
"""Kept sequences that are listed."""

_PLACES = """SELECT p.job_id FROM @schema@.gate_place p
        CROSS JOIN LATERAL (SELECT FROM @schema@.job j WHERE j.id = p.job_id AND j.state + 0 = 2 OFFSET 0) AS j
        WHERE p.gate = given.gate ORDER BY p.number"""
# As in claims: a rate's tokens come one by one, and there are never more than may start at once.
_STATUS = f"""WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT l.places, l.per, ARRAY({_PLACES} LIMIT {_NAMED}),
       (SELECT count(*) FROM ({_PLACES} LIMIT {MOST_COUNTED_JOBS}) AS running)::integer,
       (SELECT count(*) FROM (SELECT FROM @schema@.job j
                              WHERE j.state <= 0 AND j.gate COLLATE "C" = given.gate AND j.open_blockers <= 0
                              LIMIT {MOST_COUNTED_JOBS}) AS waiting)::integer,
       CASE WHEN rate.at + token.each > clock.now THEN {moment("rate.at + token.each")} END
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given(gate, name, place) CROSS JOIN clock
LEFT JOIN @schema@.gate_limit l ON l.name = given.name
LEFT JOIN LATERAL (
    SELECT greatest(l.per / nullif(l.places, 0), 0.000001) * interval '1 second' AS each
    WHERE l.per IS NOT NULL AND l.places > 0) AS token ON true
LEFT JOIN LATERAL (
    SELECT greatest(r.arrival, clock.now - token.each * coalesce(l.burst, l.places)) AS at
    FROM @schema@.gate_rate r WHERE r.gate = given.gate) AS rate ON true
ORDER BY given.place"""
# The first member that may run, or that lets nobody pass.
_TURN = f"""SELECT given.sequence, turn.job_id, turn.may_run, turn.failed FROM unnest($1::text[]) AS given(sequence)
CROSS JOIN LATERAL (
    SELECT coalesce(j.id, m.failed_id) AS job_id, j.may_run, m.failed
    FROM (
        SELECT m.chain_id, m.strict, m.number, m.failed AND m.block AS failed,
               CASE WHEN m.failed THEN coalesce(
                   (SELECT a.id FROM @schema@.archive a WHERE a.chain_id = m.chain_id AND a.state + 0 = 6
                    ORDER BY a.position DESC LIMIT 1), m.chain_id) END AS failed_id
        FROM @schema@.gate_member m WHERE m.sequence = given.sequence ORDER BY m.number LIMIT {MOST_COUNTED_JOBS}) AS m
    LEFT JOIN LATERAL (
        SELECT j.id, {MAY_RUN} AS may_run FROM @schema@.job j WHERE j.id = m.chain_id
        UNION ALL
        SELECT j.id, {MAY_RUN} AS may_run FROM @schema@.job j WHERE j.chain_id = m.chain_id
        LIMIT 1) AS j ON true
    WHERE m.failed OR j.may_run OR (m.strict AND j.id IS NOT NULL)
    ORDER BY m.number LIMIT 1) AS turn"""
_KEPT = f"""WITH kept AS MATERIALIZED (
    SELECT DISTINCT ON (m.sequence) m.sequence, m.chain_id FROM @schema@.gate_member m WHERE m.failed
    ORDER BY m.sequence, m.number LIMIT {_MOST_KEPT}
)
SELECT kept.sequence, coalesce(
           (SELECT a.id FROM @schema@.archive a WHERE a.chain_id = kept.chain_id AND a.state + 0 = 6
            ORDER BY a.position DESC LIMIT 1), kept.chain_id),
       (SELECT count(*) FROM (SELECT FROM @schema@.job j
                              WHERE j.state <= 0 AND j.gate COLLATE "C" = '{SEQUENCE}=' || kept.sequence
                              AND j.open_blockers <= 0 LIMIT {MOST_COUNTED_JOBS}) AS waiting)::integer
FROM kept ORDER BY kept.sequence"""
_RESUME = """WITH kept AS MATERIALIZED (
    SELECT m.chain_id FROM @schema@.gate_member m WHERE m.sequence = ANY($1::text[]) AND m.failed ORDER BY m.chain_id FOR UPDATE
), gone AS (
    DELETE FROM @schema@.gate_member m WHERE m.chain_id = ANY(ARRAY(SELECT chain_id FROM kept))
    RETURNING m.chain_id, m.sequence, m.number, m.strict, m.block
), past AS (
    INSERT INTO @schema@.gate_past_member SELECT * FROM gone ON CONFLICT DO NOTHING
), mark AS (
    INSERT INTO @schema@.gate_mark (gate) SELECT DISTINCT 'sequence=' || sequence FROM gone
)
SELECT DISTINCT sequence FROM gone"""


def gate_status_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"gates_status": _STATUS, "gates_turn": _TURN, "gates_kept": _KEPT, "gates_resume": _RESUME}
    return {**{name: schema.render(template) for name, template in templates.items()}, **notify_statements(schema)}


class GateStatuses:
    """How the gates of a store are, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes that jobs may come; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = gate_status_statements(schema)
        self._origin = origin

    async def look(self, gates: Sequence[str]) -> list[GateStatus]:
        """See `aioqueue.abc.SupportsGates.gate_statuses`."""
        if not gates:
            return []
        rows = await self._pool.read(self._statements["gates_status"], list(gates), [name_of(gate) for gate in gates])
        sequences = [gate.partition("=")[2] for gate in gates if kind_of(gate) is GateKind.SEQUENCE]
        turns = await self._pool.read(self._statements["gates_turn"], sequences) if sequences else ()
        turn = {f"{SEQUENCE}={row[0]}": row for row in turns}
        return [_status(gate, row, turn.get(gate)) for gate, row in zip(gates, rows, strict=True)]

    async def kept(self) -> list[KeptSequence]:
        """See `aioqueue.abc.SupportsGates.kept_sequences`."""
        rows = await self._pool.read(self._statements["gates_kept"])
        return [KeptSequence(name=row[0], blocked_by=row[1], waiting=row[2]) for row in rows]

    async def resume(self, names: Sequence[str]) -> list[bool]:
        """See `aioqueue.abc.SupportsGates.resume_sequences`."""

        async def resume(connection: Connection) -> set[str]:
            await connection.execute(WAIT_BRIEFLY)
            resumed = {row[0] for row in await connection.fetch(self._statements["gates_resume"], list(names))}
            if resumed and self._origin is not None:
                await connection.fetch(self._statements["notify"], gates_note(self._origin))
            return resumed

        kept = await self._pool.transact(resume) if names else set[str]()
        return [name in kept for name in names]


def _status(gate: str, row: Row, turn: Row | None) -> GateStatus:
    places, per, running, count, waiting, next_at = row
    head: UUID | None = None
    blocked_by: UUID | None = None
    awaited: UUID | None = None
    if turn is not None and not count:
        _, job_id, may_run, failed = turn
        if failed:
            blocked_by = job_id
        elif may_run:
            head = job_id
        else:
            awaited = job_id
    return GateStatus(
        gate=gate,
        kind=kind_of(gate),
        places=places,
        per=per,
        running=tuple(sorted(running)),
        count=count,
        waiting=waiting,
        next_at=next_at,
        head=head,
        blocked_by=blocked_by,
        awaited=awaited,
    )
