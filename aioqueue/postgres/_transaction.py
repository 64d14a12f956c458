"""The store's own transactions, which are in the user's hands while they're open."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreUnavailable
from aioqueue.postgres._source import in_transaction

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from aioqueue._job import Inserted, NewJob
    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._source import Connection

    Insert = Callable[[Connection, Sequence[NewJob]], Awaitable[Sequence[Inserted]]]

__all__ = ["PostgresTransaction", "open_transaction"]


class PostgresTransaction:
    """See `aioqueue.abc.StoreTransaction`.

    Arguments:
        connection: In a transaction.
        insert: Stores jobs on that connection.
        timeout: Seconds for one statement.
        description: The store, for errors.
    """

    def __init__(self, connection: Connection, insert: Insert, *, timeout: float, description: str) -> None:
        self._connection = connection
        self._insert = insert
        self._timeout = timeout
        self._description = description
        self.created: list[NewJob] = []

    @property
    def connection(self) -> Any:
        """The asyncpg connection."""
        return self._connection

    async def execute(self, sql: str, *arguments: Any) -> int:
        """See `aioqueue.abc.StoreTransaction.execute`."""
        async with self._answered():
            last = (await self._connection.execute(sql, *arguments)).rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """See `aioqueue.abc.StoreTransaction.fetch`."""
        async with self._answered():
            return await self._connection.fetch(sql, *arguments)

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """See `aioqueue.abc.Store.insert`."""
        async with self._answered():
            results = await self._insert(self._connection, jobs)
        self.created.extend(job for job, result in zip(jobs, results, strict=True) if result.created)
        return results

    @asynccontextmanager
    async def _answered(self) -> AsyncGenerator[None, None]:
        """One statement: a server that stays silent is given up.

        Raises:
            StoreUnavailable: There was no answer in time, and the connection is cut off.
        """
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            self._connection.terminate()
            raise StoreUnavailable(
                f"{self._description}: no answer to a statement within {self._timeout:g} s; statements that take "
                "longer need a larger timeout=, or the transaction's connection itself"
            ) from error


@asynccontextmanager
async def open_transaction(pool: Pool, insert: Insert, description: str) -> AsyncGenerator[PostgresTransaction, None]:
    """Hold a transaction for a block: committed at its end, rolled back when it raises or is cancelled.

    Arguments:
        pool: For what users hold.
        insert: Stores jobs on a connection.
        description: The store, for errors.

    Raises:
        StoreUnavailable: No connection, or the commit failed.
    """
    async with pool.connection(users=True) as connection:
        transaction = PostgresTransaction(connection, insert, timeout=pool.source.timeout, description=description)
        async with in_transaction(connection, pool.source):
            yield transaction
