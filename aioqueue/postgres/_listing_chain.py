"""Chains: the live or last step by any step's id, and all steps in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._progress_read import BESIDE, whole_snapshot
from aioqueue.postgres._rows import ARCHIVED_COLUMNS, LIVE_COLUMNS, job_snapshot
from aioqueue.postgres._rows_chain import ENDS
from aioqueue.store_rules._cursors import read_position_cursor, write_position_cursor
from aioqueue.vocabulary._listing import Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Reader
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Job

__all__ = ["chain_statements", "fetch_ends", "list_chain"]

_FETCH_ENDS = f"""WITH {ENDS}
SELECT ends.asked, found.* FROM ends CROSS JOIN LATERAL (
    SELECT {LIVE_COLUMNS}, {BESIDE} FROM @schema@.job j WHERE j.id = ends.live OFFSET 0) AS found
UNION ALL SELECT ends.asked, found.* FROM ends CROSS JOIN LATERAL (
    SELECT {ARCHIVED_COLUMNS}, {BESIDE} FROM @schema@.archive j WHERE j.id = ends.last LIMIT 1) AS found"""

_LIST_CHAIN = f"""SELECT * FROM (
    SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.id = $1::uuid AND j.chain_id IS NULL AND j.position > $2::integer
    UNION ALL
    SELECT {LIVE_COLUMNS} FROM @schema@.job j WHERE j.chain_id = $1::uuid AND j.position > $2::integer
    UNION ALL
    SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j
    WHERE j.id = $1::uuid AND j.chain_id IS NULL AND j.position > $2::integer
    UNION ALL
    (SELECT {ARCHIVED_COLUMNS} FROM @schema@.archive j WHERE j.chain_id = $1::uuid AND j.position > $2::integer
     ORDER BY j.position LIMIT $3::integer)
) AS step ORDER BY position, id LIMIT $3::integer"""


def chain_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"fetch_ends": schema.render(_FETCH_ENDS), "list_chain": schema.render(_LIST_CHAIN)}


async def fetch_ends(reader: Reader, statement: str, ids: Sequence[UUID]) -> list[Job | None]:
    """Show the live or last steps, as `aioqueue.abc.Store.fetch_ends` says."""
    # The live one wins, should both be there.
    found = {row[0]: row[1:] for row in reversed(await reader.read(statement, list(ids)))}
    return [whole_snapshot(found[job_id]) if job_id in found else None for job_id in ids]


async def list_chain(reader: Reader, statement: str, chain_id: UUID, limit: int, cursor: str | None) -> Page:
    """Show one page of a chain's steps, as `aioqueue.abc.Store.list_chain` says."""
    after = -1 if cursor is None else read_position_cursor(cursor)
    rows = await reader.read(statement, chain_id, after, limit + 1)
    jobs = tuple(job_snapshot(row) for row in rows[:limit])
    return Page(jobs, write_position_cursor(jobs[-1].position) if len(rows) > limit else None)
