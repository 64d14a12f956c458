"""Storing new jobs over the connections that a store has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import translated
from aioqueue.postgres._insert_blockers import insert_waiting, insert_waiting_statements, whole_or_nothing
from aioqueue.postgres._insert_rows import insert_arguments, insert_on, insert_results, job_size
from aioqueue.postgres._notifications import inserted_note, inserted_types
from aioqueue.postgres._resolve import Resolved
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Inserter", "Written"]


class Written(NamedTuple):
    """What an insert has done.

    Attributes:
        results: One each, in order.
        told: What jobs were told at once whose blockers had ended before; None if none has blockers.
    """

    results: list[Inserted]
    told: Resolved | None = None

    def notifications(self, jobs: Sequence[NewJob]) -> Iterator[Notification]:
        """What listeners are to hear of it, for the jobs that were given."""
        told = self.told
        created = [job for job, result in zip(jobs, self.results, strict=True) if result.created]
        yield inserted_types(created if told is None else [job for job in created if not job.blockers])
        if told is not None and (told.types or told.failed):
            yield Notification(types=frozenset(told.types), delay=told.delay, finished=frozenset(told.failed))


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

    async def insert(self, jobs: Sequence[NewJob], *, repeated: bool) -> Written:
        """Store jobs and commit, as `aioqueue.abc.Store.insert` says."""
        waiting = any(job.blockers for job in jobs)
        several = len(next(in_portions(jobs, job_size))) < len(jobs)
        if repeated or waiting or several or any(job.unique for job in jobs):
            async with self._pool.transaction() as connection:
                await connection.execute(WAIT_BRIEFLY)
                if waiting:
                    return await self._insert_waiting(connection, jobs, repeated=repeated)
                return await self._insert_plain(connection, jobs, repeated=repeated)
        rows = await self._pool.fetch(self._statements["insert"], *insert_arguments(jobs), inserted_note(jobs, self._origin))
        return Written(insert_results(jobs, {}, {row[0] for row in rows}))

    async def insert_in(self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool = False) -> Written:
        """Store jobs within the open transaction of a connection that is in a user's hands."""
        with translated(self._pool.source.description):
            if not any(job.blockers for job in jobs):
                return await self._insert_plain(connection, jobs, repeated=repeated)
            async with whole_or_nothing(connection):
                return await self._insert_waiting(connection, jobs, repeated=repeated, callers=True)

    async def _insert_plain(self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool) -> Written:
        note = inserted_note(jobs, self._origin)
        return Written(await insert_on(connection, self._statements, jobs, repeated=repeated, note=note))

    async def _insert_waiting(
        self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool, callers: bool = False
    ) -> Written:
        told = Resolved()
        results = await insert_waiting(
            connection, self._statements, jobs, repeated=repeated, origin=self._origin, into=told, callers=callers
        )
        return Written(results, told)
