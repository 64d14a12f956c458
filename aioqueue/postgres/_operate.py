"""What operators do with jobs: retry, run now, delete."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioqueue.errors import StoreContended
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._notifications import due_note, notify_statements
from aioqueue.postgres._operate_prune import prune, prune_statements
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._answers import Pruned

__all__ = ["Changes", "Operator", "operate_statements"]

_CONTENDED_SECONDS = 0.2
"""Between two tries, where somebody's open transaction has locked one of the rows."""

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
                              unique_key, created_at, trace, tags, retry, metadata, payload, errors)
    SELECT id, type, least(greatest(priority, 1), 4), clock_timestamp(), 1, claims, max_attempts, timeout, chain_id,
           position, key, unique_key, created_at, trace, tags, retry, metadata, payload, errors
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


def operate_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"retry": _RETRY, "run_now": _RUN_NOW, "delete": _DELETE}
    return (
        {name: schema.render(template) for name, template in templates.items()}
        | prune_statements(schema)
        | notify_statements(schema)
    )


@dataclass(frozen=True, slots=True)
class Changes:
    """What a call has done.

    Attributes:
        results: One each, in order.
        ids: The jobs that were changed.
        types: Their types.
    """

    results: list[Changed]
    ids: frozenset[UUID]
    types: frozenset[str]


class Operator:
    """Changes jobs, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes of jobs that are due; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = operate_statements(schema)
        self._origin = origin

    async def change(self, verb: Literal["retry", "run_now", "delete"], ids: Sequence[UUID]) -> Changes:
        """Do one of the three. What meets somebody else's lock is repeated, for as long as a statement may take.

        Raises:
            StoreContended: A row was locked for all that time.
        """
        deadline = time.monotonic() + self._pool.source.timeout
        while True:
            try:
                return await self._try_to_change(verb, ids)
            except StoreContended:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_CONTENDED_SECONDS)

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> Pruned:
        """Remove one portion of what finished long ago."""
        return await prune(self._pool, self._statements["prune"], state, older_than, types, limit, cursor)

    async def _try_to_change(self, verb: str, ids: Sequence[UUID]) -> Changes:
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_BRIEFLY)
            rows: Sequence[Row] = await connection.fetch(self._statements[verb], list(ids))
            changed = [row for row in rows if row[1] is not None]
            types = frozenset(row[1] for row in changed)
            if verb != "delete" and self._origin is not None and (note := due_note(types, 0.0, self._origin)) is not None:
                await connection.fetch(self._statements["notify"], note)
        return Changes(_results(rows, ids), frozenset(row[0] for row in changed), types)


def _results(rows: Sequence[Row], ids: Sequence[UUID]) -> list[Changed]:
    """Say what became of each."""
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
