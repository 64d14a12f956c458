"""The store's own transactions, which are in the user's hands while they're open."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreError, StoreUnavailable, TransactionError
from aioqueue.postgres._errors import sqlstate
from aioqueue.postgres._source import commit, control

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from aioqueue._job import Inserted, NewJob
    from aioqueue.postgres._connections import Lent
    from aioqueue.postgres._source import Connection
    from aioqueue.postgres._users import UsersPool

    Insert = Callable[[Connection, Sequence[NewJob]], Awaitable[Sequence[Inserted]]]

__all__ = ["PostgresTransaction", "open_transaction"]

logger = logging.getLogger("aioqueue.postgres")

# Ends with the transaction in which it was set, so that another one that was begun by hand is recognised.
_MARK = "SET LOCAL aioqueue.transaction = '1'"
_MARKED = "SELECT pg_catalog.current_setting('aioqueue.transaction')::pg_catalog.int4; "
_FAILED = "25P02"


class PostgresTransaction:
    """See `aioqueue.abc.StoreTransaction`.

    Arguments:
        lent: The connection, in a transaction.
        insert: Stores jobs on a connection.
        timeout: Seconds for one statement.
        description: The store, for errors.
    """

    def __init__(self, lent: Lent, insert: Insert, *, timeout: float, description: str) -> None:
        assert lent.connection is not None
        self._lent = lent
        self._connection = lent.connection
        self._insert = insert
        self._timeout = timeout
        self._description = description
        self.created: list[NewJob] = []

    @property
    def connection(self) -> Any:
        """The asyncpg connection."""
        self._lent.touched = True
        return self._connection

    async def execute(self, sql: str, *arguments: Any) -> int:
        """See `aioqueue.abc.StoreTransaction.execute`."""
        self._lent.touched = True
        async with self._answered():
            last = (await self._connection.execute(sql, *arguments)).rpartition(" ")[2]
        return int(last) if last.isdigit() else 0

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """See `aioqueue.abc.StoreTransaction.fetch`."""
        self._lent.touched = True
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
async def open_transaction(pool: UsersPool, insert: Insert, description: str) -> AsyncGenerator[PostgresTransaction, None]:
    """Hold a transaction for a block: committed at its end, rolled back when it raises or is cancelled.

    Arguments:
        pool: For what users hold.
        insert: Stores jobs on a connection.
        description: The store, for errors.

    Raises:
        StoreUnavailable: No connection, or the commit failed.
        TransactionError: A statement in the block has ended the transaction.
    """
    source = pool.source
    async with pool.lend() as lent:
        transaction = PostgresTransaction(lent, insert, timeout=source.timeout, description=description)
        connection: Connection = transaction._connection
        async with asyncio.timeout(source.timeout):
            await control(connection, source, f"{source.begin}; {_MARK}")
        try:
            yield transaction
        except GeneratorExit:
            logger.warning(
                "%s: a transaction was never left, and is rolled back: use it as `async with client.transaction() as tx:`",
                description,
            )
            raise
        if connection.is_closed():
            raise StoreUnavailable(f"{description}: the connection was lost before the commit: nothing was written")
        ended = await _commit(pool, connection, touched=lent.touched)
    if ended != "COMMIT":
        raise StoreError("the transaction was rolled back: a statement in it had failed, and its error was caught")


async def _commit(pool: UsersPool, connection: Connection, *, touched: bool) -> str:
    if not touched:
        return await commit(connection, pool.source)
    ended = TransactionError(
        "the transaction had been ended inside its block, by a COMMIT, a ROLLBACK or the like (or RESET ALL): what came "
        "before is committed or rolled back as that statement says, and what came after is rolled back. Leave the block to "
        "commit, and raise to roll back; SAVEPOINT and ROLLBACK TO SAVEPOINT may be used"
    )
    if not connection.is_in_transaction():
        raise ended
    try:
        return await commit(connection, pool.source, before=_MARKED)
    except StoreError as error:
        # If the commit itself had failed, no transaction would be open any more.
        if connection.is_closed() or not connection.is_in_transaction():
            raise
        if sqlstate(error.__cause__) == _FAILED:
            return "ROLLBACK"
        raise ended from error
