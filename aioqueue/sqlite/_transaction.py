"""The store's own transactions, for users: each has a connection and a thread of its own while it is open."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from aioqueue.errors import StoreError, StoreUnavailable
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import begin, rollback
from aioqueue.sqlite._connections_statements import in_savepoint, readable_text
from aioqueue.sqlite._errors import translated
from aioqueue.sqlite._insert import insert_jobs
from aioqueue.sqlite._lease_session import renew_owed
from aioqueue.sqlite._operate import change_within
from aioqueue.sqlite._operate_verbs import OperatingVerbs
from aioqueue.sqlite._settle import hold, settle_alone
from aioqueue.sqlite._settle_end import end
from aioqueue.sqlite._transaction_savepoint import SavepointBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_threads import DatabaseThreads, Request
    from aioqueue.sqlite._operate_steps import Change
    from aioqueue.vocabulary._job import Claim, Ending, Inserted, LostReason, NewJob, Settlement, SettleResult
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["TransactionBlock", "SQLiteTransaction"]

T = TypeVar("T")
Answer = TypeVar("Answer")

logger = logging.getLogger("aioqueue.sqlite")

_LONG_SECONDS = 5.0
_END_SECONDS = 10.0
_LEAVE_NOTHING = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
_NEVER_LEFT = "a transaction was never left, and is rolled back: use `async with`"


class SQLiteTransaction:
    """An open transaction. Its statements run in its own thread, one after the other."""

    def __init__(self, threads: DatabaseThreads, connection: Connection) -> None:
        self._threads = threads
        self._connection = connection
        self._open = True
        self._savepoints = 0
        self._blocks: list[str] = []
        self.notifications: list[Notification] = []
        self.leaves_something = False
        """Whether the connection may differ from a new one afterwards: temporary tables, settings, the driver's own."""

    @property
    def connection(self) -> Any:
        """The `sqlite3.Connection`. It belongs to the transaction's thread while one of its statements runs."""
        self.leaves_something = True
        return self._connection

    def _check(self, sql: str = "SELECT") -> None:
        if not self._open:
            raise StoreUnavailable("the transaction has ended")
        if sql.lstrip()[:6].upper() not in _LEAVE_NOTHING:
            self.leaves_something = True

    def ended(self) -> None:
        """Refuse further statements: called when the block has ended."""
        self._open = False

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement; returns the number of rows that it changed. Errors are the driver's."""
        self._check(sql)

        def body(connection: Connection, _: Request[int]) -> int:
            cursor = connection.execute(sql, arguments)
            try:
                return max(0, cursor.rowcount)
            finally:
                cursor.close()

        return await self._threads.call(body)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[sqlite3.Row]:
        """Run one query; the rows are `sqlite3.Row`s. Errors are the driver's."""
        self._check(sql)

        def body(connection: Connection, _: Request[list[sqlite3.Row]]) -> list[sqlite3.Row]:
            cursor = connection.cursor()
            cursor.row_factory = sqlite3.Row
            try:
                return cursor.execute(sql, arguments).fetchall()
            finally:
                cursor.close()

        return await self._threads.call(body)

    async def _write(self, body: Callable[[Connection], tuple[T, Notification | None]]) -> T:
        self._check()

        def run(connection: Connection, _: Request[tuple[T, Notification | None]]) -> tuple[T, Notification | None]:
            with translated(), in_savepoint(connection, "aioqueue_write"):
                return body(connection)

        result, notification = await self._threads.call(run)
        if notification is not None:
            self.notifications.append(notification)
        return result

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs, all or none; listeners hear of it after the commit."""

        def body(connection: Connection) -> tuple[Sequence[Inserted], Notification | None]:
            result = insert_jobs(connection, jobs)
            return result.inserted, result.notification

        return await self._write(body)

    @property
    def operations(self) -> Operable:
        """The verbs for looking and operating; listeners hear of changes after the commit."""
        return OperatingVerbs(self._read, self._change)

    async def _read(self, body: Callable[[Connection], T]) -> T:
        self._check()

        def run(connection: Connection, _: Request[T]) -> T:
            with translated(), readable_text(connection):
                return body(connection)

        return await self._threads.call(run)

    async def _change(self, change: Change[Answer], ids: Sequence[UUID], refused: Answer | None) -> Sequence[Answer]:
        def body(connection: Connection) -> tuple[Sequence[Answer], Notification | None]:
            with readable_text(connection):
                return change_within(connection, change, ids, refused)

        return await self._write(body)

    async def hold(self, claim: Claim, lease_id: int) -> LostReason | None:
        """Why the claim isn't the lease's own; None if it is: it stays so to the end of the transaction."""
        return await self._write(lambda connection: (hold(connection, claim, lease_id), None))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        """Write how attempts ended, each on its own; listeners hear of it after the commit."""
        return await self._write(lambda connection: settle_alone(connection, settlements))

    async def end(self, endings: Sequence[Ending]) -> Sequence[bool]:
        """End jobs that aren't finished, all or none; listeners hear of it after the commit."""
        return await self._write(lambda connection: end(connection, endings))

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Open a nested block: rolled back alone when it raises or is cancelled."""
        self._check()
        self._savepoints += 1
        return SavepointBlock(self._threads, f"aioqueue_block_{self._savepoints}", self._blocks, self.notifications)


class TransactionBlock:
    """Holds the file's write lock for a block: committed at its end, rolled back when it raises or is cancelled.

    It isn't a generator: the end of an event loop closes all of those at once, a caller's and the one within it.

    Arguments:
        threads: One thread, which belongs to this transaction while the lock is held.
        lock: Lets the transactions of this store go one after the other.
        timeout: Seconds to wait for the write lock of other processes.
        tell: Called with what listeners should hear, after the commit.
        check: Called in the thread before the begin and the commit, which it refuses by raising.
    """

    def __init__(
        self,
        threads: DatabaseThreads,
        lock: asyncio.Lock,
        timeout: float,
        tell: Callable[[Notification], None],
        check: Callable[[], None],
    ) -> None:
        self._threads = threads
        self._lock = lock
        self._timeout = timeout
        self._tell = tell
        self._check = check
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._transaction: SQLiteTransaction | None = None

    async def __aenter__(self) -> SQLiteTransaction:
        """Take the write lock.

        Raises:
            StoreUnavailable: It isn't to be had in time.
        """
        await self._lock.acquire()
        try:
            self._transaction = SQLiteTransaction(self._threads, await self._threads.call(self._begin))
        except BaseException:
            await self._roll_back(last=False)
            self._lock.release()
            raise
        self._timer = self._loop.call_later(_LONG_SECONDS, _warn, context=contextvars.Context())
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or roll back.

        Raises:
            StoreUnavailable: The commit failed.
        """
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        assert self._timer is not None
        transaction.ended()
        self._timer.cancel()
        committed = False
        try:
            if kind is None:
                with anyio.move_on_after(_END_SECONDS, shield=True) as scope:
                    await self._threads.call(functools.partial(_ended, self._commit, last=transaction.leaves_something))
                    committed = True
                if scope.cancelled_caught:
                    raise StoreUnavailable(f"the commit wasn't done within {_END_SECONDS:g} s")
            elif kind is GeneratorExit:
                logger.warning(_NEVER_LEFT, extra=event("transaction.never_left"))
        finally:
            if not committed:
                await self._roll_back(last=transaction.leaves_something)
            self._lock.release()
        for notification in transaction.notifications if committed else ():
            self._tell(notification)

    def __del__(self) -> None:
        if self._transaction is None:
            return
        logger.warning(_NEVER_LEFT, extra=event("transaction.never_left"))
        self._transaction.ended()
        if self._timer is not None:
            self._timer.cancel()
        if not self._threads.closed:
            self._threads.send(functools.partial(_ended, _rolled_back, last=True))
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._lock.release)

    async def _roll_back(self, *, last: bool) -> None:
        if self._threads.closed:
            return  # the thread rolls back by closing the connection
        with anyio.move_on_after(_END_SECONDS, shield=True):
            try:
                await self._threads.call(functools.partial(_ended, _rolled_back, last=last))
            except StoreError as error:
                logger.warning("a transaction couldn't be rolled back: %s", error, extra=event("transaction.not_rolled_back"))

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _begin(self, connection: Connection, request: Request[Connection]) -> Connection:
        self._check()
        begin(connection, self._timeout, request.is_abandoned)
        if request.abandoned:
            rollback(connection)
        return connection

    def _commit(self, connection: Connection) -> None:
        if not connection.in_transaction:
            raise StoreUnavailable("the transaction was ended by one of its statements, or by an error of the disk")
        self._check()
        with translated("the commit failed"):
            try:
                renew_owed(connection)
                connection.execute("COMMIT")
            except sqlite3.Error:
                rollback(connection)
                raise
        connection.turns.give_back(connection)


def _rolled_back(connection: Connection) -> None:
    rollback(connection)


def _ended(end: Callable[[Connection], None], connection: Connection, request: Request[None], *, last: bool) -> None:
    # What a user has left on a connection isn't there for the next one.
    end(connection)
    request.last = last


def _warn() -> None:
    logger.warning(
        "a transaction has been open for over %g s: nothing else can write to the file meanwhile, leases aren't renewed",
        _LONG_SECONDS,
        extra=event("transaction.long"),
    )
