"""Small pools of connections. None is used again whose last statement was cut short, before it's known to be in order."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import ClientClosed, StoreUnavailable
from aioqueue.postgres._connections_cleanup import Cleanup, answers, roll_back
from aioqueue.postgres._connections_closing import close_connection, loop_has_ended, terminate, warn_of_ended_loop
from aioqueue.postgres._connections_opener import Opener
from aioqueue.postgres._connections_source import TRUSTED_SECONDS, in_transaction
from aioqueue.postgres._errors import breaks_connection, cuts_short, deadlock, translated
from aioqueue.runtime._home import check_process, is_inherited

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._connections_source import Source
    from aioqueue.postgres._connections_tracker import Tracker

__all__ = ["Loan", "Pool"]

T = TypeVar("T")

_SLOW_SECONDS = 1.0

_MOST_TRIES = 3
"""How often a transaction of ours that deadlocks with somebody else's is tried."""


@dataclass(slots=True, eq=False)
class Loan:
    """What somebody has borrowed from a pool.

    Attributes:
        connection: None until one was found or opened.
        holder: The name of the task that has it.
        since: When it was borrowed, by the loop's clock.
        touched: Whether a user's own statements were run on it, or might have been.
    """

    connection: Connection | None
    holder: str
    since: float
    touched: bool = False


class Pool:
    """A few connections, opened when they are needed and kept.

    Arguments:
        tracker: Holds them.
        source: Where they come from.
        size: How many there are at most.
        purpose: What they are for, to be named in errors.
    """

    def __init__(self, tracker: Tracker, source: Source, size: int, purpose: str) -> None:
        self.source = source
        self._tracker = tracker
        self._opener = Opener(tracker, self._connect, self._keep)
        self._cleanup = Cleanup(tracker)
        self._size = size
        self._purpose = purpose
        self._free = asyncio.Semaphore(size)
        self._loans: set[Loan] = set()
        self._idle: list[tuple[Connection, float]] = []
        self._doubted = 0.0
        self._closed = False
        self._process = os.getpid()

    # -- for subclasses -----------------------------------------------------------------------------------------------

    async def _connect(self) -> Connection:
        return await self._tracker.open(self.source)

    def _trusted(self, since: float) -> bool:
        """Whether a connection that has been idle since then is likely to answer: nothing says that the line is down."""
        now = asyncio.get_running_loop().time()
        silent = any(now - loan.since > _SLOW_SECONDS for loan in self._loans)
        return now - since < TRUSTED_SECONDS and since > self._doubted and not silent

    def _breaks(self, failure: BaseException) -> bool:
        """Whether a connection is of no use after that. Whatever else may have happened to it, it's asked."""
        return breaks_connection(failure)

    async def _reset(self, connection: Connection) -> None:
        """Undo what a user's statements have left behind."""

    async def _keep_or_close(self, connection: Connection) -> None:
        """Take back a connection, which may be closed."""
        if self._closed:
            await close_connection(connection)
        elif not connection.is_closed():
            self._idle.append((connection, asyncio.get_running_loop().time()))

    # -- borrowing ----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse to go on with a pool that was closed meanwhile, or inherited.

        Raises:
            ClientClosed: It was closed, or this process was forked from the one that has the connections.
        """
        check_process(self._process, self.source.description)
        if self._closed:
            raise ClientClosed(f"{self.source.description} was closed")

    async def borrow(self) -> Loan:
        """Borrow a connection, to be given back by `give_back`.

        Raises:
            StoreError: None could be had.
        """
        check_process(self._process, self.source.description)
        await self._take()
        try:
            self.check_open()
        except ClientClosed:
            self._free.release()
            raise
        task = asyncio.current_task()
        loan = Loan(None, task.get_name() if task is not None else "?", asyncio.get_running_loop().time())
        self._loans.add(loan)
        with translated(self.source.description):
            try:
                loan.connection = await self._pick()
            except BaseException as error:
                await self.give_back(loan, error)
                raise
        return loan

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection, None]:
        """Borrow a connection for statements of ours; what happens to it is translated."""
        loan = await self.borrow()
        assert loan.connection is not None
        failure: BaseException | None = None
        with translated(self.source.description):
            try:
                yield loan.connection
            except BaseException as error:
                failure = error
                raise
            finally:
                await self.give_back(loan, failure)

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(self.source.timeout):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(self._none_free()) from None

    def _none_free(self) -> str:
        now = asyncio.get_running_loop().time()
        holders = sorted((loan for loan in self._loans if loan.connection is not None), key=lambda loan: loan.since)
        held = ", ".join(f"{loan.holder} for {now - loan.since:.0f} s" for loan in holders[:10])
        return (
            f"{self.source.description}: none of {self._size} connections for {self._purpose} became free within "
            f"{self.source.timeout:g} s; they are held by {held or 'nobody'}"
        )

    async def _pick(self) -> Connection:
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.is_closed() and (self._trusted(since) or await answers(connection)):
                return connection
        return await self._opener.open()

    def _keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) + len(self._loans) >= self._size:
            terminate(connection)
        else:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    # -- giving back --------------------------------------------------------------------------------------------------

    async def give_back(self, loan: Loan, failure: BaseException | None) -> None:
        """In the ordinary case at once. What isn't known to be in order is looked at first, in a task of its own.

        Arguments:
            loan: What was borrowed.
            failure: What was raised meanwhile.
        """
        if is_inherited(self._process):
            return  # the connection is the parent's, which goes on with it
        if loop_has_ended():
            warn_of_ended_loop()
            return
        connection = loan.connection
        cut = failure is not None and cuts_short(failure)
        broken = failure is not None and self._breaks(failure)
        if cut or broken:
            self._doubted = asyncio.get_running_loop().time()
        if connection is not None and broken:
            terminate(connection)
        if connection is None:
            self._release(loan)
        elif isinstance(failure, GeneratorExit):
            self.take_back(loan)  # nothing can be waited for
        elif cut or (not connection.is_closed() and connection.is_in_transaction()):
            await self._cleanup.run(self._clean_up(loan, connection, ask=True), partial(self._give_up, loan), late=cut)
        elif loan.touched or self._closed or self.source.pool is not None:
            # Nobody has to wait for that.
            self._cleanup.start(self._clean_up(loan, connection, ask=False), partial(self._give_up, loan))
        else:
            if not connection.is_closed():
                self._idle.append((connection, asyncio.get_running_loop().time()))
            self._release(loan)

    def take_back(self, loan: Loan) -> None:
        """Take back what nobody will give back. Its connection is cut off, which rolls back what was open on it."""
        if loan.connection is not None:
            terminate(loan.connection)
        self._release(loan)

    def _give_up(self, loan: Loan) -> None:
        """Take back what wasn't cleaned up: the task that should have done so was cancelled."""
        if loan in self._loans:
            self.take_back(loan)

    async def _clean_up(self, loan: Loan, connection: Connection, *, ask: bool) -> None:
        try:
            if not connection.is_closed() and (not ask or await roll_back(connection)) and loan.touched:
                await self._reset(connection)
            await self._keep_or_close(connection)
        finally:
            self._release(loan)

    def _release(self, loan: Loan) -> None:
        self._loans.discard(loan)
        if not loop_has_ended():
            self._free.release()

    # -- statements of ours -------------------------------------------------------------------------------------------

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement that commits by itself."""
        async with self.connection() as connection, asyncio.timeout(self.source.timeout):
            return await self.source.query(connection, sql, arguments)

    async def read(self, sql: str, *arguments: Any) -> Sequence[Row]:
        """Run one query that changes nothing: again, on another connection, if its own turns out to be lost.

        After a restart of the server every idle connection is, and nobody knows yet.
        """
        try:
            return await self.fetch(sql, *arguments)
        except StoreUnavailable as error:
            if not breaks_connection(error):
                raise
        return await self.fetch(sql, *arguments)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection, None]:
        """A transaction of ours, within the deadline of one statement as a whole."""
        async with (
            self.connection() as connection,
            asyncio.timeout(self.source.timeout),
            in_transaction(connection, self.source),
        ):
            yield connection

    async def transact(self, change: Callable[[Connection], Awaitable[T]]) -> T:
        """Do it in a transaction of ours. One that deadlocks with somebody else's is repeated."""
        tries = 0
        while True:
            tries += 1
            try:
                async with self.transaction() as connection:
                    return await change(connection)
            except StoreUnavailable as error:
                if tries == _MOST_TRIES or not deadlock(error):
                    raise

    async def close(self) -> None:
        """Close the idle ones, and lend no more.

        Those in use close when they're given back: a statement of ours goes on until then, and a transaction of a user's is
        rolled back, since `check_open` refuses its commit.
        """
        self._closed = True
        await self._opener.close()
        await self._cleanup.close()
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await close_connection(connection)
