"""The store's own transactions, for users: each has a connection and a thread of its own while it is open."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from aioqueue.errors import StoreUnavailable
from aioqueue.sqlite._connection import ROW_ERRORS, begin, classify, rollback
from aioqueue.sqlite._insert import insert_rows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from aioqueue._job import Inserted, NewJob
    from aioqueue.abc import Notification
    from aioqueue.sqlite._connection import Connection
    from aioqueue.sqlite._insert import InsertResult
    from aioqueue.sqlite._threads import DatabaseThreads, Request

__all__ = ["SQLiteTransaction", "open_transaction"]

logger = logging.getLogger("aioqueue.sqlite")

_LONG_SECONDS = 5.0
_END_SECONDS = 10.0


class SQLiteTransaction:
    """An open transaction. Its statements run in its own thread, one after the other."""

    def __init__(self, threads: DatabaseThreads, connection: Connection) -> None:
        self._threads = threads
        self._connection = connection
        self._open = True
        self.notifications: list[Notification] = []

    @property
    def connection(self) -> Any:
        """The `sqlite3.Connection`. It belongs to the transaction's thread while one of its statements runs."""
        return self._connection

    def _check(self) -> None:
        if not self._open:
            raise StoreUnavailable("the transaction has ended")

    def ended(self) -> None:
        """Refuse further statements."""
        self._open = False

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement; returns the number of rows that it changed. Errors are the driver's."""
        self._check()

        def body(connection: Connection, _: Request[int]) -> int:
            cursor = connection.execute(sql, arguments)
            try:
                return max(0, cursor.rowcount)
            finally:
                cursor.close()

        return await self._threads.call(body)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[sqlite3.Row]:
        """Run one query; the rows are `sqlite3.Row`s. Errors are the driver's."""
        self._check()

        def body(connection: Connection, _: Request[list[sqlite3.Row]]) -> list[sqlite3.Row]:
            cursor = connection.cursor()
            cursor.row_factory = sqlite3.Row
            try:
                return cursor.execute(sql, arguments).fetchall()
            finally:
                cursor.close()

        return await self._threads.call(body)

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs, all or none; listeners hear of it after the commit."""
        self._check()

        def body(connection: Connection, _: Request[InsertResult]) -> InsertResult:
            connection.execute("SAVEPOINT aioqueue_insert")
            try:
                result = insert_rows(connection, jobs)
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK TO aioqueue_insert")
                    connection.execute("RELEASE aioqueue_insert")
                if isinstance(error, (sqlite3.Error, *ROW_ERRORS)):
                    raise classify(error) from error
                raise
            connection.execute("RELEASE aioqueue_insert")
            return result

        result = await self._threads.call(body)
        if result.notification is not None:
            self.notifications.append(result.notification)
        return result.inserted


@asynccontextmanager
async def open_transaction(
    threads: DatabaseThreads, lock: asyncio.Lock, timeout: float, tell: Callable[[Notification], None]
) -> AsyncGenerator[SQLiteTransaction]:
    """Hold the file's write lock for a block: committed at its end, rolled back when it raises or is cancelled.

    Arguments:
        threads: One thread, which belongs to this transaction while the lock is held.
        lock: Lets the transactions of this store go one after the other.
        timeout: Seconds to wait for the write lock of other processes.
        tell: Called with what listeners should hear, after the commit.

    Raises:
        StoreUnavailable: No write lock, or the commit failed.
    """

    def start(connection: Connection, request: Request[Connection]) -> Connection:
        begin(connection, timeout, request.is_abandoned)
        if request.abandoned:
            rollback(connection)
        return connection

    def commit(connection: Connection, _: Request[None]) -> None:
        if not connection.in_transaction:
            raise StoreUnavailable("the transaction was ended by one of its statements, or by an error of the disk")
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            rollback(connection)
            raise classify(error, "the commit failed") from error

    async with lock:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        committed = False
        transaction: SQLiteTransaction | None = None
        try:
            opened = transaction = SQLiteTransaction(threads, await threads.call(start))
            timer = loop.call_later(_LONG_SECONDS, _warn)
            yield opened
            opened.ended()
            with anyio.move_on_after(_END_SECONDS, shield=True) as scope:
                await threads.call(commit)
                committed = True
            if scope.cancelled_caught:
                raise StoreUnavailable(f"the commit wasn't done within {_END_SECONDS:g} s")
        finally:
            if timer is not None:
                timer.cancel()
            if not committed:
                if transaction is not None:
                    transaction.ended()
                if not threads.closed:  # otherwise its thread rolls back by closing the connection
                    with anyio.move_on_after(_END_SECONDS, shield=True):
                        await threads.call(lambda connection, _: rollback(connection))
        for notification in opened.notifications:
            tell(notification)


def _warn() -> None:
    logger.warning(
        "a transaction has been open for over %g s: nothing else can write to the file meanwhile, leases aren't renewed",
        _LONG_SECONDS,
    )
