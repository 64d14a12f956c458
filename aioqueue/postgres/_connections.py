"""Connections: reserved ones, and small pools; broken ones aren't used again."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioqueue.errors import StoreUnavailable
from aioqueue.postgres._errors import breaks_connection
from aioqueue.postgres._source import (
    CLOSE_SECONDS,
    ROLLBACK_SECONDS,
    Connection,
    Opener,
    Source,
    check_process,
    close_connection,
    in_transaction,
    roll_back,
    to_the_end,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aioqueue.postgres._source import Row

__all__ = ["Link", "Pool"]

logger = logging.getLogger("aioqueue.postgres")


class Link:
    """One reserved connection, opened at first use and again after it broke. One statement at a time.

    Arguments:
        source: Where it comes from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._opener = Opener(source, self._keep)
        self._closed = False
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._process = os.getpid()

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement that commits by itself.

        Raises:
            StoreError: See `translate`.
        """
        check_process(self._process)
        using: Connection | None = None
        try:
            async with asyncio.timeout(self._source.timeout), self._lock:
                using = self._connection
                if using is None or using.is_closed():
                    using = self._connection = await self._opener.open()
                return await self._source.query(using, sql, arguments)
        except BaseException as error:
            if using is not None and breaks_connection(error):
                using.terminate()
            if (ours := self._source.translated(error)) is error:
                raise
            raise ours from error

    def _keep(self, connection: Connection) -> None:
        if self._closed or (self._connection is not None and not self._connection.is_closed()):
            connection.terminate()
        else:
            self._connection = connection

    async def close(self) -> None:
        """Close the connection, bounded in time."""
        self._closed = True
        await self._opener.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)


class Pool:
    """A few connections, opened when they are needed and kept.

    Arguments:
        source: Where they come from.
        size: How many there are at most.
    """

    def __init__(self, source: Source, size: int) -> None:
        self.source = source
        self._source = source
        self._opener = Opener(source, self._keep)
        self._size = size
        self._borrowed = 0
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False
        self._process = os.getpid()

    @asynccontextmanager
    async def connection(self, *, users: bool = False) -> AsyncGenerator[Connection, None]:
        """Borrow a connection. `users` says that it gets into the user's hands, so that it's reset afterwards.

        Raises:
            StoreError: None could be had, or what happened to it, translated.
        """
        check_process(self._process)
        await self._take()
        self._borrowed += 1
        connection: Connection | None = None
        sound = False
        try:
            connection = await self._pick()
            yield connection
            sound = True
        except BaseException as error:
            sound = not breaks_connection(error)
            # What the user's own statements raise is the user's to handle.
            if users or (ours := self._source.translated(error)) is error:
                raise
            raise ours from error
        finally:
            try:
                if connection is not None:
                    await self._give_back(connection, sound=sound, users=users)
            finally:
                self._borrowed -= 1
                self._free.release()

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(self._source.timeout):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._source.description}: none of {self._size} connections became free within {self._source.timeout:g} s"
            ) from None

    async def _pick(self) -> Connection:
        pool = self._source.pool
        if pool is not None:
            try:
                return await pool.acquire(timeout=self._source.timeout)
            except BaseException as error:
                if (ours := self._source.translated(error)) is error:
                    raise
                raise ours from error
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._opener.open()

    def _keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) + self._borrowed >= self._size:
            connection.terminate()
        else:
            self._idle.append(connection)

    async def _give_back(self, connection: Connection, *, sound: bool, users: bool) -> None:
        try:
            if not sound:
                connection.terminate()
            elif connection.is_in_transaction():
                await roll_back(connection)
            pool = self._source.pool
            if pool is not None:
                await to_the_end(pool.release(connection, timeout=CLOSE_SECONDS), CLOSE_SECONDS * 2)
                return
            if connection.is_closed():
                return
            if users and self._source.prepared:
                await to_the_end(self._reset(connection), ROLLBACK_SECONDS)
        except BaseException as error:
            connection.terminate()
            if not isinstance(error, Exception):
                raise
            logger.debug("a connection couldn't be given back and is cut off: %s", type(error).__name__)
            return
        if self._closed:
            await close_connection(connection)
        elif not connection.is_closed():
            self._idle.append(connection)

    async def _reset(self, connection: Connection) -> None:
        await connection.reset()
        await self._source.set_up(connection)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement that commits by itself."""
        async with self.connection() as connection, asyncio.timeout(self._source.timeout):
            return await self._source.query(connection, sql, arguments)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection, None]:
        """A transaction of ours, within the deadline of one statement as a whole."""
        async with (
            self.connection() as connection,
            asyncio.timeout(self._source.timeout),
            in_transaction(connection, self._source),
        ):
            yield connection

    async def close(self) -> None:
        """Close the idle ones; those in use close when they're given back."""
        self._closed = True
        await self._opener.close()
        idle, self._idle = self._idle, []
        for connection in idle:
            await close_connection(connection)
