"""Inserting jobs, all or none, also such as wait for chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.sqlite._insert_blockers import add_blockers
from aioqueue.sqlite._insert_rows import InsertResult, insert_rows
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._resolve import Resolved, resolve_if_possible
from aioqueue.sqlite._rows_times import NOW
from aioqueue.store_rules._batches import needed_of_batch

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Inserted, NewJob
    from aioqueue.vocabulary._notification import Notification

__all__ = ["Inserter", "Stored", "insert_jobs", "store_jobs"]


class Inserter:
    """Inserts of one open store, outside of callers' transactions.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def insert(self, jobs: Sequence[NewJob], *, repeated: bool) -> Sequence[Inserted]:
        """Store jobs, all or none, as `aioqueue.abc.Store.insert` promises."""

        def body(connection: sqlite3.Connection) -> tuple[Sequence[Inserted], Notification | None]:
            result = insert_jobs(connection, jobs, repeated=repeated)
            return result.inserted, result.notification

        return await self._writer.write(body)


@dataclass(frozen=True, slots=True)
class Stored:
    """Jobs that were stored, and for which chains they wait, before those are told of that have ended already.

    Attributes:
        result: As of an insert.
        known: Under which ids the jobs are stored, by their own: one may stand for a chain that holds its key.
        created: Those that were stored now, each as the first step of its chain.
        ended: Chains among those that they wait for that have ended.
    """

    result: InsertResult
    known: dict[UUID, UUID]
    created: set[UUID]
    ended: list[str]


def store_jobs(
    connection: Statements,
    jobs: Sequence[NewJob],
    now: int | None = None,
    *,
    repeated: bool = False,
    waited_for: Collection[UUID] = (),
) -> Stored:
    """Store jobs, all or none, and for which chains they wait.

    Arguments:
        connection: In a write transaction.
        jobs, repeated, waited_for: As of `insert_conversation`.
        now: The database's time, if it's known.

    Raises:
        RowRejected: A row can't be stored.
        BlockerNotFound: A chain to wait for isn't there.
        BlockerCycle: A job waits for itself, or for one behind it.
    """
    needed_of_batch(jobs)
    result = insert_rows(connection, jobs, repeated=repeated, waited_for=waited_for)
    known = {job.id: each.id for job, each in zip(jobs, result.inserted, strict=True)}
    created = {job.id for job, each in zip(jobs, result.inserted, strict=True) if each.created}
    waiting = [(job.id, job.blockers) for job in jobs if job.blockers and job.id in created]
    if not waiting:
        return Stored(result, known, created, [])
    if now is None:
        now = int(connection.execute(f"SELECT {NOW}").fetchone()[0])
    return Stored(result, known, created, add_blockers(connection, waiting, known, created, now))


def insert_jobs(connection: Statements, jobs: Sequence[NewJob], *, repeated: bool = False) -> InsertResult:
    """Store jobs, all or none, as `aioqueue.abc.Store.insert` promises.

    Raises:
        RowRejected, BlockerNotFound, BlockerCycle: As of `store_jobs`.
    """
    if not any(job.blockers for job in jobs):
        return insert_rows(connection, jobs, repeated=repeated)
    stored = store_jobs(connection, jobs, repeated=repeated)
    if not stored.ended:
        return stored.result
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    resolved = Resolved()
    resolve_if_possible(connection, stored.ended, now, resolved)
    told = (each for each in (stored.result.notification, resolved.notification(now)) if each is not None)
    return InsertResult(stored.result.inserted, merged(list(told)))
