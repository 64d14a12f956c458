"""The statements for leases, recovery, look-ups and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue._job import StoredState
from aioqueue.abc import Changed
from aioqueue.postgres._rows import ARCHIVED_COLUMNS, CLAIMED_COLUMNS, LIVE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._schema import Schema
    from aioqueue.postgres._source import Row

__all__ = ["changes", "operate_statements"]

_OPEN_LEASE = """INSERT INTO @schema@.lease (worker, expires_at)
VALUES ($1::text, clock_timestamp() + $2::float8 * interval '1 second') RETURNING id"""

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
    SET state = 1, lease_id = NULL, attempt = greatest(j.attempt - 1, 0), run_at = greatest(j.run_at, clock_timestamp())
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
    ORDER BY j.id FOR UPDATE"""
_OWNED_ALL = """SELECT j.id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id = $1::bigint ORDER BY j.id FOR UPDATE"""

# One expired lease goes, which fences all its jobs. The jobs are those whose lease is gone, or has expired for as long,
# found from lease to lease along the index.
_TAKE_EXPIRED = f"""WITH RECURSIVE ended AS (
    DELETE FROM @schema@.lease l WHERE l.id = (
        SELECT e.id FROM @schema@.lease e WHERE e.expires_at <= now() - $2::float8 * interval '1 second'
        ORDER BY e.expires_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING l.id
), owner AS (
    (SELECT j.lease_id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id IS NOT NULL ORDER BY j.lease_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.lease_id FROM @schema@.job j WHERE j.state = 2 AND j.lease_id > owner.lease_id ORDER BY j.lease_id LIMIT 1)
    FROM owner WHERE owner.lease_id IS NOT NULL
), lost AS MATERIALIZED (
    SELECT owner.lease_id FROM owner WHERE owner.lease_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM @schema@.lease l WHERE l.id = owner.lease_id AND l.expires_at > now() - $2::float8 * interval '1 second')
), orphan AS MATERIALIZED (
    SELECT j.id, j.started_at
    FROM lost CROSS JOIN LATERAL (
        SELECT inner_job.id, inner_job.started_at FROM @schema@.job inner_job
        WHERE inner_job.state = 2 AND inner_job.lease_id = lost.lease_id) AS j
    UNION ALL
    SELECT j.id, j.started_at FROM @schema@.job j WHERE j.state = 2 AND j.lease_id IS NULL
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $3::text, 'l', json_build_array(ended.id))::text)::text
        AS done
    FROM ended WHERE $3::text IS NOT NULL
)
SELECT (SELECT ended.id FROM ended LEFT JOIN told ON true LIMIT 1), found.*
FROM (SELECT) AS once LEFT JOIN LATERAL (
    SELECT {CLAIMED_COLUMNS} FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT id FROM orphan ORDER BY started_at NULLS FIRST, id LIMIT $1::integer))
    ORDER BY j.started_at NULLS FIRST, j.id
) AS found ON true"""

_FETCH = f"""SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.id = ANY($1::uuid[])
UNION ALL SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j WHERE j.id = ANY($1::uuid[])"""

# Inserted first, deleted second: where a unique key is held by now, the archive's row stays.
_RETRY = """WITH wanted AS MATERIALIZED (
    SELECT a.* FROM @schema@.archive a WHERE a.id = ANY($1::uuid[]) AND a.state + 0 IN (6, 7) ORDER BY a.id FOR UPDATE
), revived AS (
    INSERT INTO @schema@.job (id, type, priority, run_at, state, claims, max_attempts, timeout, chain_id, position, key,
                              unique_key, created_at, started_at, trace, tags, retry, metadata, payload, errors)
    SELECT id, type, priority, clock_timestamp(), 1, claims, max_attempts, timeout, chain_id, position, key,
           unique_key, created_at, started_at, trace, tags, retry, metadata, payload, errors
    FROM wanted ORDER BY unique_key NULLS FIRST, id
    ON CONFLICT DO NOTHING RETURNING id, type
), gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM revived)) RETURNING a.id
)
SELECT given.id, (SELECT r.type FROM revived r WHERE r.id = given.id) AS changed,
       (SELECT j.state FROM @schema@.job j WHERE j.id = given.id) AS live,
       EXISTS (SELECT FROM @schema@.archive a WHERE a.id = given.id) AS archived
FROM unnest($1::uuid[]) AS given(id)"""

_RUN_NOW = """WITH wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY($1::uuid[]) AND j.state + 0 = 1 ORDER BY j.id FOR UPDATE
), changed AS (
    UPDATE @schema@.job j SET run_at = least(j.run_at, clock_timestamp())
    WHERE j.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING j.id, j.type
)
SELECT given.id, (SELECT c.type FROM changed c WHERE c.id = given.id) AS changed,
       (SELECT j.state FROM @schema@.job j WHERE j.id = given.id) AS live,
       EXISTS (SELECT FROM @schema@.archive a WHERE a.id = given.id) AS archived
FROM unnest($1::uuid[]) AS given(id)"""

_DELETE = """WITH wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY($1::uuid[]) AND j.state + 0 <> 2 ORDER BY j.id FOR UPDATE
), deleted AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING j.id, j.type
), forgotten AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY($1::uuid[]) RETURNING a.id, a.type
)
SELECT given.id,
       coalesce((SELECT d.type FROM deleted d WHERE d.id = given.id LIMIT 1),
                (SELECT f.type FROM forgotten f WHERE f.id = given.id LIMIT 1)) AS changed,
       (SELECT j.state FROM @schema@.job j WHERE j.id = given.id) AS live,
       EXISTS (SELECT FROM @schema@.archive a WHERE a.id = given.id) AS archived
FROM unnest($1::uuid[]) AS given(id)"""

_NOTIFY = "SELECT pg_catalog.pg_notify('@channel@', $1::text)::text"
_SUBSCRIBE = """INSERT INTO @schema@.subscriber (id, expires_at)
VALUES ($1::uuid, clock_timestamp() + $2::float8 * interval '1 second')
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at"""
_UNSUBSCRIBE = "DELETE FROM @schema@.subscriber WHERE id = $1::uuid OR expires_at < now() - interval '1 hour'"


def operate_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "open_lease": _OPEN_LEASE,
        "renew": _RENEW,
        "end_lease": _END_LEASE,
        "release": _GIVE_BACK.replace("@owned@", _OWNED_CLAIMS),
        "release_all": _GIVE_BACK.replace("@owned@", _OWNED_ALL),
        "take_expired": _TAKE_EXPIRED,
        "fetch": _FETCH,
        "retry": _RETRY,
        "run_now": _RUN_NOW,
        "delete": _DELETE,
        "notify": _NOTIFY,
        "subscribe": _SUBSCRIBE,
        "unsubscribe": _UNSUBSCRIBE,
    }
    return {name: schema.render(template) for name, template in templates.items()}


def changes(rows: Sequence[Row], ids: Sequence[UUID]) -> list[Changed]:
    """What became of each, for retry, run_now and delete."""
    found = {row[0]: row for row in rows}
    results: list[Changed] = []
    for job_id in ids:
        _, changed, live, archived = found[job_id]
        if changed is not None:
            results.append(Changed.DONE)
        elif live == StoredState.RUNNING:
            results.append(Changed.RUNNING)
        elif live is None and not archived:
            results.append(Changed.NOT_FOUND)
        else:
            results.append(Changed.WRONG_STATE)
    return results
