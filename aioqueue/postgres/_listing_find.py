"""A job by its key: that of the chain which holds it, or of the newest one that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._rows import ARCHIVED_COLUMNS, LIVE_COLUMNS, job_snapshot
from aioqueue.store_rules._unique_keys import unique_hash

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioqueue.postgres._connections_driver import Reader
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Job

__all__ = ["find", "find_statements"]

_MOST_STEPS = 5_000
"""Rows with a key, the newest, among which chains are looked for that go on, or whose first step is gone."""

# Looked for in this order, each only where the one before found nothing: who holds the key; the newest live job that is the
# first of its chain, and then whatever goes on since it was enqueued; the same in the archive. Ids begin with their time, so a
# chain that is newer than a job has no step whose id is smaller than the job's.
_FIND = f"""WITH holder AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j
    WHERE j.unique_key IS NOT NULL AND j.unique_key = ANY($3::uuid[]) AND NOT (j.until_started AND j.claims > 0)
    ORDER BY coalesce(j.chain_id, j.id) DESC LIMIT 1
), first AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j
    WHERE NOT EXISTS (SELECT FROM holder) AND j.key = $2::text AND j.chain_id IS NULL AND j.type = ANY($1::text[])
    ORDER BY j.key DESC, j.id DESC LIMIT 1
), later AS MATERIALIZED (
    SELECT j.id, j.chain_id FROM (
        SELECT j.id, j.chain_id, j.type FROM @schema@.job j
        WHERE NOT EXISTS (SELECT FROM holder) AND (j.key) <= ($2::text)
          AND (j.key, j.id) > ($2::text, coalesce((SELECT id FROM first), '00000000-0000-0000-0000-000000000000'))
        ORDER BY j.key DESC, j.id DESC LIMIT {_MOST_STEPS}) AS j
    WHERE j.chain_id IS NOT NULL
      AND coalesce((SELECT a.type FROM @schema@.archive a WHERE a.id = j.chain_id LIMIT 1), j.type) = ANY($1::text[])
    ORDER BY j.chain_id DESC LIMIT 1
), live AS MATERIALIZED (
    SELECT found.id FROM (
        SELECT id, id AS chain_id FROM holder
        UNION ALL SELECT id, id FROM first
        UNION ALL SELECT id, chain_id FROM later) AS found
    ORDER BY found.chain_id DESC LIMIT 1
), ended AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a
    WHERE NOT EXISTS (SELECT FROM live) AND a.key = $2::text AND a.chain_id IS NULL AND a.type = ANY($1::text[])
    ORDER BY a.key DESC, a.id DESC LIMIT 1
), headless AS MATERIALIZED (
    SELECT step.chain_id AS id FROM (
        SELECT DISTINCT a.chain_id FROM (
            SELECT a.chain_id FROM @schema@.archive a
            WHERE NOT EXISTS (SELECT FROM live) AND (a.key) <= ($2::text)
              AND (a.key, a.id) > ($2::text, coalesce((SELECT id FROM ended), '00000000-0000-0000-0000-000000000000'))
            ORDER BY a.key DESC, a.id DESC LIMIT {_MOST_STEPS}) AS a
        WHERE a.chain_id IS NOT NULL) AS step
    WHERE NOT EXISTS (SELECT FROM @schema@.archive a WHERE a.id = step.chain_id)
      AND (SELECT a.type FROM @schema@.archive a WHERE a.chain_id = step.chain_id ORDER BY a.position DESC LIMIT 1)
          = ANY($1::text[])
    ORDER BY step.chain_id DESC LIMIT 1
), chain AS MATERIALIZED (
    SELECT found.id FROM (SELECT id FROM ended UNION ALL SELECT id FROM headless) AS found ORDER BY found.id DESC LIMIT 1
), last AS MATERIALIZED (
    SELECT coalesce(step.id, chain.id) AS id FROM chain
    LEFT JOIN LATERAL (
        SELECT a.id FROM @schema@.archive a WHERE a.chain_id = chain.id ORDER BY a.position DESC LIMIT 1) AS step ON true
)
SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.id = (SELECT id FROM live)
UNION ALL
SELECT found.* FROM (
    SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j WHERE j.id = (SELECT id FROM last) LIMIT 1) AS found"""


def find_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"find": schema.render(_FIND)}


async def find(reader: Reader, statement: str, types: Collection[str], key: str) -> Job | None:
    """Show the live or last step of the chain with this key, as `aioqueue.abc.Store.find` says."""
    names = sorted(set(types))
    rows = await reader.read(statement, names, key, [unique_hash(name, key) for name in names])
    return job_snapshot(rows[0]) if rows else None
