"""Who waits for what, as people see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._listing import state_of
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._blockers import Blocker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_blockers import Edge

__all__ = ["dependents", "list_blockers", "list_dependents"]


def list_blockers(database: Database, job_id: UUID, limit: int, after: int) -> list[Blocker]:
    """What a job waits for, or has waited for. See `Store.list_blockers`."""
    return _shown(database, [edge for edge in database.blockers.of(job_id) if edge.ordinal > after][:limit])


def list_dependents(database: Database, chain_id: UUID, limit: int) -> list[Blocker]:
    """Unfinished jobs that wait for a chain. See `Store.list_dependents`."""
    return _shown(database, dependents(database, chain_id)[:limit])


def dependents(database: Database, chain_id: UUID) -> list[Edge]:
    """What unfinished jobs still wait for of this chain, by the jobs' ids."""
    edges = [edge for edge in database.blockers.on({chain_id}) if not edge.resolved and _is_live(database, edge)]
    return sorted(edges, key=lambda edge: (edge.job_id, edge.ordinal))


def _is_live(database: Database, edge: Edge) -> bool:
    row = database.rows.get(edge.job_id)
    return row is not None and row.live


def _shown(database: Database, edges: Iterable[Edge]) -> list[Blocker]:
    now, chains = database.now(), Chains(database)
    shown: list[Blocker] = []
    for edge in edges:
        last = the_end(chains.steps(edge.chain_id))
        shown.append(
            Blocker(
                job_id=edge.job_id,
                ordinal=edge.ordinal,
                chain_id=edge.chain_id,
                settled=edge.settled,
                resolved=edge.resolved,
                type=None if last is None else last.new.type,
                state=None if last is None else state_of(last, now),
            )
        )
    return shown
