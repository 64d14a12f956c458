"""What operators do with jobs: retry, run now, delete. Any step's id stands for its chain."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from aioqueue.errors import StoreContended
from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._notifications import due_note, notify_statements
from aioqueue.postgres._operate_prune import prune, prune_statements
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._answers import Pruned

__all__ = ["Changes", "Operator", "operate_statements"]

T = TypeVar("T")

_CONTENDED_SECONDS = 0.2
"""Between two tries, where somebody's open transaction has locked one of the rows."""

_PORTION = 1_000
"""Archived steps of chains that one transaction removes beside the last ones: a statement may take so many seconds only."""

# One row for each id that was given. Joined, not looked up for each: those that were changed are a list without an index.
_BECAME = """SELECT ends.asked, ends.id, changed.type,
       (SELECT j.state FROM @schema@.job j WHERE j.id = ends.live) AS live, ends.last IS NOT NULL AS archived"""

# Inserted first, deleted second: where a unique key is held by now, the archive's row stays.
_RETRY = f"""WITH {ENDS}, wanted AS MATERIALIZED (
    SELECT a.* FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT last FROM ends)) AND a.state + 0 IN (6, 7)
    ORDER BY a.id FOR UPDATE
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
{_BECAME} FROM ends LEFT JOIN revived AS changed ON changed.id = ends.last"""

_RUN_NOW = f"""WITH {ENDS}, wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT live FROM ends)) AND j.state + 0 = 1 ORDER BY j.id FOR UPDATE
), changed AS (
    UPDATE @schema@.job j SET run_at = least(j.run_at, clock_timestamp())
    WHERE j.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING j.id, j.type
)
{_BECAME} FROM ends LEFT JOIN changed ON changed.id = ends.live"""

# The live or last step is locked first: whoever retries or claims it meanwhile keeps its chain.
_DELETE = f"""WITH {ENDS}, wanted AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT live FROM ends)) AND j.state + 0 <> 2 ORDER BY j.id FOR UPDATE
), last AS MATERIALIZED (
    SELECT a.id, a.type FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT last FROM ends)) ORDER BY a.id FOR UPDATE
), deleted AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM wanted)) RETURNING j.id, j.type
), changed AS MATERIALIZED (
    SELECT DISTINCT ON (ends.id) ends.id, gone.type FROM ends
    JOIN (SELECT id, type FROM deleted UNION ALL SELECT id, type FROM last) AS gone ON gone.id = coalesce(ends.live, ends.last)
    ORDER BY ends.id
), earlier AS MATERIALIZED (
    SELECT a.id FROM @schema@.archive a WHERE a.chain_id = ANY(ARRAY(SELECT id FROM changed)) LIMIT $2::integer
), forgotten AS (
    DELETE FROM @schema@.archive a
    WHERE a.id = ANY(ARRAY(SELECT id FROM changed UNION ALL SELECT id FROM last UNION ALL SELECT id FROM earlier))
)
{_BECAME}, (SELECT count(*) FROM earlier) FROM ends LEFT JOIN changed ON changed.id = ends.id"""

# Of chains whose ends are gone. One that begins anew is left alone.
_DELETE_STEPS = """WITH gone AS (
    DELETE FROM @schema@.archive a WHERE a.id = ANY(ARRAY(
        SELECT step.id FROM unnest($1::uuid[]) AS chain(id)
        CROSS JOIN LATERAL (SELECT a.id FROM @schema@.archive a WHERE a.chain_id = chain.id LIMIT $2::integer) AS step
        WHERE NOT EXISTS (SELECT FROM @schema@.job j WHERE j.chain_id = chain.id)
          AND NOT EXISTS (SELECT FROM @schema@.job j WHERE j.id = chain.id)
        LIMIT $2::integer)) RETURNING 1
)
SELECT count(*) FROM gone"""


def operate_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"retry": _RETRY, "run_now": _RUN_NOW, "delete": _DELETE, "delete_steps": _DELETE_STEPS}
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
        chains: The chains that were changed.
        types: The types of their live or last steps.
        more: Whether there may be steps left of chains that were deleted: `Operator.remove_rest` removes those.
    """

    results: list[Changed]
    chains: frozenset[UUID]
    types: frozenset[str]
    more: bool = False


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
        return await self._repeated(lambda: self._try_to_change(verb, ids))

    async def remove_rest(self, chains: Collection[UUID]) -> None:
        """Remove the steps that deleted chains had behind them, in portions. If that's interrupted, another delete does it.

        Raises:
            StoreContended: A row was locked for all the time that a statement may take.
        """
        while await self._repeated(lambda: self._try_to_remove_steps(chains)) == _PORTION:
            pass

    async def _repeated(self, change: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + self._pool.source.timeout
        while True:
            try:
                return await change()
            except StoreContended:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_CONTENDED_SECONDS)

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None
    ) -> tuple[Pruned, frozenset[UUID]]:
        """Remove one portion of what finished long ago; returns the chains of which it was the last step, too."""
        return await prune(self._pool, self._statements["prune"], state, older_than, types, limit, cursor)

    async def _try_to_change(self, verb: str, ids: Sequence[UUID]) -> Changes:
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_BRIEFLY)
            limit = [_PORTION] if verb == "delete" else []
            rows: Sequence[Row] = await connection.fetch(self._statements[verb], list(ids), *limit)
            changed = [row for row in rows if row[2] is not None]
            types = frozenset(row[2] for row in changed)
            if verb != "delete" and self._origin is not None and (note := due_note(types, 0.0, self._origin)) is not None:
                await connection.fetch(self._statements["notify"], note)
        more = verb == "delete" and any(row[5] == _PORTION for row in rows)
        return Changes(_results(rows, ids), frozenset(row[1] for row in changed), types, more)

    async def _try_to_remove_steps(self, chains: Collection[UUID]) -> int:
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_BRIEFLY)
            ((removed,),) = await connection.fetch(self._statements["delete_steps"], list(chains), _PORTION)
        return int(removed)


def _results(rows: Sequence[Row], ids: Sequence[UUID]) -> list[Changed]:
    """Say what became of each."""
    found = {row[0]: row for row in rows}
    results: list[Changed] = []
    for job_id in ids:
        _, _, changed, live, archived, *_ = found[job_id]
        if changed is not None:
            results.append(Changed.DONE)
        elif live == StoredState.RUNNING:
            results.append(Changed.RUNNING)
        elif live is None and not archived:
            results.append(Changed.NOT_FOUND)
        else:
            results.append(Changed.WRONG_STATE)
    return results
