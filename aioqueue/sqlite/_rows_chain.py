"""Chains in SQL: whose step an id is, and which step counts. A chain's id is whatever stands in the rows, also an odd value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._rows_ids import RowId, any_id

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["HOLDS_KEY", "LAST_STEPS", "OF_CHAIN", "chain_of"]

LAST_STEPS = """
chain(place, id) AS MATERIALIZED (
    SELECT asked.key, coalesce((SELECT coalesce(chain_id, id) FROM job WHERE id = asked.value),
                               (SELECT coalesce(chain_id, id) FROM archive WHERE id = asked.value), asked.value)
    FROM json_each(:ids) AS asked),
step(place, chain, live, archived) AS MATERIALIZED (
    SELECT place, id,
        coalesce((SELECT id FROM job INDEXED BY job_chain WHERE chain_id = chain.id ORDER BY position DESC, id DESC LIMIT 1),
                 (SELECT id FROM job WHERE id = chain.id AND chain_id IS NULL)),
        coalesce((SELECT id FROM archive INDEXED BY archive_chain
                  WHERE chain_id = chain.id ORDER BY position DESC, id DESC LIMIT 1),
                 (SELECT id FROM archive WHERE id = chain.id AND chain_id IS NULL))
    FROM chain)"""
"""Common tables: of each id in `:ids`, any step's, its chain, and the ids of that one's live and last archived steps."""

HOLDS_KEY = "(claims = 0 OR NOT until_started) AND unique_key IS NOT NULL"
"""Whether a live row keeps its unique key from others: as the unique index has it, which can be used with it."""

_CHAIN = """
SELECT typeof(id) = 'blob', CAST(id AS BLOB) FROM (SELECT coalesce(
    (SELECT coalesce(chain_id, id) FROM job WHERE id = :id), (SELECT coalesce(chain_id, id) FROM archive WHERE id = :id), :id
) AS id)
"""

_ID = any_id("chain")
OF_CHAIN = (f"chain_id = {_ID}", f"id = {_ID} AND chain_id IS NULL")
"""Conditions for a chain's later steps, and for its first one."""


def chain_of(connection: Statements, job_id: UUID) -> RowId:
    """The chain of which a job is a step. An id that isn't found may be the chain's own: of its first step, deleted by now."""
    return RowId.read(*connection.execute(_CHAIN, {"id": str(job_id)}).fetchone())
