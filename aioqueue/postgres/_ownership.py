"""Who owns running jobs: leases, the giving back of claims, and the recovery of jobs whose owners are gone.

Nothing here waits for a job's row that somebody else has locked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

from aioqueue.abc import Due
from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._rows import RECOVERED_COLUMNS, claimed_job

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._claim import Claims
    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Claim, ClaimedJob

__all__ = ["Ownership", "ownership_statements"]

logger = logging.getLogger("aioqueue.postgres")

_MOST_LEASE_ID = 2**62
_END_PATIENCE = 2.0
_END_PAUSE = 0.05
_NAMED = 20

# The column gives numbers by itself to whoever names none.
_OPEN_LEASE = """INSERT INTO @schema@.lease (id, worker, expires_at, extra) OVERRIDING SYSTEM VALUE
VALUES ($1::bigint, $2::text, clock_timestamp() + $3::float8 * interval '1 second', $4::boolean)
ON CONFLICT DO NOTHING RETURNING id"""

# A late renewal is granted: while the row is there, nobody has taken anything of it.
_RENEW = """WITH renewed AS (
    UPDATE @schema@.lease l SET expires_at = now() + $2::float8 * interval '1 second' WHERE l.id = $1::bigint RETURNING l.id
)
SELECT NULL::uuid, NULL::integer FROM renewed
UNION ALL SELECT j.id, j.claims FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint"""

_END_LEASE = "DELETE FROM @schema@.lease l WHERE l.id = $1::bigint RETURNING l.id"

_GIVE_BACK = """WITH owned AS MATERIALIZED (
    @owned@
), returned AS (
    UPDATE @schema@.job j
    SET state = 1, lease_id = NULL, attempt = greatest(j.attempt, 1) - 1,
        run_at = greatest(nullif(j.run_at, 'infinity'), clock_timestamp())
    WHERE j.id = ANY(ARRAY(SELECT id FROM owned))
    RETURNING j.type
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $2::text, 'd', 0, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types FROM returned) AS due
    WHERE $2::text IS NOT NULL AND due.types IS NOT NULL
)
SELECT type FROM returned UNION ALL SELECT NULL FROM told WHERE done IS NOT NULL"""
_OWNED_CLAIMS = """SELECT j.id FROM @schema@.job j
    WHERE j.id = ANY($3::uuid[]) AND j.state + 0 = 2 AND j.lease_id + 0 = $1::bigint
      AND EXISTS (SELECT FROM unnest($3::uuid[], $4::integer[]) AS given(id, claims)
                  WHERE given.id = j.id AND given.claims = j.claims)
      AND EXISTS (SELECT FROM @schema@.lease l WHERE l.id = $1::bigint)
    FOR UPDATE OF j SKIP LOCKED"""
_OWNED_ALL = """SELECT j.id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint FOR UPDATE OF j SKIP LOCKED"""
_OWNED_STILL = "SELECT j.id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint"

# Running jobs whose lease has no row are those between the ids of the leases that have one (and of the worker's own).
# Reading these gaps only keeps clear of the many dead entries that the living leases have in the index.
_GAPS = """gap AS MATERIALIZED (
    SELECT lag(bound.id, 1, -9223372036854775808) OVER (ORDER BY bound.id) AS low, bound.id AS high
    FROM (SELECT l.id FROM @schema@.lease l UNION SELECT unnest(@own@::bigint[]) UNION SELECT 9223372036854775807) AS bound
)"""

# One expired lease goes, which fences all its jobs. The jobs are those whose lease is gone, or has expired, but for what
# somebody has locked: it couldn't be settled, and would stand before the others.
_TAKE_EXPIRED = f"""WITH ended AS (
    DELETE FROM @schema@.lease l WHERE l.id = (
        SELECT e.id FROM @schema@.lease e WHERE e.expires_at <= now() AND e.id <> ALL($2::bigint[])
        ORDER BY e.expires_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING l.id
), {_GAPS.replace("@own@", "$2")}, orphan AS MATERIALIZED (
    SELECT j.id
    FROM @schema@.lease l CROSS JOIN LATERAL (
        SELECT held.id FROM @schema@.job held WHERE held.state = 2 AND held.lease_id = l.id OFFSET 0) AS j
    WHERE l.expires_at <= now() AND l.id <> ALL($2::bigint[])
    UNION ALL
    SELECT j.id
    FROM gap CROSS JOIN LATERAL (
        SELECT held.id FROM @schema@.job held
        WHERE held.state = 2 AND held.lease_id > gap.low AND held.lease_id < gap.high OFFSET 0) AS j
    UNION ALL
    SELECT j.id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id IS NULL
), found AS MATERIALIZED (
    SELECT {RECOVERED_COLUMNS} FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT id FROM orphan)) AND j.state + 0 = 2
    ORDER BY j.started_at NULLS FIRST, j.id LIMIT $1::integer FOR UPDATE OF j SKIP LOCKED
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $3::text, 'l', json_build_array(ended.id))::text)::text
        AS done
    FROM ended WHERE $3::text IS NOT NULL
)
SELECT (SELECT ended.id FROM ended LEFT JOIN told ON true LIMIT 1), found.* FROM (SELECT) AS once LEFT JOIN found ON true"""

# Infinite times never come, and can't be subtracted before PostgreSQL 17. Looking for jobs whose lease has no row costs a
# descent of the index for each lease: where there are many leases it's left to `take_expired`.
_MANY_LEASES = 100
_SECONDS = """CASE WHEN {first} <= now() THEN 0 WHEN isfinite({first}) THEN extract(epoch FROM {first} - now()) END::float8"""
_NEXT_DUE = f"""WITH {_GAPS.replace("@own@", "$3")}
SELECT (SELECT {_SECONDS.format(first="min(first.run_at)")}
        FROM unnest($1::text[], $2::smallint[]) AS lane(type, priority)
        CROSS JOIN LATERAL (
            SELECT j.run_at FROM @schema@.job j
            WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority
            ORDER BY j.run_at, j.id LIMIT 1
        ) AS first),
       (SELECT {_SECONDS.format(first="min(l.expires_at)")} FROM @schema@.lease l WHERE l.id <> ALL($3::bigint[])),
       CASE WHEN $4::boolean AND (SELECT count(*) FROM gap) <= {_MANY_LEASES} THEN
           EXISTS (SELECT FROM gap CROSS JOIN LATERAL (
               SELECT FROM @schema@.job j
               WHERE j.state = 2 AND j.lease_id > gap.low AND j.lease_id < gap.high LIMIT 1) AS lost)
           OR EXISTS (SELECT FROM @schema@.job j WHERE j.state = 2 AND j.lease_id IS NULL)
       ELSE false END"""


def ownership_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "open_lease": _OPEN_LEASE,
        "renew": _RENEW,
        "end_lease": _END_LEASE,
        "release": _GIVE_BACK.replace("@owned@", _OWNED_CLAIMS),
        "release_all": _GIVE_BACK.replace("@owned@", _OWNED_ALL),
        "owned": _OWNED_STILL,
        "take_expired": _TAKE_EXPIRED,
        "next_due": _NEXT_DUE,
    }
    return {name: schema.render(template) for name, template in templates.items()}


def release_arguments(lease_id: int, origin: str | None, claims: Sequence[Claim]) -> list[Any]:
    """The arguments of `release`."""
    return [lease_id, origin, [claim.id for claim in claims], [claim.claims for claim in claims]]


class Ownership:
    """Leases and recovery, over the pool that serves the workers.

    Arguments:
        pool: See above.
        statements: All statements of the store.
        claims: The claims of the same store: they know what can't be claimed for the moment.
        origin: Who tells; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, statements: dict[str, str], claims: Claims, origin: str | None) -> None:
        self._pool = pool
        self._statements = statements
        self._claims = claims
        self._origin = origin
        self._looks = Throttle()

    async def open(self, worker: str, duration: float, *, extra: bool) -> int:
        """See `Store.open_lease`."""
        while True:
            # Random, so that none comes again when the database has gone back in time: restored, or failed over.
            wanted = 1 + secrets.randbelow(_MOST_LEASE_ID)
            rows = await self._pool.fetch(self._statements["open_lease"], wanted, worker, duration, extra)
            if rows:
                return int(rows[0][0])

    async def release(self, lease_id: int, claims: Sequence[Claim]) -> set[str]:
        """See `Store.release`; returns the types that became pending.

        A claim whose row somebody has locked stays: the lease's next renewals find that it owns more than it's asked about.
        """
        arguments = release_arguments(lease_id, self._origin, claims)
        rows = await self._pool.fetch(self._statements["release"], *arguments)
        return {row[0] for row in rows if row[0] is not None}

    async def end(self, lease_id: int) -> set[str]:
        """End a lease, and give back what it holds; returns the types that became pending.

        What stays locked for longer than `_END_PATIENCE` seconds is left without a lease, and recovered by other workers.
        """
        types: set[str] = set()
        async with self._pool.transaction() as connection:
            # First, so that a claim under way has either been seen off or is seen by the next statement.
            if not await connection.fetch(self._statements["end_lease"], lease_id):
                return types  # somebody recovers its jobs
            deadline = time.monotonic() + _END_PATIENCE
            while True:
                rows = await connection.fetch(self._statements["release_all"], lease_id, self._origin)
                types |= {row[0] for row in rows if row[0] is not None}
                left = await connection.fetch(self._statements["owned"], lease_id)
                if not left or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(_END_PAUSE)
        if left:
            named = ", ".join(str(row[0]) for row in left[:_NAMED])
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            logger.warning(
                "lease %d has ended, but others have locked the rows of %d of its jobs, which couldn't be given back and will "
                "be recovered: %s%s",
                lease_id,
                len(left),
                named,
                more,
            )
        return types

    async def take_expired(self, limit: int, own: Collection[int]) -> tuple[int | None, list[ClaimedJob]]:
        """See `Store.take_expired`; returns the lease that ended, too."""
        rows = await self._pool.fetch(self._statements["take_expired"], limit, list(own), self._origin)
        return rows[0][0], [claimed_job(row[1:]) for row in rows if row[1] is not None]

    async def next_due(self, types: Sequence[str], own: Collection[int]) -> Due:
        """See `Store.next_due`."""
        look = self._looks.pause == 0
        began = time.monotonic()
        ((job, lease, lost),) = await self._pool.fetch(self._statements["next_due"], *lanes_of(types), list(own), look)
        if look:
            self._looks.done(began, time.monotonic())
        # What is due now but before the floors can't be claimed before that.
        return Due(job=job if job is None or job > 0 else self._claims.pause, lease=0.0 if lost else lease)
