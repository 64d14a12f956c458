"""The statements for look-ups and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.abc import Changed
from aioqueue.postgres._rows import ARCHIVED_COLUMNS, LIVE_COLUMNS
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["changes", "operate_statements"]

_FETCH = f"""SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.id = ANY($1::uuid[])
UNION ALL SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j WHERE j.id = ANY($1::uuid[])"""

# One row for each id that was given. Joined, not looked up for each: those who changed are a list without an index.
_BECAME = """SELECT given.id, changed.type,
       (SELECT j.state FROM @schema@.job j WHERE j.id = given.id) AS live,
       EXISTS (SELECT FROM @schema@.archive a WHERE a.id = given.id) AS archived
FROM unnest($1::uuid[]) AS given(id)"""

# Inserted first, deleted second: where a unique key is held by now, the archive's row stays.
_RETRY = f"""WITH wanted AS MATERIALIZED (
    SELECT a.* FROM @schema@.archive a WHERE a.id = ANY($1::uuid[]) AND a.state + 0 IN (6, 7) ORDER BY a.id FOR UPDATE
), revived AS (
    INSERT INTO @schema@.job (id, type, priority, run_at, state, claims, max_attempts, timeout, chain_id, position, key,
                              unique_key, created_at, started_at, trace, tags, retry, metadata, payload, errors)
    SELECT id, type, least(greatest(priority, 1), 4), clock_timestamp(), 1, claims, max_attempts, timeout, chain_id,
           position, key, unique_key, created_at, started_at, trace, tags, retry, metadata, payload, errors
    FROM wanted ORDER BY unique_key NULLS FIRST, id
    ON CONFLICT DO NOTHING RETURNING id, type
), gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM revived)) RETURNING a.id
)
{_BECAME} LEFT JOIN revived AS changed ON changed.id = given.id"""

_RUN_NOW = f"""WITH wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY($1::uuid[]) AND j.state + 0 = 1 ORDER BY j.id FOR UPDATE
), changed AS (
    UPDATE @schema@.job j SET run_at = least(j.run_at, clock_timestamp())
    WHERE j.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING j.id, j.type
)
{_BECAME} LEFT JOIN changed ON changed.id = given.id"""

_DELETE = f"""WITH wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY($1::uuid[]) AND j.state + 0 <> 2 ORDER BY j.id FOR UPDATE
), deleted AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING j.id, j.type
), forgotten AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY($1::uuid[]) RETURNING a.id, a.type
)
{_BECAME} LEFT JOIN (
    SELECT DISTINCT ON (id) id, type FROM (SELECT id, type FROM deleted UNION ALL SELECT id, type FROM forgotten) AS gone
    ORDER BY id
) AS changed ON changed.id = given.id"""

_NOTIFY = "SELECT pg_catalog.pg_notify('@channel@', $1::text)::text"
_SUBSCRIBE = """INSERT INTO @schema@.subscriber (id, expires_at)
VALUES ($1::uuid, clock_timestamp() + $2::float8 * interval '1 second')
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at"""
_UNSUBSCRIBE = "DELETE FROM @schema@.subscriber WHERE id = $1::uuid OR expires_at < now() - interval '1 hour'"


def operate_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
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
