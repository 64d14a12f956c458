"""What new jobs wait for: it's found and marked, and what has ended already counts at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioqueue.errors import BlockerNotFound, StoreContended
from aioqueue.testing.memory._resolve import TOLD_AT_ONCE, announce_told, end_of, is_an_end, tell_dependents
from aioqueue.testing.memory._rows_blockers import Edge
from aioqueue.testing.memory._rows_chains import Chains, the_end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_blockers import End
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._blockers import NewBlocker
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Waits", "edges_of", "stored_ids", "tell_of_ended", "wait", "waits_for", "waits_of"]


@dataclass(frozen=True, slots=True)
class Waits:
    """What some jobs are to wait for.

    Attributes:
        edges: By the job.
        live: The live steps that are waited for.
        ended: How the others have ended.
    """

    edges: Mapping[UUID, Sequence[Edge]]
    live: Sequence[Row]
    ended: Sequence[End]


def stored_ids(jobs: Sequence[NewJob], results: Sequence[Inserted]) -> dict[UUID, UUID]:
    """What each job of a batch stands for: itself, or the chain that holds its unique key."""
    return {new.id: result.id for new, result in zip(jobs, results, strict=True)}


def edges_of(job_id: UUID, blockers: Sequence[NewBlocker]) -> list[Edge]:
    """What a job is to wait for, by the ids that were given for it: any step's, or that of another job of its batch."""
    return [
        Edge(job_id, ordinal, each.chain_id, settled=each.settled, places=each.places) for ordinal, each in enumerate(blockers)
    ]


def waits_of(
    database: Database,
    fresh: Mapping[UUID, Row],
    wanted: Mapping[UUID, Sequence[Edge]],
    ids: Mapping[UUID, UUID],
    now: datetime,
) -> Waits:
    """Look for what jobs are to wait for; nothing is written.

    Arguments:
        database: Where they are to be stored, or are.
        fresh: The new jobs, some of which may wait for others of them.
        wanted: What `edges_of` made, by the job. What was counted already stays as it is.
        ids: See `stored_ids`.
        now: The time.

    Raises:
        BlockerNotFound: One isn't there.
        StoreContended: Somebody has locked one.
    """
    if not wanted:
        return Waits({}, (), ())
    chains = Chains(database)
    edges: dict[UUID, list[Edge]] = {}
    live: dict[UUID, Row] = {}
    ended: dict[UUID, End] = {}
    for job_id, given in wanted.items():
        edges[job_id] = []
        for edge in given:
            if edge.resolved:
                edges[job_id].append(edge)
                continue
            found = _found(chains, fresh, ids.get(edge.chain_id, edge.chain_id), now)
            edges[job_id].append(replace(edge, chain_id=found.chain))
            if found.live:
                live[found.new.id] = found
            else:
                ended[found.chain] = end_of(found)
    return Waits(edges, list(live.values()), list(ended.values()))


def _found(chains: Chains, fresh: Mapping[UUID, Row], blocker_id: UUID, now: datetime) -> Row:
    last = fresh.get(blocker_id) or the_end(chains.steps_of(blocker_id))
    if last is None or not (last.live or is_an_end(last)):
        raise BlockerNotFound(
            f"there is no job {blocker_id} to wait for: it was never committed, or was deleted", blocker_id=blocker_id
        )
    if last.live and last.locked(now):
        raise StoreContended(f"an open transaction holds the job {last.new.id}, which is to be waited for")
    return last


def wait(database: Database, waits: Waits) -> None:
    """Let new jobs that are stored wait; `tell_of_ended` lets those go on for which there is nothing to wait any more."""
    for row in waits.live:
        if has_to_be_written(row):
            database.mark(row)
    for job_id, edges in waits.edges.items():
        database.add_edges(job_id, edges)
    for end in waits.ended:
        database.remember(end)


def tell_of_ended(database: Database, waits: Waits, now: datetime) -> None:
    """Count what has ended already, for or against those that were let wait for it."""
    told = tell_dependents(database, {end.chain_id for end in waits.ended}, now, TOLD_AT_ONCE, waits.edges)
    announce_told(database, told, now)


def has_to_be_written(row: Row) -> bool:  # noqa: ARG001 - what a mistake may look at
    """Whether a blocker's row is written: also where it's marked, since that is what keeps it from ending before the commit."""
    return True


def waits_for(database: Database, chain_id: UUID, chains: Sequence[UUID]) -> bool:
    """Whether one of the chains waits for another one, through whatever others."""
    seen: set[UUID] = set()
    left = list(chains)
    of_chains = Chains(database)
    while left:
        each = left.pop()
        if each == chain_id:
            return True
        if each not in seen:
            seen.add(each)
            last = the_end(of_chains.steps(each))
            if last is not None and last.live:
                left += [edge.chain_id for edge in database.blockers.of(last.new.id) if not edge.resolved]
    return False
