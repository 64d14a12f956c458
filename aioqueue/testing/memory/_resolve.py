"""Telling those that wait for chains how these have ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aioqueue.store_rules._causes import blocker_failed, cause_of
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL
from aioqueue.testing.memory._rows_blockers import End
from aioqueue.testing.memory._rows_chains import Chains, the_end
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_blockers import Edge
    from aioqueue.testing.memory._rows_jobs import Row

__all__ = [
    "TOLD_AT_ONCE",
    "Told",
    "announce_told",
    "end_found",
    "end_of",
    "is_an_end",
    "needs",
    "note_deletion",
    "note_end",
    "tell_dependents",
    "tell_of_ends",
]

TOLD_AT_ONCE = 100
"""Ends of chains that are told to jobs by the transaction that ends them; `tend` goes on with the rest."""


@dataclass(slots=True)
class Told:
    """What has become of those that were told.

    Attributes:
        resolved: Ends of chains that were told to a job.
        pending: Jobs that can be claimed, now or later.
        failed: Jobs that have failed with it.
        deleted: Jobs that were deleted with it.
    """

    resolved: int = 0
    pending: list[Row] = field(default_factory=list["Row"])
    failed: list[Row] = field(default_factory=list["Row"])
    deleted: list[Row] = field(default_factory=list["Row"])


def is_marked(row: Row) -> bool:
    """Whether there may be somebody to be told of the end of a job's chain."""
    return row.marked


def note_end(database: Database, row: Row) -> bool:
    """Store how a chain has ended, where that's waited for; whether it is."""
    if not is_marked(row) or not database.blockers.on({row.chain}):
        return False
    database.remember(end_of(row))
    return True


def end_of(row: Row) -> End:
    """How the chain has ended of which this is the last step."""
    end = ChainEnd(row.state)
    cause = cause_of(end, row.new.type, row.chain, row.errors[-1] if row.errors else None)
    return End(row.chain, end, row.output, cause)


def end_found(database: Database, chain_id: UUID) -> End | None:
    """How a chain has ended, by what is left of it; None while it's live. One of which nothing is left was deleted."""
    last = the_end(Chains(database).steps(chain_id))
    if last is not None and last.live:
        return None
    if last is not None and is_an_end(last):
        return end_of(last)
    known = database.blockers.ends.get(chain_id)
    gone = End(chain_id, ChainEnd.DELETED, cause=cause_of(ChainEnd.DELETED, None, chain_id))
    return gone if known is None or last is not None else replace(known, untold=True)


def is_an_end(row: Row) -> bool:
    """Whether a chain ended with a job that has finished: a continued one is followed by another."""
    return row.state != StoredState.CONTINUED


def tell_dependents(
    database: Database, chains: Collection[UUID], now: datetime, limit: int, only: Collection[UUID] | None = None
) -> Told:
    """Tell jobs that wait for chains of which it's known how they ended: one level of them, and so many ends at most.

    Arguments:
        chains: Their ids.
        limit: Ends that are told at most.
        only: Jobs that are told; None for all.
    """
    told = Told()
    waiting = [edge for edge in database.blockers.on(chains) if not edge.resolved]
    waiting = [edge for edge in waiting if only is None or edge.job_id in only]
    waiting.sort(key=lambda edge: (edge.chain_id, edge.job_id, edge.ordinal))
    by_job: dict[UUID, list[Edge]] = {}
    for edge in waiting[:limit]:
        by_job.setdefault(edge.job_id, []).append(edge)
    for job_id in sorted(by_job):
        _tell(database, job_id, by_job[job_id], now, told)
    for chain_id in chains:
        end = database.blockers.ends.get(chain_id)
        if end is not None and end.untold != (left := is_left(database, chain_id)):
            database.remember(replace(end, untold=left))
    return told


def is_left(database: Database, chain_id: UUID) -> bool:
    """Whether somebody hasn't been told yet of a chain's end."""
    return any(not edge.resolved for edge in database.blockers.on({chain_id}))


def _tell(database: Database, job_id: UUID, edges: Sequence[Edge], now: datetime, told: Told) -> None:
    row = database.rows.get(job_id)
    if row is not None and row.locked(now):
        return
    ends = {edge.ordinal: database.blockers.ends[edge.chain_id] for edge in edges}
    counted = resolved_of(edges)
    database.resolve(job_id, [edge.ordinal for edge in edges])
    told.resolved += len(edges)
    if row is None or not waits(row):
        return
    wrong = [ends[edge.ordinal] for edge in edges if stops(edge, ends[edge.ordinal])]
    if any(goes_along(edge, ends[edge.ordinal]) for edge in edges):
        take_along(database, row)
        told.deleted.append(row)
    elif wrong:
        database.end(row, StoredState.FAILED, now, error=blocker_failed(wrong[0].cause, now))
        note_end(database, row)
        told.failed.append(row)
    else:
        ready_at = ready(row, now)
        expires_at = expiry(row, ready_at - row.run_at)
        database.count_down(row, counted, ready_at, expires_at)
        if row.state == StoredState.PENDING:
            told.pending.append(row)


def waits(row: Row) -> bool:
    """Whether a job still waits: it may have ended before."""
    return row.state == StoredState.HELD


def resolved_of(edges: Collection[Edge]) -> int:
    """By how much the number of chains goes down that a job still waits for."""
    return len(edges)


def goes_along(edge: Edge, end: End) -> bool:
    """Whether a job is deleted with a chain that it waits for; one that has only taken that chain's key over stays."""
    return end.take_along and needs(edge)


def needs(edge: Edge) -> bool:
    """Whether a job waits for a chain since it was told to, and not since that had its key before."""
    return edge.ordinal != TAKEN_OVER_ORDINAL


def stops(edge: Edge, end: End) -> bool:
    """Whether a job can't run any more, since a chain has ended like this."""
    return end.end is not ChainEnd.COMPLETED and not edge.settled


def ready(row: Row, now: datetime) -> datetime:
    """When a job is due that waits for nothing any more."""
    return max(row.run_at, now)


def expiry(row: Row, waited: timedelta) -> datetime | None:
    """By when it must be started: it has the time that it was given, from when it's due."""
    return None if row.expires_at is None else row.expires_at + waited


def take_along(database: Database, row: Row) -> None:
    """Delete the chain of a job, and leave to be done that those that wait for it are deleted too."""
    note_deletion(database, row)
    for step in Chains(database).steps(row.chain):
        database.remove(step)


def note_deletion(database: Database, row: Row, *, cascade: bool = True) -> None:
    """Store that a chain is deleted, maybe with those that still wait for it, if there are any. Those that were told stay."""
    if is_left(database, row.chain):
        cause = cause_of(ChainEnd.DELETED, row.new.type, row.chain)
        end = database.blockers.ends.get(row.chain) or End(row.chain, ChainEnd.DELETED, cause=cause)
        database.remember(replace(end, untold=True, take_along=cascade))


def tell_of_ends(database: Database, rows: Collection[Row], now: datetime) -> None:
    """Tell those that wait for the chains that have ended with these jobs, a bounded number of them."""
    if rows:
        announce_told(database, tell_dependents(database, {row.chain for row in rows}, now, TOLD_AT_ONCE), now)


def announce_told(database: Database, told: Told, now: datetime) -> None:
    """Tell listeners of what has become of them."""
    waits = [max(0.0, (row.run_at - now).total_seconds()) for row in told.pending]
    ended = frozenset(row.chain for row in (*told.failed, *told.deleted))
    if told.pending or ended:
        types = frozenset(row.new.type for row in told.pending)
        database.tell(Notification(types=types, delay=min(waits, default=0.0), finished=ended))
