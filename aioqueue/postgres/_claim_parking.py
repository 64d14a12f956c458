"""Parking what a claim comes to and has a paused key: many at a time, so that a backlog of such jobs is soon out of the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._claim_lanes import READY
from aioqueue.postgres._pauses_parked import key_is_paused, parking
from aioqueue.postgres._rows import moment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aioqueue.postgres._claim_lanes import Floor, Lane
    from aioqueue.postgres._connections_reserved import ReservedConnection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["park", "parking_statements"]

_PARKED_AT_ONCE = 2_000
"""Jobs of each lane that one statement looks at."""

# What it returns says how far each lane holds nothing any more but dead entries: the next claim begins behind them.
_PARK = f"""WITH lane AS MATERIALIZED (
    SELECT given.type, given.priority, coalesce(given.floor_at, '-infinity'::timestamptz) AS floor_at,
           coalesce(given.floor_id, '00000000-0000-0000-0000-000000000000'::uuid) AS floor_id
    FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[]) AS given(type, priority, floor_at, floor_id)
), met AS MATERIALIZED (
    SELECT lane.type, lane.priority, head.* FROM lane CROSS JOIN LATERAL (
        SELECT first.run_at, first.id, first.key, row_number() OVER (ORDER BY first.run_at, first.id) AS place
        FROM (SELECT j.run_at, j.id, j.key FROM {READY} LIMIT $5::integer) AS first
    ) AS head
), {parking(f"SELECT id FROM met WHERE {key_is_paused('met.key')}")}, other AS MATERIALIZED (
    SELECT type, priority, min(place) AS place FROM met WHERE id NOT IN (SELECT id FROM parked) GROUP BY type, priority
)
SELECT (SELECT count(*) FROM parked), front.*
FROM (SELECT) AS once LEFT JOIN (
    SELECT DISTINCT ON (met.type, met.priority) met.type, met.priority, {moment("met.run_at")}, met.id
    FROM met LEFT JOIN other ON other.type = met.type AND other.priority = met.priority
    WHERE other.place IS NULL OR met.place < other.place
    ORDER BY met.type, met.priority, met.place DESC) AS front ON true"""


def parking_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"claim_park": schema.render(_PARK)}


async def park(
    connection: ReservedConnection, statement: str, lanes: Collection[Lane], floors: Mapping[Lane, Floor]
) -> tuple[int, dict[Lane, Floor]]:
    """Park what is due in these lanes and has a paused key, a portion.

    Arguments:
        connection: The claims'.
        statement: `claim_park`.
        lanes: Which.
        floors: Where it begins in each, unless at its beginning.

    Returns:
        How many were parked; and the lanes' new floors, as far as it has changed them.
    """
    asked = sorted(lanes)
    rows = await connection.fetch(
        statement,
        [name for name, _ in asked],
        [priority for _, priority in asked],
        [floors[lane][0] if lane in floors else None for lane in asked],
        [floors[lane][1] if lane in floors else None for lane in asked],
        _PARKED_AT_ONCE,
    )
    return rows[0][0], {(row[1], row[2]): (row[3], row[4]) for row in rows if row[1] is not None}
