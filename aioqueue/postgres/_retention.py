"""Removing chains once they're old enough: found along the times of their ends, removed whole, by one process at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.postgres._connections_halving import in_halves
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._events_log import logged
from aioqueue.postgres._rows_beside import without_beside
from aioqueue.postgres._webhooks_ends import dropped_deliveries
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._listing import IdPage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Retention", "retention_statements"]

_MOST_STEPS = 1_000
"""Steps before their ends that one transaction removes: a statement may take so many seconds only."""

_MOST_PORTIONS = 1_000

_LONGEST_SECONDS = 3e9
"""Times of all ages stay within those that the database knows."""

# By one order for all of them, so that one cursor says how far it has come: each source is an index, read from there. Rows that
# say themselves how long they're kept come by that time, and are passed by among the others of their state. A continued step
# counts where the end of its chain is gone: only then there's none behind it.
_FIND = f"""WITH looked AS MATERIALIZED (
    SELECT source.* FROM (
        (SELECT a.id, a.chain_id, a.position, a.state, a.purge_at AS at, true AS counts FROM @schema@.archive a
         WHERE a.purge_at IS NOT NULL AND a.purge_at <= now() AND (a.purge_at, a.id) > ($3::text::timestamptz, $4::uuid)
         ORDER BY a.purge_at, a.id LIMIT $5::integer)
        UNION ALL
        SELECT found.* FROM unnest($1::smallint[], $2::float8[]) AS given(state, seconds)
        CROSS JOIN LATERAL (SELECT make_interval(secs => given.seconds) AS age) AS old
        CROSS JOIN LATERAL (
            SELECT a.id, a.chain_id, a.position, a.state, a.finished_at + old.age, a.purge_at IS NULL FROM @schema@.archive a
            WHERE a.state = given.state AND a.finished_at <= now() - old.age
              AND (a.finished_at, a.id) > ($3::text::timestamptz - old.age, $4::uuid)
            ORDER BY a.finished_at, a.id LIMIT $5::integer) AS found
    ) AS source ORDER BY source.at, source.id, source.counts DESC LIMIT $5::integer
)
SELECT ARRAY(SELECT coalesce(l.chain_id, l.id) FROM looked l
             WHERE l.counts AND (l.state <> {StoredState.CONTINUED:d} OR (
                 (SELECT true FROM @schema@.job j WHERE j.chain_id = coalesce(l.chain_id, l.id) LIMIT 1) IS NULL
                 AND (SELECT true FROM @schema@.archive s
                      WHERE s.chain_id = coalesce(l.chain_id, l.id) AND s.position > l.position LIMIT 1) IS NULL))
             ORDER BY l.at, l.id),
       (SELECT count(*) FROM looked),
       (SELECT to_json(at) #>> '{{}}' || ' ' || id FROM looked ORDER BY at DESC, id DESC LIMIT 1)"""

_LOGGED = logged(f"SELECT '{EventKind.DELETED}', id, coalesce(chain_id, id), type, attempt, claims FROM removed")
# All rows of a chain are locked before any is removed, so that one of which somebody holds a row stays whole, and nobody waits.
# Where there are more steps than that, some go, and the end stays: it's what the next ones are found by.
_PURGE = f"""WITH ended AS MATERIALIZED (
    SELECT coalesce((SELECT a.id FROM @schema@.archive a WHERE a.chain_id = given.id ORDER BY a.position DESC LIMIT 1),
                    given.id) AS last
    FROM unnest($1::uuid[]) AS given(id)
    WHERE (SELECT true FROM @schema@.job j WHERE j.chain_id = given.id LIMIT 1) IS NULL
      AND (SELECT true FROM @schema@.job j WHERE j.id = given.id LIMIT 1) IS NULL
), old AS MATERIALIZED (
    SELECT a.id, coalesce(a.chain_id, a.id) AS chain_id, a.position FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT last FROM ended))
      AND coalesce(a.purge_at, a.finished_at + make_interval(secs => (
              SELECT given.seconds FROM unnest($2::smallint[], $3::float8[]) AS given(state, seconds)
              WHERE given.state = a.state + 0))) <= now()
    FOR UPDATE SKIP LOCKED
), step AS MATERIALIZED (
    (SELECT s.id, old.chain_id FROM old
     CROSS JOIN LATERAL (SELECT s.id FROM @schema@.archive s WHERE s.chain_id = old.chain_id AND s.id <> old.id OFFSET 0) AS s
     LIMIT $4::integer)
    UNION ALL
    SELECT f.id, old.chain_id FROM old
    CROSS JOIN LATERAL (SELECT f.id FROM @schema@.archive f WHERE f.id = old.chain_id OFFSET 0) AS f
    WHERE old.chain_id <> old.id
), free AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM step)) FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT chain_id FROM step WHERE id NOT IN (SELECT id FROM free)
), whole AS MATERIALIZED (
    SELECT old.id, old.chain_id FROM old LEFT JOIN (
        SELECT chain_id, count(*) AS steps FROM step GROUP BY chain_id) AS seen ON seen.chain_id = old.chain_id
    WHERE old.chain_id NOT IN (SELECT chain_id FROM held)
      AND ((SELECT count(*) FROM step) < $4::integer OR coalesce(seen.steps, 0) >= old.position)
), gone AS MATERIALIZED (
    SELECT id FROM whole UNION ALL SELECT id FROM step WHERE chain_id NOT IN (SELECT chain_id FROM held)
), removed AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM gone))
    RETURNING a.id, a.chain_id, a.type, a.attempt, a.claims
), {_LOGGED}, {dropped_deliveries("SELECT chain_id FROM whole")}, unneeded AS (
    DELETE FROM @schema@.blocker b WHERE b.job_id = ANY(ARRAY(SELECT id FROM gone))
), {without_beside("SELECT id FROM gone")}
SELECT ARRAY(SELECT chain_id FROM whole),
       ARRAY(SELECT chain_id FROM old WHERE chain_id NOT IN (SELECT chain_id FROM held UNION ALL SELECT chain_id FROM whole))"""

# Looked at before it's written, so that nobody's lock is waited for.
_DUTY = """WITH free AS MATERIALIZED (
    SELECT d.name FROM @schema@.duty d WHERE d.name = $1::text AND (d.holder = $2::text OR d.expires_at <= clock_timestamp())
    FOR UPDATE SKIP LOCKED
), kept AS (
    UPDATE @schema@.duty d SET holder = $2::text, expires_at = clock_timestamp() + $3::float8 * interval '1 second'
    WHERE d.name = ANY(ARRAY(SELECT name FROM free)) RETURNING 1
), taken AS (
    INSERT INTO @schema@.duty (name, holder, expires_at)
    SELECT $1::text, $2::text, clock_timestamp() + $3::float8 * interval '1 second'
    WHERE $3::float8 > 0 AND NOT EXISTS (SELECT FROM @schema@.duty d WHERE d.name = $1::text)
    ON CONFLICT DO NOTHING RETURNING 1
)
SELECT $3::float8 > 0 AND (EXISTS (SELECT FROM kept) OR EXISTS (SELECT FROM taken))"""

_BEGIN = f"-infinity {UUID(int=0)}"


def retention_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"find_old": _FIND, "purge": _PURGE, "take_duty": _DUTY}
    return {name: schema.render(template) for name, template in templates.items()}


class Retention:
    """Looks for what is old enough, and removes it, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
    """

    def __init__(self, pool: Pool, schema: Schema) -> None:
        self._pool = pool
        self._statements = retention_statements(schema)

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        """Take or keep what one process at a time does, as `aioqueue.abc.SupportsRetention` says."""
        ((taken,),) = await self._pool.fetch(self._statements["take_duty"], name, holder, min(duration, _LONGEST_SECONDS))
        return bool(taken)

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None) -> IdPage:
        """Give one portion of the chains that are old enough, as `aioqueue.abc.SupportsRetention` says."""
        at, _, after = (cursor or _BEGIN).rpartition(" ")
        ((found, looked, last),) = await self._pool.read(self._statements["find_old"], *_ages(ages), at, UUID(after), limit)
        return IdPage(tuple(dict.fromkeys(found)), last if looked == limit else None)

    async def purge(self, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> list[UUID]:
        """Remove chains, as `aioqueue.abc.SupportsRetention` says. One of which something can't be removed stays."""
        removed: list[UUID] = []
        left = list(dict.fromkeys(chain_ids))
        for _ in range(_MOST_PORTIONS):
            if not left:
                break
            rest: list[UUID] = []
            gone: list[UUID] = []

            async def purge(some: Sequence[UUID], rest: list[UUID] = rest, gone: list[UUID] = gone) -> None:
                ((whole, more),) = await connection.fetch(self._statements["purge"], list(some), *_ages(ages), _MOST_STEPS)
                gone += whole
                rest += more

            async with self._pool.transaction() as connection:
                await connection.execute(WAIT_BRIEFLY)
                await in_halves(connection, left, purge)
            removed += gone
            left = rest
        return removed


def _ages(ages: Mapping[StoredState, float]) -> tuple[list[int], list[float]]:
    return [int(state) for state in ages], [min(max(seconds, 0.0), _LONGEST_SECONDS) for seconds in ages.values()]
