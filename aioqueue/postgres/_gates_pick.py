"""Candidates: due jobs that a claim locks, to see whether their gates let them through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioqueue.postgres._claim_lanes import READY
from aioqueue.postgres._pauses_parked import key_is_paused, type_is_free
from aioqueue.postgres._rows import flat, moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Picked", "pick", "pick_one", "pick_statements"]

_COLUMNS = f"""j.id, j.type, j.priority, {moment("j.run_at")}, j.gate, j.gates, coalesce(j.chain_id, j.id), j.payload::text,
       j.metadata::text, (SELECT m.sequence FROM @schema@.gate_member m WHERE m.chain_id = coalesce(j.chain_id, j.id)),
       {key_is_paused("j.key")}"""

_MORE_ROWS = 100
"""At which is looked in a lane beside those that are wanted: somebody may keep the first ones locked."""

# Of types that have rules all jobs are looked at; of others those few that are at gates, among the first ones.
_PICK = f"""WITH lane AS MATERIALIZED (
    SELECT given.type, given.priority, coalesce(given.floor_at, '-infinity'::timestamptz) AS floor_at,
           coalesce(given.floor_id, '00000000-0000-0000-0000-000000000000'::uuid) AS floor_id, given.jobs, given.ruled
    FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[], $5::integer[], $6::boolean[])
        AS given(type, priority, floor_at, floor_id, jobs, ruled)
    WHERE {type_is_free("given.type")}
), ruled AS MATERIALIZED (
    SELECT taken.id FROM lane CROSS JOIN LATERAL (
        SELECT j.id FROM {READY} LIMIT CASE WHEN lane.ruled THEN lane.jobs ELSE 0 END FOR UPDATE OF j SKIP LOCKED) AS taken
), other AS MATERIALIZED (
    SELECT taken.id FROM lane CROSS JOIN LATERAL (
        SELECT j.id FROM @schema@.job j
        WHERE j.id = ANY(ARRAY(SELECT first.id FROM (
                SELECT j.id, j.gates FROM {READY} LIMIT CASE WHEN lane.ruled THEN 0 ELSE lane.jobs + {_MORE_ROWS} END) AS first
            WHERE first.gates IS NOT NULL))
          AND j.state + 0 = 1 AND j.run_at <= now()
        ORDER BY j.run_at, j.id LIMIT lane.jobs FOR UPDATE OF j SKIP LOCKED) AS taken
)
SELECT {_COLUMNS} FROM @schema@.job j
WHERE j.id = ANY(ARRAY(SELECT id FROM ruled UNION ALL SELECT id FROM other)) ORDER BY j.run_at, j.id"""
_PICK_ONE = f"""WITH locked AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j
    WHERE j.id = $1::uuid AND j.state + 0 = 1 AND j.run_at <= now() AND {type_is_free("j.type")} FOR UPDATE OF j SKIP LOCKED
)
SELECT {_COLUMNS} FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM locked))"""


def pick_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"gates_pick": schema.render(_PICK), "gates_pick_one": schema.render(_PICK_ONE)}


@dataclass(frozen=True, slots=True)
class Picked:
    """A due job that is locked.

    Attributes:
        id, type, priority, run_at, chain_id, payload, metadata: The job's, as stored.
        gate: At which it was let come; None if it wasn't.
        gates: At which it was let come, or let through the last time.
        sequence: The one that its chain is in, if it's stored.
        paused: Whether its key is paused.
        lane: Its type and priority.
    """

    id: UUID
    type: str
    priority: int
    run_at: Any
    gate: str | None
    gates: tuple[str, ...] | None
    chain_id: UUID
    payload: bytes
    metadata: bytes
    sequence: str | None
    paused: bool
    lane: Lane


def _picked(row: Any) -> Picked:
    job_id, job_type, priority, run_at, gate, gates, chain_id, payload, metadata, sequence, paused = row
    known = None if gates is None else tuple(flat(gates))
    return Picked(
        job_id,
        job_type,
        priority,
        run_at,
        gate,
        known,
        chain_id,
        payload.encode(),
        metadata.encode(),
        sequence,
        bool(paused),
        (job_type, priority),
    )


async def pick(
    connection: Connection,
    statements: dict[str, str],
    lanes: Mapping[Lane, int],
    floors: Mapping[Lane, Floor],
    ruled: frozenset[str],
) -> list[Picked]:
    """Lock candidates, each lane's in their order.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        lanes: How many of each.
        floors: Where it begins in each, unless at its beginning.
        ruled: The types that have rules.
    """
    names = sorted(lanes)
    rows = await connection.fetch(
        statements["gates_pick"],
        [name for name, _ in names],
        [priority for _, priority in names],
        [floors[lane][0] if lane in floors else None for lane in names],
        [floors[lane][1] if lane in floors else None for lane in names],
        [lanes[lane] for lane in names],
        [name in ruled for name, _ in names],
    )
    return [_picked(row) for row in rows]


async def pick_one(connection: Connection, statements: dict[str, str], job_id: UUID) -> list[Picked]:
    """Lock one candidate, if it's due and nobody has locked it."""
    return [_picked(row) for row in await connection.fetch(statements["gates_pick_one"], job_id)]
