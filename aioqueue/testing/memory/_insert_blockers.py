"""What new jobs wait for: it's found and marked, and what has ended already counts at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import BlockerNotFound, StoreContended
from aioqueue.testing.memory._resolve import TOLD_AT_ONCE, announce_told, end_of, is_an_end, tell_dependents
from aioqueue.testing.memory._rows_blockers import Edge
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._resolve import Told
    from aioqueue.testing.memory._rows import Database, Row
    from aioqueue.testing.memory._rows_blockers import End
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Waits", "hold_back", "stored_ids", "wait", "waits_of"]


@dataclass(frozen=True, slots=True)
class Waits:
    """What some new jobs wait for.

    Attributes:
        edges: By the new job.
        live: The live steps that are waited for.
        ended: How the others have ended.
    """

    edges: Mapping[UUID, Sequence[Edge]]
    live: Sequence[Row]
    ended: Sequence[End]


def stored_ids(jobs: Sequence[NewJob], results: Sequence[Inserted]) -> dict[UUID, UUID]:
    """What each job of a batch stands for: itself, or the chain that holds its unique key."""
    return {new.id: result.id for new, result in zip(jobs, results, strict=True)}


def hold_back(row: Row) -> None:
    """Make a new row one that waits, if it has blockers."""
    if row.new.blockers:
        row.state, row.open_blockers, row.marked = StoredState.HELD, len(row.new.blockers), True


def waits_of(database: Database, rows: Sequence[Row], ids: Mapping[UUID, UUID], now: datetime) -> Waits:
    """Look for what new jobs wait for; nothing is written.

    Arguments:
        database: Where they are to be stored.
        rows: The new jobs, some of which may wait for others of them.
        ids: See `stored_ids`.
        now: The time.

    Raises:
        BlockerNotFound: One isn't there.
        StoreContended: Somebody has locked one.
    """
    waiting = [row for row in rows if row.new.blockers]
    if not waiting:
        return Waits({}, (), ())
    chains, fresh = Chains(database), {row.new.id: row for row in rows}
    edges: dict[UUID, list[Edge]] = {}
    live: dict[UUID, Row] = {}
    ended: dict[UUID, End] = {}
    for row in waiting:
        for ordinal, blocker in enumerate(row.new.blockers):
            found = _found(chains, fresh, ids.get(blocker.chain_id, blocker.chain_id), now)
            edge = Edge(row.new.id, ordinal, found.chain, blocker.settled, blocker.places)
            edges.setdefault(row.new.id, []).append(edge)
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


def wait(database: Database, waits: Waits, now: datetime) -> Told:
    """Let new jobs that are stored wait. Those for which there is nothing to wait any more go on at once."""
    for row in waits.live:
        if has_to_be_written(row):
            database.mark(row)
    for job_id, edges in waits.edges.items():
        database.add_edges(job_id, edges)
    for end in waits.ended:
        database.remember(end)
    told = tell_dependents(database, {end.chain_id for end in waits.ended}, now, TOLD_AT_ONCE, waits.edges)
    announce_told(database, told, now)
    return told


def has_to_be_written(row: Row) -> bool:  # noqa: ARG001 - what a mistake may look at
    """Whether a blocker's row is written: also where it's marked, since that is what keeps it from ending before the commit."""
    return True
