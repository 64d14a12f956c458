"""Who works, and where a job stands in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._workers import LeaseFacts, Standing

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Reader
    from aioqueue.postgres._options_schema import Schema

__all__ = ["read_leases", "read_standing", "worker_statements"]

# Before PostgreSQL 17 nothing can be computed with infinite times.
_LEASES = f"""SELECT l.id, l.worker, l.created_at, extract(epoch FROM
        least(greatest(l.expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00')
        - statement_timestamp())::float8 AS ends_in,
    l.extra, l.types, l.slots, l.singleton, (SELECT count(*) FROM (
        SELECT FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = l.id LIMIT {MOST_COUNTED_JOBS}) AS held)
FROM @schema@.lease l ORDER BY l.worker, l.id LIMIT 10000"""

# The row before which is counted belongs to one lane; of the more urgent ones everything that is due comes before it.
_STANDING = f"""SELECT statement_timestamp(), CASE j.state WHEN 2 THEN j.lease_id END,
    CASE j.state WHEN 1 THEN (SELECT count(*) FROM (
        SELECT FROM unnest($2::text[]) AS t(type) CROSS JOIN generate_series(1, least(j.priority, 4)) AS p(priority)
        CROSS JOIN LATERAL (
            SELECT FROM @schema@.job b WHERE b.state = 1 AND b.type = t.type AND b.priority = p.priority
                AND b.run_at <= least(statement_timestamp(), CASE WHEN p.priority = j.priority THEN j.run_at END)
                AND (p.priority < j.priority OR b.run_at < j.run_at OR b.id < j.id)
            LIMIT {MOST_COUNTED_JOBS}) AS ahead
        LIMIT {MOST_COUNTED_JOBS}) AS counted) ELSE 0 END
FROM @schema@.job j WHERE j.id = $1::uuid"""


def worker_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"leases": schema.render(_LEASES), "standing": schema.render(_STANDING)}


async def read_leases(reader: Reader, schema: Schema) -> list[LeaseFacts]:
    """All leases, as `aioqueue.abc.Store.leases` says."""
    return [
        LeaseFacts(
            id=lease_id,
            worker=worker,
            opened_at=opened_at,
            ends_in=ends_in,
            extra=extra,
            types=None if types is None else tuple(each for each in types if each is not None),
            slots=slots,
            running=running,
            singleton=singleton,
        )
        for lease_id, worker, opened_at, ends_in, extra, types, slots, singleton, running in await reader.read(
            worker_statements(schema)["leases"]
        )
    ]


async def read_standing(reader: Reader, schema: Schema, job_id: UUID, types: Collection[str]) -> Standing | None:
    """Where a live job stands, as `aioqueue.abc.Store.standing` says."""
    rows = await reader.read(worker_statements(schema)["standing"], job_id, sorted(types))
    for now, lease_id, before in rows:
        return Standing(now=now, lease_id=lease_id, before=before)
    return None
