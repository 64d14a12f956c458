"""How the chains ended that claimed jobs have waited for: looked up by one statement, for those jobs that are marked."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.runtime._log import event
from aioqueue.store_rules._causes import cause_of
from aioqueue.vocabulary._blockers import ChainEnd, EndedBlocker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence
    from typing import Any
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["claim_blockers_statements", "with_blockers"]

logger = logging.getLogger("aioqueue.postgres")

# Each output once, however many of the jobs have waited for it. Where how a chain ended is forgotten, such as by a retry of it,
# an end of it may be in the archive.
_BLOCKERS = """WITH edge AS MATERIALIZED (
    SELECT b.job_id, b.ordinal, b.chain_id, b.places::text AS places,
           row_number() OVER (PARTITION BY b.chain_id ORDER BY b.job_id, b.ordinal) = 1 AS first
    FROM @schema@.blocker b WHERE b.job_id = ANY($1::uuid[])
)
SELECT edge.job_id, edge.chain_id, edge.places, coalesce(e.state, last.state), coalesce(e.cause, ''),
       CASE WHEN edge.first THEN CASE WHEN e.chain_id IS NULL THEN last.output::text ELSE e.output::text END END
FROM edge LEFT JOIN @schema@.chain_end e ON e.chain_id = edge.chain_id
LEFT JOIN LATERAL (
    SELECT step.state, step.output FROM (
        (SELECT a.state, a.output, a.position FROM @schema@.archive a
         WHERE e.chain_id IS NULL AND a.chain_id = edge.chain_id ORDER BY a.position DESC LIMIT 1)
        UNION ALL
        (SELECT a.state, a.output, a.position FROM @schema@.archive a
         WHERE e.chain_id IS NULL AND a.id = edge.chain_id AND a.chain_id IS NULL LIMIT 1)) AS step
    ORDER BY step.position DESC LIMIT 1) AS last ON true
ORDER BY edge.job_id, edge.ordinal"""
_ENDS = frozenset(ChainEnd)


def claim_blockers_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"claim_blockers": schema.render(_BLOCKERS)}


async def with_blockers(
    fetch: Callable[..., Coroutine[Any, Any, Sequence[Row]]],
    statement: str,
    jobs: list[ClaimedJob],
    marked: Collection[UUID],
) -> list[ClaimedJob]:
    """Fill in what marked ones have waited for.

    Arguments:
        fetch: Runs the statement.
        statement: `claim_blockers`.
        jobs: What was taken.
        marked: The ids of those that are marked.

    Returns:
        The jobs in their order. One for which it can't be looked up is left out: it's found again like those of a claim whose
        answer was lost.

    Raises:
        StoreError: It can be looked up for none, and all are marked.
    """
    try:
        rows = await fetch(statement, list(marked))
    except StoreError as error:
        rows, left_out = await _one_by_one(fetch, statement, marked, error)
        jobs = [job for job in jobs if job.id not in left_out]
        if not jobs:
            raise
    outputs = {row[1]: row[5] for row in rows if row[5] is not None}
    blockers: dict[UUID, list[EndedBlocker]] = {}
    for job_id, chain_id, places, state, cause, _ in rows:
        end = ChainEnd(state) if state in _ENDS else ChainEnd.DELETED
        completed = end is ChainEnd.COMPLETED
        output = (outputs.get(chain_id) or "null").encode() if completed else None
        cause = "" if completed else cause or cause_of(end, None, chain_id)
        blockers.setdefault(job_id, []).append(EndedBlocker(chain_id, end, output, cause, places.encode()))
    return [replace(job, blockers=tuple(blockers[job.id])) if job.id in blockers else job for job in jobs]


async def _one_by_one(
    fetch: Callable[..., Coroutine[Any, Any, Sequence[Row]]], statement: str, marked: Collection[UUID], refused: StoreError
) -> tuple[list[Row], set[UUID]]:
    """Look up each alone, so that one can't hold up the others; returns what was found, and for which nothing was.

    Where the database isn't there, or its schema isn't ours, no more are tried.
    """
    rows: list[Row] = []
    left_out = set(marked)
    if isinstance(refused, (StoreUnavailable, StoreIncompatible)):
        return rows, left_out
    for job_id in marked:
        try:
            rows += await fetch(statement, [job_id])
        except (StoreUnavailable, StoreIncompatible):
            break
        except StoreError as error:
            logger.error(
                "what job %s has waited for can't be looked up: %s; it isn't run, and is found again later",
                job_id,
                error,
                extra=event("store.outputs_not_read", job_id=str(job_id)),
            )
        else:
            left_out.discard(job_id)
    return rows, left_out
