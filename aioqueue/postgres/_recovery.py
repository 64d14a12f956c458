"""Recovery: jobs whose owners are gone are taken by others; and when the next job or expired lease is due.

Nothing here waits for a job's row that somebody else has locked.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._claim_throttle import Throttle
from aioqueue.postgres._gates_due import GATES_DUE
from aioqueue.postgres._gates_fair import fair_statements, without_turns
from aioqueue.postgres._pauses_parked import GATE, VALID
from aioqueue.postgres._rows import RECOVERED_COLUMNS, claimed_job
from aioqueue.postgres._schedules_due import NEXT_TICK
from aioqueue.vocabulary._answers import Due
from aioqueue.vocabulary._pauses import PauseTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue.postgres._claim import Claims
    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.postgres._schedules_due import TickFloor
    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Recovery", "recovery_statements"]

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
    SELECT {RECOVERED_COLUMNS}, (SELECT p.worker FROM @schema@.past_lease p WHERE p.id = j.lease_id) FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT id FROM orphan)) AND j.state + 0 = 2
    ORDER BY j.started_at NULLS FIRST, j.id LIMIT $1::integer FOR UPDATE OF j SKIP LOCKED
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $3::text, 'l', json_build_array(ended.id))::text)::text
        AS done
    FROM ended WHERE $3::text IS NOT NULL
)
SELECT (SELECT ended.id FROM ended LEFT JOIN told ON true LIMIT 1), found.*
FROM (SELECT) AS once LEFT JOIN found ON true"""

# Infinite times never come, and can't be subtracted before PostgreSQL 17. Looking for jobs whose lease has no row costs a
# descent of the index for each lease: where there are many leases it's left to `take_expired`.
_MANY_LEASES = 100
_SECONDS = """CASE WHEN {first} <= now() THEN 0 WHEN isfinite({first}) THEN extract(epoch FROM {first} - now()) END::float8"""
# Jobs of paused types may be due when the last of the pauses ends, and so may parked ones. Where a key's pause has ended it's
# upkeep that brings back what is parked. Those that end first are found by the index on that, and only so many are looked at.
_MANY_PAUSES = 100
_NEXT_DUE = f"""WITH {_GAPS.replace("@own@", "$3")}, paused AS MATERIALIZED (
    SELECT p.value AS type, max(coalesce(p.until, 'infinity')) AS until FROM @schema@.pause p
    WHERE p.target = '{PauseTarget.TYPE}' AND {VALID} GROUP BY p.value
), pending AS MATERIALIZED (
    SELECT min(greatest(first.run_at, paused.until,
                        (SELECT max(coalesce(p.until, 'infinity')) FROM @schema@.pause p
                         WHERE p.target = '{PauseTarget.ALL}' AND {VALID}))) AS due
    FROM unnest($1::text[], $2::smallint[]) AS lane(type, priority)
    CROSS JOIN LATERAL (
        SELECT j.run_at FROM @schema@.job j
        WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority
        ORDER BY j.run_at, j.id LIMIT 1
    ) AS first LEFT JOIN paused ON paused.type = lane.type
), parked AS MATERIALIZED (
    SELECT min(last.until) AS due
    FROM (SELECT p.value FROM @schema@.pause p WHERE p.until > now() AND p.target || '' = '{PauseTarget.KEY}'
          ORDER BY p.until LIMIT {_MANY_PAUSES}) AS soon
    CROSS JOIN LATERAL (
        SELECT max(coalesce(p.until, 'infinity')) AS until FROM @schema@.pause p
        WHERE p.target = '{PauseTarget.KEY}' AND p.value = soon.value AND {VALID}) AS last
    WHERE isfinite(last.until) AND EXISTS (SELECT FROM @schema@.job j WHERE j.state = 0 AND j.gate = {GATE} || soon.value)
)
SELECT (SELECT {_SECONDS.format(first="least(pending.due, parked.due)")} FROM pending CROSS JOIN parked),
       (SELECT {_SECONDS.format(first="min(l.expires_at)")} FROM @schema@.lease l WHERE l.id <> ALL($3::bigint[])),
       CASE WHEN $4::boolean AND (SELECT count(*) FROM gap) <= {_MANY_LEASES} THEN
           EXISTS (SELECT FROM gap CROSS JOIN LATERAL (
               SELECT FROM @schema@.job j
               WHERE j.state = 2 AND j.lease_id > gap.low AND j.lease_id < gap.high LIMIT 1) AS lost)
           OR EXISTS (SELECT FROM @schema@.job j WHERE j.state = 2 AND j.lease_id IS NULL)
       ELSE false END,
       {NEXT_TICK.replace("@floor@", "$5")}, now(),
       {GATES_DUE.replace("@types@", "$6").replace("@left@", "$7").replace("@floor@", "$8")}"""


def recovery_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"take_expired": schema.render(_TAKE_EXPIRED), "next_due": schema.render(_NEXT_DUE), **fair_statements(schema)}


class Recovery:
    """Looks for what no worker holds any more, and for what is due, over the pool that serves the workers.

    Arguments:
        pool: Serves the workers.
        schema: Where the tables are.
        claims: The claims of the same store: they know what can't be claimed for the moment.
        floor: Where the store looks for ticks from.
        origin: Who tells other processes of a lease that has ended; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, claims: Claims, floor: TickFloor, origin: str | None) -> None:
        self._pool = pool
        self._statements = recovery_statements(schema)
        self._claims = claims
        self._floor = floor
        self._origin = origin
        self._looks = Throttle()

    async def take_expired(self, limit: int, own: Collection[int]) -> tuple[int | None, list[ClaimedJob]]:
        """Take jobs whose owners are gone, as `aioqueue.abc.Store.take_expired` says; returns the lease that ended, too."""
        rows = await self._pool.fetch(self._statements["take_expired"], limit, list(own), self._origin)
        return rows[0][0], [replace(claimed_job(row[1:-1]), worker=row[-1] or "") for row in rows if row[1] is not None]

    async def next_due(self, types: Sequence[str], own: Collection[int], gates: Mapping[str, GateRules] | None = None) -> Due:
        """Say when something is due, as `aioqueue.abc.Store.next_due` says."""
        look, floor = self._looks.pause == 0, self._floor.begin()
        rules = {name: each for name, each in (gates or {}).items() if each.fair_by is not None and name in types}
        full = await without_turns(self._pool.fetch, self._statements, rules, list(rules))
        fair = {each.type for each in rules.values()} - full
        left, left_types = self._claims.refusals
        began = time.monotonic()
        rows = await self._pool.fetch(
            self._statements["next_due"],
            *lanes_of(types),
            list(own),
            look,
            floor,
            list(fair.difference(left_types.names)),
            left.names,
            self._claims.marks_floor,
        )
        ((job, lease, lost, unknown, first_tick, now, opened),) = rows
        if look:
            self._looks.done(began, time.monotonic())
        # What is due now but before the floors can't be claimed before that.
        job = job if job is None or job > 0 else self._claims.pause
        if opened is not None:
            if opened == 0:
                self._claims.expect_marks()
            job = opened if job is None else min(job, opened)
        again = min((each.next_in for each in (left, left_types) if each.next_in is not None), default=None)
        if again is not None:
            job = again if job is None else min(job, again)
        tick = self._floor.seen(floor, began, unknown=bool(unknown), first=first_tick, now=now)
        return Due(job=job, lease=0.0 if lost else lease, tick=tick)
