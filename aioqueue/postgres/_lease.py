"""Leases: opened for a worker, and ended; and claims that a worker gives back.

Nothing here waits for a job's row that somebody else has locked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aioqueue.errors import SingletonHeld
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._lease_rights import MISSING_RIGHTS, WORKER, refuse_missing, rights_arguments
from aioqueue.postgres._notifications import merged
from aioqueue.postgres._rows import ASKED
from aioqueue.postgres._settle_slowly import settle_portion, slow_statements, told_of
from aioqueue.runtime._log import event
from aioqueue.store_rules._lease_ids import new_lease_id
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import Claim, Settlement, SettlementKind
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Leases", "lease_statements"]

logger = logging.getLogger("aioqueue.postgres")

_END_SECONDS = 2.0
_END_PAUSE_SECONDS = 0.05
_MOST_NAMED = 20

# The column gives numbers by itself to whoever names none. Old past leases are forgotten, more quickly than new ones come.
# The lease that had the name and has run out goes first, unless it's renewed at this moment: that fences all its jobs.
_OPEN_LEASE = """WITH ended AS MATERIALIZED (
    DELETE FROM @schema@.lease l WHERE l.singleton = $7::text AND l.expires_at <= clock_timestamp() RETURNING l.id
), opened AS (
    INSERT INTO @schema@.lease (id, worker, expires_at, extra, types, slots, singleton) OVERRIDING SYSTEM VALUE
    SELECT $1::bigint, $2::text, clock_timestamp() + $3::float8 * interval '1 second', $4::boolean, $5::text[], $6::integer,
           $7::text
    WHERE (SELECT count(*) FROM ended) >= 0
    ON CONFLICT DO NOTHING RETURNING id, worker
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $8::text, 'l', json_build_array(ended.id))::text)::text
        AS done
    FROM ended WHERE $8::text IS NOT NULL
), kept AS (
    INSERT INTO @schema@.past_lease (id, worker) SELECT id, worker FROM opened
    ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, opened_at = excluded.opened_at
), forgotten AS (
    DELETE FROM @schema@.past_lease p WHERE p.id = ANY(ARRAY(
        SELECT o.id FROM @schema@.past_lease o
        WHERE o.opened_at < now() - interval '90 days'
          AND (SELECT true FROM @schema@.lease l WHERE l.id = o.id LIMIT 1) IS NULL
        ORDER BY o.opened_at LIMIT 100 FOR UPDATE SKIP LOCKED))
)
SELECT (SELECT id FROM opened), (SELECT ended.id FROM ended LEFT JOIN told ON true LIMIT 1)"""
_HOLDER = """SELECT l.worker, extract(epoch FROM least(l.expires_at, '9999-12-31 00:00:00+00') - clock_timestamp())::float8
FROM @schema@.lease l WHERE l.singleton = $1::text AND l.expires_at > clock_timestamp()"""

_END_LEASE = "DELETE FROM @schema@.lease l WHERE l.id = $1::bigint RETURNING l.id"

_LOGGED = logged(f"SELECT '{EventKind.RESCHEDULED}', id, chain, type, attempt, claims, 0::float8 FROM returned", "delay")
# Those whose chains were asked to end are only named: they're cancelled next.
_GIVE_BACK = f"""WITH owned AS MATERIALIZED (
    @owned@
), returned AS (
    UPDATE @schema@.job j
    SET state = 1, lease_id = NULL, attempt = greatest(j.attempt, 1) - 1,
        run_at = greatest(nullif(j.run_at, 'infinity'), clock_timestamp())
    WHERE j.id = ANY(ARRAY(SELECT id FROM owned WHERE asked IS NULL))
    RETURNING j.id, coalesce(j.chain_id, j.id) AS chain, j.type, j.attempt, j.claims
), {_LOGGED}, told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $2::text, 'd', 0, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types FROM returned) AS due
    WHERE $2::text IS NOT NULL AND due.types IS NOT NULL
)
SELECT type, NULL::uuid, NULL::integer FROM returned UNION ALL SELECT NULL, NULL, NULL FROM told WHERE done IS NOT NULL
UNION ALL SELECT NULL, id, claims FROM owned WHERE asked IS NOT NULL"""
_OWNED_CLAIMS = f"""SELECT j.id, j.claims, {ASKED} AS asked FROM @schema@.job j
    WHERE j.id = ANY($3::uuid[]) AND j.state + 0 = 2 AND j.lease_id + 0 = $1::bigint
      AND EXISTS (SELECT FROM unnest($3::uuid[], $4::integer[]) AS given(id, claims)
                  WHERE given.id = j.id AND given.claims = j.claims)
      AND EXISTS (SELECT FROM @schema@.lease l WHERE l.id = $1::bigint)
    FOR UPDATE OF j SKIP LOCKED"""
_OWNED_ALL = f"""SELECT j.id, j.claims, {ASKED} AS asked
    FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint FOR UPDATE OF j SKIP LOCKED"""
# What is given back hasn't used its attempt, though it ends with that. Workers may not change finished rows, but live ones.
_UNCOUNTED = """WITH owned AS MATERIALIZED (
    SELECT j.id, j.attempt FROM @schema@.job j
    WHERE j.id = ANY($2::uuid[]) AND j.state + 0 = 2 AND j.lease_id + 0 = $1::bigint
      AND EXISTS (SELECT FROM unnest($2::uuid[], $3::integer[]) AS given(id, claims)
                  WHERE given.id = j.id AND given.claims = j.claims)
    FOR UPDATE SKIP LOCKED
), uncounted AS (
    UPDATE @schema@.job j SET attempt = greatest(j.attempt, 1) - 1 WHERE j.id = ANY(ARRAY(SELECT id FROM owned))
)
SELECT id, attempt FROM owned"""
_COUNTED = """UPDATE @schema@.job j SET attempt = given.attempt FROM unnest($1::uuid[], $2::integer[]) AS given(id, attempt)
WHERE j.id = given.id"""
_OWNED_STILL = "SELECT j.id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint"


def lease_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "open_lease": _OPEN_LEASE,
        "lease_holder": _HOLDER,
        "end_lease": _END_LEASE,
        "release": _GIVE_BACK.replace("@owned@", _OWNED_CLAIMS),
        "release_all": _GIVE_BACK.replace("@owned@", _OWNED_ALL),
        "uncounted": _UNCOUNTED,
        "counted": _COUNTED,
        "owned": _OWNED_STILL,
    }
    return {**{name: schema.render(template) for name, template in templates.items()}, **slow_statements(schema)}


class Leases:
    """The leases of a store's workers, over the pool that serves them. Renewals are made by `PostgresLeaseSession`.

    Arguments:
        pool: Serves the workers.
        schema: Where the tables are.
        origin: Who tells other processes of jobs that were given back; None if nobody is to be told.
        description: The store, for errors.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None, description: str) -> None:
        self._pool = pool
        self._schema = schema
        self._statements = lease_statements(schema)
        self._origin = origin
        self._description = description

    async def open(
        self,
        worker: str,
        duration: float,
        *,
        extra: bool,
        types: Sequence[str] | None,
        slots: int | None,
        singleton: str | None,
    ) -> tuple[int, Notification]:
        """Open a lease, as `aioqueue.abc.Store.open_lease` says; returns what listeners are to be told, too.

        Raises:
            SingletonHeld: A valid lease has the name.
            ConfigurationError: The role may not do what a worker does.
        """
        missing = await self._pool.fetch(MISSING_RIGHTS, *rights_arguments(self._schema, WORKER))
        refuse_missing(missing, self._schema, self._description, "a worker")
        given = (extra, None if types is None else list(types), slots, singleton, self._origin)
        ended: set[int] = set()
        while True:
            rows = await self._pool.fetch(self._statements["open_lease"], new_lease_id(), worker, duration, *given)
            ((opened, taken_over),) = rows
            ended.update(() if taken_over is None else (taken_over,))
            if opened is not None:
                return int(opened), Notification(leases=frozenset(ended))
            if singleton is not None:
                await self._refuse_held(singleton)

    async def _refuse_held(self, singleton: str) -> None:
        """Say who has the name, unless it has become free since.

        Raises:
            SingletonHeld: A valid lease has it.
        """
        for worker, ends_in in await self._pool.read(self._statements["lease_holder"], singleton):
            raise SingletonHeld(
                f"another worker is the only one of the name {singleton!r}: {worker}, whose lease runs out in {ends_in:.1f} s "
                "unless it's renewed",
                name=singleton,
                worker=worker,
                ends_in=ends_in,
            )

    async def release(self, lease_id: int, claims: Sequence[Claim]) -> Notification:
        """Give back claims, as `aioqueue.abc.Store.release` says; returns what listeners are to be told.

        A claim whose row somebody has locked stays: the lease's next renewals find that it owns more than it's asked about.
        """
        given = [claim.id for claim in claims], [claim.claims for claim in claims]
        rows = await self._pool.fetch(self._statements["release"], lease_id, self._origin, *given)
        told = [_pending(rows)]
        if any(row[1] is not None for row in rows):
            async with self._pool.transaction() as connection:
                told.append(await self._cancel(connection, lease_id, rows, "settle_slowly"))
        return merged(told)

    async def _cancel(self, connection: Connection, lease_id: int, rows: Sequence[Row], name: str) -> Notification:
        """Cancel those claims that can't be given back, since their chains were asked to end."""
        asked = [Claim(row[1], row[2]) for row in rows if row[1] is not None]
        if not asked:
            return Notification()
        batch = [
            Settlement(id=each.id, claims=each.claims, lease_id=lease_id, kind=SettlementKind.RESCHEDULED) for each in asked
        ]
        given = [each.id for each in asked], [each.claims for each in asked]
        attempts = {row[0]: row[1] for row in await connection.fetch(self._statements["uncounted"], lease_id, *given)}
        portion = await settle_portion(connection, self._statements, name, batch, self._origin)
        if left := [each for each in attempts if each not in portion.chains]:
            await connection.execute(self._statements["counted"], left, [attempts[each] for each in left])
        return told_of(portion)

    async def end(self, lease_id: int) -> Notification:
        """End a lease, and give back what it holds; returns what listeners are to be told.

        What stays locked for longer than `_END_SECONDS` seconds is left without a lease, and recovered by other workers.
        """
        told: list[Notification] = []
        async with self._pool.transaction() as connection:
            # First, so that a claim under way has either been seen off or is seen by the next statement.
            if not await connection.fetch(self._statements["end_lease"], lease_id):
                return Notification()  # somebody recovers its jobs
            deadline = time.monotonic() + _END_SECONDS
            while True:
                rows = await connection.fetch(self._statements["release_all"], lease_id, self._origin)
                told += [_pending(rows), await self._cancel(connection, lease_id, rows, "settle_held_slowly")]
                left = await connection.fetch(self._statements["owned"], lease_id)
                if not left or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(_END_PAUSE_SECONDS)
        if left:
            named = ", ".join(str(row[0]) for row in left[:_MOST_NAMED])
            more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
            logger.warning(
                "lease %d has ended, but others have locked the rows of %d of its jobs, which couldn't be given back and will "
                "be recovered: %s%s",
                lease_id,
                len(left),
                named,
                more,
                extra=event("store.jobs_not_returned", lease_id=lease_id, jobs=len(left)),
            )
        return merged(told)


def _pending(rows: Sequence[Row]) -> Notification:
    """Of the types that were given back."""
    return Notification(types=frozenset(row[0] for row in rows if row[0] is not None))
