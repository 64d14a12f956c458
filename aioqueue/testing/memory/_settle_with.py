"""What is stored together with how a job ended: its chain's next job, its children, and the end of its chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle, StoreContended
from aioqueue.testing.memory._insert import store
from aioqueue.testing.memory._insert_blockers import edges_of, stored_ids, tell_of_ended, wait, waits_for, waits_of
from aioqueue.testing.memory._resolve import note_end
from aioqueue.testing.memory._settle_next import next_row
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Ending, Settlement

__all__ = ["ends_with", "may_be_refused", "store_with"]


def may_be_refused(each: Settlement | Ending) -> bool:
    """Whether something is to be stored with it that may turn out to be impossible, when part of it is written already."""
    return bool(each.children) or (each.next is not None and bool(each.next.blockers))


def store_with(database: Database, row: Row, each: Settlement | Ending, now: datetime, write: Callable[[], None]) -> Row | None:
    """Write how a job ended, and store what belongs to it; returns its chain's next job, if there is one.

    Raises:
        RowRejected, StoreContended: The next job or a child can't be stored, now or ever.
        BlockerNotFound, BlockerCycle: What one of them is to wait for isn't there, or waits for this chain.
    """
    following = next_row(database, row, each, now) if each.kind is SettlementKind.CONTINUED else None
    if following is not None and following.new.id in database.uncommitted:
        raise StoreContended(f"an open transaction has stored {following.new.id}")
    write()
    if closes_edges(each):
        database.drop_edges(row.new.id)
    if following is not None:
        database.add(following)
    # Only now, since the job's unique key may be free for one of them, or one of them may wait for this very chain.
    blockers = () if following is None else following.new.blockers
    needed = [blocker.chain_id for blocker in blockers]
    ids = stored_ids(each.children, store(database, each.children, needed=needed)) if each.children else {}
    if following is not None and blockers:
        waits = waits_of(database, {}, {following.new.id: edges_of(following.new.id, blockers)}, ids, now)
        wait(database, waits)
        tell_of_ended(database, waits, now)
        if waits_for(database, following.chain, [edge.chain_id for edge in waits.edges[following.new.id]]):
            raise BlockerCycle(f"the chain {following.chain} would wait for itself")
    return following


def closes_edges(each: Settlement | Ending) -> bool:
    """Whether what a job has waited for is of no use any more: a retry needs it of those that failed."""
    return each.kind in (SettlementKind.COMPLETED, SettlementKind.CONTINUED)


def ends_with(database: Database, row: Row, kind: SettlementKind) -> bool:
    """Store how a job's chain has ended, if it has, and somebody waits for it; whether so."""
    return kind.ends_chain and note_end(database, row)
