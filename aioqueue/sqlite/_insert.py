"""Inserting jobs, all or none, also such as wait for chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.sqlite._insert_blockers import Waiting, add_blockers
from aioqueue.sqlite._insert_decisions import needs_decisions
from aioqueue.sqlite._insert_rows import InsertResult, Stored, insert_rows
from aioqueue.sqlite._insert_unique import store_decided
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

__all__ = ["Inserter", "are_only_rows", "insert_jobs", "store_jobs"]


class Inserter:
    """Inserts of one open store, outside of callers' transactions.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def insert(self, jobs: Sequence[NewJob], *, repeated: bool, apart: bool) -> Sequence[Inserted]:
        """Store jobs, as `aioqueue.abc.Store.insert` promises."""

        def body(connection: sqlite3.Connection) -> tuple[Sequence[Inserted], Notification | None]:
            result = insert_jobs(connection, jobs, repeated=repeated, apart=apart)
            return result.inserted, result.notification

        return await self._writer.write(body)


def store_jobs(
    connection: Statements,
    jobs: Sequence[NewJob],
    now: int | None = None,
    *,
    repeated: bool = False,
    apart: bool = False,
    waited_for: Collection[UUID] = (),
) -> Stored:
    """Store jobs, all or none, and for which chains they wait.

    Arguments:
        connection: In a write transaction.
        jobs, repeated, apart, waited_for: As of `store_decided`.
        now: The database's time, if it's known.

    Raises:
        DuplicateJob, WrongJobType: A job is refused, unless each stands for itself.
        RowRejected: A row can't be stored.
        BlockerNotFound: A chain to wait for isn't there.
        BlockerCycle: A job waits for itself, or for one behind it; or one that it replaces would wait for itself.
    """
    needed_of_batch(jobs)
    if needs_decisions(jobs):
        return store_decided(connection, jobs, repeated=repeated, apart=apart, waited_for=waited_for)
    result = insert_rows(connection, jobs, repeated=repeated, waited_for=waited_for)
    known = {job.id: each.id for job, each in zip(jobs, result.inserted, strict=True)}
    created = {job.id for job, each in zip(jobs, result.inserted, strict=True) if each.created}
    waiting = [Waiting(str(job.id), job.blockers) for job in jobs if job.blockers and job.id in created]
    if not waiting:
        return Stored(result, known, created, [])
    if now is None:
        now = int(connection.execute(f"SELECT {NOW}").fetchone()[0])
    return Stored(result, known, created, add_blockers(connection, waiting, known, created, now))


def are_only_rows(jobs: Sequence[NewJob]) -> bool:
    """Whether nothing but their rows is written of these jobs, as of most."""
    return not (any(job.blockers for job in jobs) or needs_decisions(jobs))


def insert_jobs(connection: Statements, jobs: Sequence[NewJob], *, repeated: bool = False, apart: bool = False) -> InsertResult:
    """Store jobs, as `aioqueue.abc.Store.insert` promises.

    Raises:
        DuplicateJob, WrongJobType, RowRejected, BlockerNotFound, BlockerCycle: As of `store_jobs`.
    """
    if are_only_rows(jobs):
        return insert_rows(connection, jobs, repeated=repeated)
    stored = store_jobs(connection, jobs, repeated=repeated, apart=apart)
    if not stored.ended:
        return stored.result
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    resolved = Resolved()
    resolve_if_possible(connection, stored.ended, now, resolved)
    told = (each for each in (stored.result.notification, resolved.notification(now)) if each is not None)
    return InsertResult(stored.result.inserted, merged(list(told)))
