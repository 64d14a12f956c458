"""What a job waits for, and who waits for a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.store_rules._states import shown_state
from aioqueue.vocabulary._blockers import Blocker

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Reader, Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["blockers_statements", "list_blockers", "list_dependents"]

_LIST = """SELECT edge.job_id, edge.ordinal, edge.chain_id, edge.settled, edge.resolved,
       step.type, step.state, step.archived, step.due, step.blocked
FROM (@edges@) AS edge
LEFT JOIN LATERAL (
    SELECT found.* FROM (
        (SELECT j.type, j.state, false AS archived, j.run_at <= statement_timestamp() AS due, j.open_blockers > 0 AS blocked,
                2147483647 AS position
         FROM @schema@.job j WHERE j.chain_id = edge.chain_id)
        UNION ALL
        (SELECT j.type, j.state, false, j.run_at <= statement_timestamp(), j.open_blockers > 0, 2147483647
         FROM @schema@.job j WHERE j.id = edge.chain_id)
        UNION ALL
        (SELECT a.type, a.state, true, false, false, a.position FROM @schema@.archive a
         WHERE a.chain_id = edge.chain_id ORDER BY a.position DESC LIMIT 1)
        UNION ALL
        (SELECT a.type, a.state, true, false, false, a.position FROM @schema@.archive a
         WHERE a.id = edge.chain_id LIMIT 1)) AS found
    ORDER BY found.position DESC LIMIT 1) AS step ON true
ORDER BY edge.job_id, edge.ordinal"""
_BLOCKERS = """SELECT b.* FROM @schema@.blocker b WHERE b.job_id = $1::uuid AND b.ordinal > $2::integer
    ORDER BY b.job_id, b.ordinal LIMIT $3::integer"""
# The rows of jobs that have been told, or are gone, are passed over.
_DEPENDENTS = """SELECT b.* FROM @schema@.blocker b
    WHERE b.chain_id = $1::uuid AND NOT b.resolved AND EXISTS (SELECT FROM @schema@.job j WHERE j.id = b.job_id)
    ORDER BY b.chain_id, b.job_id, b.ordinal LIMIT $2::integer"""


def blockers_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {
        "list_blockers": schema.render(_LIST.replace("@edges@", _BLOCKERS)),
        "list_dependents": schema.render(_LIST.replace("@edges@", _DEPENDENTS)),
    }


async def list_blockers(reader: Reader, statement: str, job_id: UUID, limit: int, after: int) -> list[Blocker]:
    """Show what a job waits for, as `aioqueue.abc.Store.list_blockers` says."""
    return [_blocker(row) for row in await reader.read(statement, job_id, after, limit)]


async def list_dependents(reader: Reader, statement: str, chain_id: UUID, limit: int) -> list[Blocker]:
    """Show who waits for a chain, as `aioqueue.abc.Store.list_dependents` says."""
    return [_blocker(row) for row in await reader.read(statement, chain_id, limit)]


def _blocker(row: Row) -> Blocker:
    job_id, ordinal, chain_id, settled, resolved, type_name, state, archived, due, blocked = row
    return Blocker(
        job_id=job_id,
        ordinal=ordinal,
        chain_id=chain_id,
        settled=settled,
        resolved=resolved,
        type=type_name,
        state=None if archived is None else shown_state(state, archived=archived, due=due, blocked=blocked),
    )
