"""What a retry means for those that waited."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.store_rules._causes import BLOCKER_FAILED
from aioqueue.store_rules._revival import blockers_first
from aioqueue.testing.memory._insert_keys import holder_of
from aioqueue.testing.memory._listing_blockers import dependents
from aioqueue.testing.memory._resolve import end_found, needs
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = [
    "in_turn",
    "key_is_contended",
    "key_is_taken",
    "live_again",
    "locked_behind",
    "retry_dependents",
    "staying",
    "wait_again",
]


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
    level, passed = {row.chain for row in revived}, set[UUID]()
    while level:
        passed |= level
        waited = [edge for edge in database.blockers.on(level) if not edge.settled and edge.job_id in database.rows]
        rows = {edge.job_id: database.rows[edge.job_id] for edge in waited}
        failed = {row.chain: row for row in rows.values() if failed_through(row)}
        # Those would have been told of the end that doesn't count any more: behind them others have failed.
        blocked = {rows[edge.job_id].chain for edge in waited if not edge.resolved and rows[edge.job_id].live}
        begun: list[Row] = []
        left: list[Row] = in_turn(database, failed)
        while left:
            now_live = [row for row in left if _begin_anew(database, row, now)]
            begun += now_live
            left = [row for row in left if not row.live] if now_live else []
        level = (blocked - passed) | {row.chain for row in begun}
        all_of_them += begun
    return all_of_them


def in_turn(database: Database, ends: Mapping[UUID, Row]) -> list[Row]:
    """The last steps of chains that are to live again, by those: first the ones for which others of them wait."""
    waits = {chain: {edge.chain_id for edge in database.blockers.of(row.new.id)} for chain, row in ends.items()}
    return [ends[chain] for level in blockers_first(waits) for chain in level]


def staying(database: Database, chains: Collection[UUID]) -> set[UUID]:
    """Those of the chains that can't be deleted with the others of them, since something waits that stays."""
    waiting = {
        chain: {database.rows[edge.job_id].chain for edge in dependents(database, chain) if needs(edge)} for chain in chains
    }
    stays: set[UUID] = set()
    while found := {
        chain for chain in waiting.keys() - stays if waiting[chain] & stays or not waiting[chain] <= waiting.keys()
    }:
        stays |= found
    return stays


def key_is_taken(database: Database, row: Row) -> bool:
    """Whether somebody else has got a finished job's unique key."""
    if row.unique_hash is None:
        return False
    return any(holder_of(rows, (row.unique_hash,)) is not None for rows in (database.rows, database.uncommitted))


def key_is_contended(database: Database, row: Row) -> bool:
    """Whether somebody's open transaction has got a finished job's unique key."""
    return row.unique_hash is not None and holder_of(database.uncommitted, (row.unique_hash,)) is not None


def locked_behind(database: Database, row: Row, now: datetime) -> bool:
    """Whether somebody has locked one of those that failed through this chain, or through one of them, and so on."""
    passed, level = set[UUID](), {row.chain}
    while level:
        passed |= level
        waited = [edge for edge in database.blockers.on(level) if not edge.settled and edge.job_id in database.rows]
        failed = [found for edge in waited if failed_through(found := database.rows[edge.job_id])]
        if any(each.locked(now) for each in failed):
            return True
        level = {each.chain for each in failed} - passed
    return False


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
