"""How the chains ended that claimed jobs have waited for. Only marked rows come here; inside the claim's transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.store_rules._causes import cause_of
from aioqueue.vocabulary._blockers import ChainEnd, EndedBlocker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["with_blockers"]

_ENDED = """
SELECT json_group_array(json_array(job_id, chain_id, state, output, cause, places)) FROM (
    SELECT b.job_id, b.chain_id, e.state, e.output, e.cause, b.places
    FROM json_each(:ids) AS asked CROSS JOIN blocker AS b ON b.job_id = asked.value
    LEFT JOIN chain_end AS e ON e.chain_id = b.chain_id ORDER BY b.job_id, b.ordinal)
"""


def with_blockers(connection: Statements, jobs: Sequence[ClaimedJob], marked: Sequence[UUID]) -> list[ClaimedJob]:
    """Add to these of the jobs what they have waited for. What is known of no chain any more, shows as deleted."""
    found: dict[str, list[EndedBlocker]] = {}
    rows = one(connection, _ENDED, {"ids": dump([str(each) for each in marked])})[0]
    for job_id, chain, state, output, cause, places in load(rows):
        chain_id = id_of(chain)
        if state is None:
            state, cause = ChainEnd.DELETED, cause_of(ChainEnd.DELETED, None, chain_id)
        end = EndedBlocker(
            chain_id=chain_id,
            end=ChainEnd(state),
            output=None if output is None else output.encode(),
            cause=cause or "",
            places=places.encode(),
        )
        found.setdefault(job_id, []).append(end)
    return [replace(job, blockers=tuple(found[str(job.id)])) if str(job.id) in found else job for job in jobs]
