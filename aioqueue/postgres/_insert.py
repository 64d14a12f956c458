"""Storing new jobs over the connections that a store has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._errors import translated
from aioqueue.postgres._insert_blockers import insert_waiting, insert_waiting_statements, whole_or_nothing
from aioqueue.postgres._insert_rows import insert_arguments, insert_on, insert_results, job_size
from aioqueue.postgres._notifications import inserted_note
from aioqueue.postgres._resolve import Resolved
from aioqueue.postgres._rows_portions import in_portions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Inserter"]


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

    async def insert(self, jobs: Sequence[NewJob], *, repeated: bool) -> list[Inserted]:
        """Store jobs and commit, as `aioqueue.abc.Store.insert` says."""
        waiting = any(job.blockers for job in jobs)
        several = len(next(in_portions(jobs, job_size))) < len(jobs)
        if repeated or waiting or several or any(job.unique for job in jobs):
            async with self._pool.transaction() as connection:
                await connection.execute(WAIT_BRIEFLY)
                if not waiting:
                    return await self._insert_plain(connection, jobs, repeated=repeated)
                with translated(self._pool.source.description):
                    return await insert_waiting(
                        connection, self._statements, jobs, repeated=repeated, origin=self._origin, into=Resolved()
                    )
        rows = await self._pool.fetch(self._statements["insert"], *insert_arguments(jobs), inserted_note(jobs, self._origin))
        return insert_results(jobs, {}, {row[0] for row in rows})

    async def insert_in(self, connection: Connection, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Store jobs within the open transaction of a connection of ours, which is in a user's hands."""
        if not any(job.blockers for job in jobs):
            return await self._insert_plain(connection, jobs, repeated=False)
        with translated(self._pool.source.description):
            async with whole_or_nothing(connection):
                return await insert_waiting(
                    connection, self._statements, jobs, origin=self._origin, into=Resolved(), callers=True
                )

    async def _insert_plain(self, connection: Connection, jobs: Sequence[NewJob], *, repeated: bool) -> list[Inserted]:
        with translated(self._pool.source.description):
            note = inserted_note(jobs, self._origin)
            return await insert_on(connection, self._statements, jobs, repeated=repeated, note=note)
