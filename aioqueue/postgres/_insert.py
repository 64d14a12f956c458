"""Storing new jobs over the connections that a store has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import translated
from aioqueue.postgres._insert_apart import insert_apart, is_quick
from aioqueue.postgres._insert_blockers import insert_waiting, insert_waiting_statements
from aioqueue.postgres._insert_rows import (
    insert_arguments,
    insert_on,
    insert_results,
    is_simple,
    job_size,
    sequenced_arguments,
)
from aioqueue.postgres._insert_sequences import has_sequences, keep_order
from aioqueue.postgres._insert_waits import whole_or_nothing
from aioqueue.postgres._notifications import inserted_note, inserted_types
from aioqueue.postgres._resolve import Resolved
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Inserter", "Written"]


class Written(NamedTuple):
    """What an insert has done.

    Attributes:
        results: One each, in order.
        told: What is told of jobs that were there, or whose blockers had ended before; None if that can't be.
        waiting: Those that are blocked, or were.
    """

    results: list[Inserted]
    told: Resolved | None = None
    waiting: Collection[UUID] = ()

    def notifications(self, jobs: Sequence[NewJob]) -> Iterator[Notification]:
        """What listeners are to hear of it, for the jobs that were given."""
        told, waiting = self.told, self.waiting
        created = [job for job, result in zip(jobs, self.results, strict=True) if result.created]
        yield inserted_types([job for job in created if job.id not in waiting] if waiting else created)
        if told is not None and (told.types or told.failed):
            yield Notification(
                types=frozenset(told.types),
                delay=told.delay,
                finished=frozenset(told.failed),
                deliveries=told.deliveries,
            )


class Inserter:
    """Stores new jobs, over the pool of the client's own operations or on a connection that is in a transaction.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes of the jobs; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = insert_waiting_statements(schema)
        self._origin = origin

    async def insert(
        self, jobs: Sequence[NewJob], tell: Callable[[Notification], None], *, repeated: bool, apart: bool = False
    ) -> list[Inserted]:
        """Store jobs and commit, as `aioqueue.abc.Store.insert` says.

        Arguments:
            jobs: What is to be stored.
            tell: Called with what has happened, after each commit.
            repeated: Whether they may have been stored by an earlier try.
            apart: Whether each stands for itself.
        """
        plain = not (repeated or any(job.unique or job.blockers or job.chosen_id or job.implied for job in jobs))
        if plain and len(next(in_portions(jobs, job_size))) == len(jobs):
            note = inserted_note(jobs, self._origin)
            if has_sequences(jobs):
                arguments = sequenced_arguments(jobs, note, (), jobs)
                rows = await self._pool.fetch(self._statements["insert_sequenced"], *arguments)
            else:
                rows = await self._pool.fetch(self._statements["insert"], *insert_arguments(jobs), note)
            written = Written(insert_results(jobs, {}, {row[0] for row in rows}))
            _tell(written, jobs, tell)
            return written.results
        if len(jobs) > 1 and not apart:
            return await self._insert(jobs, tell, repeated=repeated)
        quick = [] if repeated else [job for job in jobs if is_quick(job)]
        if not quick or (len(quick) < len(jobs) and has_sequences(jobs)):  # in whose order all of them are stored
            return await self._insert(jobs, tell, repeated=repeated, apart=apart)
        stored = await insert_apart(self._pool, self._statements, quick, self._origin)
        results = stored.results(quick)
        _tell(Written(results), quick, tell)
        if not apart:
            for refused in stored.refused.values():
                raise refused
        if len(quick) == len(jobs):
            return results
        taken = {job.id for job in quick}
        slow = iter(await self._insert([job for job in jobs if job.id not in taken], tell, repeated=repeated, apart=apart))
        done = iter(results)
        return [next(done) if job.id in taken else next(slow) for job in jobs]

    async def _insert(
        self, jobs: Sequence[NewJob], tell: Callable[[Notification], None], *, repeated: bool, apart: bool = False
    ) -> list[Inserted]:
        """Store jobs in one transaction."""
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_BRIEFLY)
            written = await self._write(connection, jobs, repeated=repeated, apart=apart)
        _tell(written, jobs, tell)
        return written.results

    async def insert_in(self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool = False) -> Written:
        """Store jobs within the open transaction of a connection that is in a user's hands."""
        with translated(self._pool.source.description):
            if not any(map(_asks_more, jobs)):
                return await self._write(connection, jobs, repeated=repeated)
            async with whole_or_nothing(connection):
                return await self._write(connection, jobs, repeated=repeated, callers=True)

    async def insert_ticks(self, connection: Connection, jobs: Sequence[NewJob]) -> Written:
        """Store the jobs of ticks within the open transaction of a connection of ours: what is refused doesn't stop others."""
        return await self._write(connection, jobs, repeated=False, apart=True)

    async def _write(
        self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool, apart: bool = False, callers: bool = False
    ) -> Written:
        if not any(map(_asks_more, jobs)):
            note = inserted_note(jobs, self._origin)
            results = await insert_on(connection, self._statements, jobs, repeated=repeated, note=note)
            await keep_order(connection, self._statements, jobs, {each.id for each in results if each.created}, {})
            return Written(results)
        told = Resolved()
        stored = await insert_waiting(
            connection,
            self._statements,
            jobs,
            repeated=repeated,
            origin=self._origin,
            into=told,
            callers=callers,
            apart=apart,
        )
        return Written(stored.results(jobs), told, stored.waiting(jobs).keys())


def _asks_more(job: NewJob) -> bool:
    return bool(job.blockers) or not is_simple(job)


def _tell(written: Written, jobs: Sequence[NewJob], tell: Callable[[Notification], None]) -> None:
    for notification in written.notifications(jobs):
        tell(notification)
