"""Connections: reserved ones, and small pools. None is trusted whose last statement was cut short."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ClientClosed, StoreUnavailable
from aioqueue.postgres._connections_cleanup import Tidying, answers, roll_back
from aioqueue.postgres._connections_source import Connection, Opener, Source, check_process, close_connection, in_transaction
from aioqueue.postgres._connections_tracker import cut_off, is_over, tell_of_the_end
from aioqueue.postgres._errors import breaks_connection, cuts_short

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aioqueue.postgres._connections_source import Row
    from aioqueue.postgres._connections_tracker import Belongings

__all__ = ["TRUSTED_SECONDS", "Lent", "Link", "Pool"]

TRUSTED_SECONDS = 10.0
_SLOW_SECONDS = 1.0


class Link:
    """One reserved connection, opened at first use and again after it broke. One statement at a time.

    Arguments:
        belongings: Holds it.
        source: Where it comes from.
    """

    def __init__(self, belongings: Belongings, source: Source) -> None:
        self._source = source
        self._opener = Opener(belongings, partial(belongings.open, source), self._keep)
        self._tidying = Tidying(belongings)
        self._closed = False
        self._connection: Connection | None = None
        self._used = 0.0
        self._lock = asyncio.Lock()
        self._process = os.getpid()

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement that commits by itself.

        Raises:
            StoreError: See `translate`.
        """
        check_process(self._process)
        self._check_open()
        using: Connection | None = None
        try:
            async with asyncio.timeout(self._source.timeout), self._lock:
                using = await self._pick()
                rows = await self._source.query(using, sql, arguments)
                self._used = asyncio.get_running_loop().time()
                return rows
        except BaseException as error:
            if using is not None:
                await self._part(using, error)
            if (ours := self._source.translated(error)) is error:
                raise
            raise ours from error

    async def _pick(self) -> Connection:
        using = self._connection
        if using is not None and not using.is_closed():
            idle = asyncio.get_running_loop().time() - self._used
            if idle < TRUSTED_SECONDS or await answers(using):
                return using
        opened = await self._opener.open()
        if self._closed:
            cut_off(opened)
            self._check_open()
        if (kept := self._connection) is not None and kept is not opened:
            cut_off(kept)  # put in order meanwhile
        self._connection = opened
        return opened

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"{self._source.description} was closed")

    async def _part(self, using: Connection, error: BaseException) -> None:
        """Don't use a connection again that isn't known to be in order."""
        if is_over():
            tell_of_the_end()
        elif breaks_connection(error):
            cut_off(using)
        elif isinstance(error, GeneratorExit):
            cut_off(using)  # nothing can be waited for
        elif (cut := cuts_short(error)) or (not using.is_closed() and using.is_in_transaction()):
            if self._connection is using:
                self._connection = None
            await self._tidying.do(self._tidy(using), late=cut)

    async def _tidy(self, connection: Connection) -> None:
        if await roll_back(connection):
            self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        if self._closed or (self._connection is not None and not self._connection.is_closed()):
            cut_off(connection)
        else:
            self._connection = connection
            self._used = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close the connection, bounded in time."""
        self._closed = True
        await self._opener.close()
        await self._tidying.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)


@dataclass(slots=True, eq=False)
class Lent:
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
        belongings: Holds them.
        source: Where they come from.
        size: How many there are at most.
        purpose: What they are for, to be named in errors.
    """

    def __init__(self, belongings: Belongings, source: Source, size: int, purpose: str) -> None:
        self.source = source
        self._belongings = belongings
        self._opener = Opener(belongings, self._connect, self._keep)
        self._tidying = Tidying(belongings)
        self._size = size
        self._purpose = purpose
        self._free = asyncio.Semaphore(size)
        self._lent: set[Lent] = set()
        self._idle: list[tuple[Connection, float]] = []
        self._doubted = 0.0
        self._closed = False
        self._process = os.getpid()

    # -- for subclasses -----------------------------------------------------------------------------------------------

    async def _connect(self) -> Connection:
        return await self._belongings.open(self.source)

    def _trusted(self, since: float) -> bool:
        """Whether a connection that has been idle since then is likely to answer: nothing says that the line is down."""
        now = asyncio.get_running_loop().time()
        silent = any(now - lent.since > _SLOW_SECONDS for lent in self._lent)
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

    async def borrow(self) -> Lent:
        """Borrow a connection, to be given back by `give_back`.

        Raises:
            StoreError: None could be had.
        """
        check_process(self._process)
        await self._take()
        if self._closed:
            self._free.release()
            raise ClientClosed(f"{self.source.description} was closed")
        task = asyncio.current_task()
        lent = Lent(None, task.get_name() if task is not None else "?", asyncio.get_running_loop().time())
        self._lent.add(lent)
        try:
            lent.connection = await self._pick()
        except BaseException as error:
            await self.give_back(lent, error)
            if (ours := self.source.translated(error)) is error:
                raise
            raise ours from error
        return lent

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection, None]:
        """Borrow a connection for statements of ours; what happens to it is translated."""
        lent = await self.borrow()
        assert lent.connection is not None
        failure: BaseException | None = None
        try:
            yield lent.connection
        except BaseException as error:
            failure = error
            if (ours := self.source.translated(error)) is error:
                raise
            raise ours from error
        finally:
            await self.give_back(lent, failure)

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(self.source.timeout):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(self._none_free()) from None

    def _none_free(self) -> str:
        now = asyncio.get_running_loop().time()
        holders = sorted((lent for lent in self._lent if lent.connection is not None), key=lambda lent: lent.since)
        held = ", ".join(f"{lent.holder} for {now - lent.since:.0f} s" for lent in holders[:10])
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
        if self._closed or len(self._idle) + len(self._lent) >= self._size:
            cut_off(connection)
        else:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    # -- giving back --------------------------------------------------------------------------------------------------

    async def give_back(self, lent: Lent, failure: BaseException | None) -> None:
        """In the ordinary case at once. What isn't known to be in order is looked at first, in a task of its own.

        Arguments:
            lent: What was borrowed.
            failure: What was raised meanwhile.
        """
        if is_over():
            tell_of_the_end()
            return
        connection = lent.connection
        cut = failure is not None and cuts_short(failure)
        broken = failure is not None and self._breaks(failure)
        if cut or broken:
            self._doubted = asyncio.get_running_loop().time()
        if connection is not None and broken:
            cut_off(connection)
        if connection is None:
            self._release(lent)
        elif isinstance(failure, GeneratorExit):
            self.take_back(lent)  # nothing can be waited for
        elif cut or (not connection.is_closed() and connection.is_in_transaction()):
            await self._tidying.do(self._tidy(lent, connection, ask=True), late=cut)
        elif lent.touched or self._closed or self.source.pool is not None:
            # Nobody has to wait for that.
            self._tidying.leave(self._tidy(lent, connection, ask=False))
        else:
            if not connection.is_closed():
                self._idle.append((connection, asyncio.get_running_loop().time()))
            self._release(lent)

    def take_back(self, lent: Lent) -> None:
        """Take back what nobody will give back. Its connection is cut off, which rolls back what was open on it."""
        if lent.connection is not None:
            cut_off(lent.connection)
        self._release(lent)

    async def _tidy(self, lent: Lent, connection: Connection, *, ask: bool) -> None:
        try:
            if not connection.is_closed() and (not ask or await roll_back(connection)) and lent.touched:
                await self._reset(connection)
            await self._keep_or_close(connection)
        finally:
            self._release(lent)

    def _release(self, lent: Lent) -> None:
        self._lent.discard(lent)
        if not is_over():
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

    async def close(self) -> None:
        """Close the idle ones; those in use close when they're given back."""
        self._closed = True
        await self._opener.close()
        await self._tidying.close()
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await close_connection(connection)
