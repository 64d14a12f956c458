"""What a retry means for those that waited."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.store_rules._causes import BLOCKER_FAILED
from aioqueue.testing.memory._insert import holder_of
from aioqueue.testing.memory._resolve import end_found
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database, Row

__all__ = ["key_is_taken", "live_again", "retry_dependents", "wait_again"]


def wait_again(database: Database, row: Row) -> int | None:
    """Look anew at what a job has waited for: for how many of them it has to wait; None if one has failed for good."""
    edges, chains = database.blockers.of(row.new.id), Chains(database)
    lives: list[int] = []
    for edge in edges:
        last = the_end(chains.steps(edge.chain_id))
        if last is not None and last.live:
            lives.append(edge.ordinal)
            continue
        end = database.blockers.ends.get(edge.chain_id) or end_found(database, edge.chain_id)
        if end is None or (end.end is not ChainEnd.COMPLETED and not edge.settled):
            return None
        if edge.chain_id not in database.blockers.ends:
            database.remember(replace(end, untold=False))
    for edge in edges:
        last = the_end(chains.steps(edge.chain_id))
        if edge.ordinal in lives and last is not None:
            database.mark(last)
    database.resolve(row.new.id, [edge.ordinal for edge in edges if edge.ordinal not in lives])
    database.resolve(row.new.id, lives, resolved=False)
    return len(lives)


def live_again(database: Database, row: Row) -> None:
    """A chain goes on for which some may wait: they're told of its next end, and not of the last one any more.

    That one is kept for those that were told of it and haven't been started.
    """
    end = database.blockers.ends.get(row.chain)
    if end is not None and end.untold:
        database.remember(replace(end, untold=False))
    if database.blockers.on({row.chain}):
        database.mark(row)


def retry_dependents(database: Database, revived: Sequence[Row], now: datetime) -> list[Row]:
    """Let those begin anew that failed through the chains that do so: one level after the other."""
    all_of_them: list[Row] = []
    level = list(revived)
    while level:
        waited = database.blockers.on({row.chain for row in level})
        rows = {edge.job_id: database.rows[edge.job_id] for edge in waited if edge.job_id in database.rows}
        level = [row for row in rows.values() if failed_through(row) and _begin_anew(database, row, now)]
        all_of_them += level
    return all_of_them


def key_is_taken(database: Database, row: Row) -> bool:
    """Whether somebody else has got a finished job's unique key."""
    if row.unique_hash is None:
        return False
    return any(holder_of(rows, (row.unique_hash,)) is not None for rows in (database.rows, database.uncommitted))


def failed_through(row: Row) -> bool:
    """Whether a job failed since a chain did that it waited for."""
    return row.state == StoredState.FAILED and bool(row.errors) and row.errors[-1].type == BLOCKER_FAILED


def _begin_anew(database: Database, row: Row, now: datetime) -> bool:
    open_blockers = None if key_is_taken(database, row) else wait_again(database, row)
    if open_blockers is None:
        return False
    database.reopen(row, now, open_blockers)
    live_again(database, row)
    return True
