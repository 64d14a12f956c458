"""A connection that is reserved for one purpose, so that what is urgent waits for nothing but itself."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ClientClosed
from aioqueue.postgres._connections_cleanup import Cleanup, answers, roll_back
from aioqueue.postgres._connections_closing import close_connection, loop_has_ended, terminate, warn_of_ended_loop
from aioqueue.postgres._connections_opener import Opener
from aioqueue.postgres._connections_source import TRUSTED_SECONDS, in_transaction
from aioqueue.postgres._errors import breaks_connection, cuts_short, translated
from aioqueue.runtime._home import check_process

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._connections_source import Source
    from aioqueue.postgres._connections_tracker import Tracker

__all__ = ["ReservedConnection"]


class ReservedConnection:
    """One reserved connection, opened at first use and again after it broke. One statement, or transaction, at a time.

    Arguments:
        tracker: Holds it.
        source: Where it comes from.
    """

    def __init__(self, tracker: Tracker, source: Source) -> None:
        self._source = source
        self._opener = Opener(tracker, partial(tracker.open, source), self._keep)
        self._cleanup = Cleanup(tracker)
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
        check_process(self._process, self._source.description)
        self._check_open()
        using: Connection | None = None
        with translated(self._source.description):
            try:
                async with asyncio.timeout(self._source.timeout), self._lock:
                    using = await self._pick()
                    rows = await self._source.query(using, sql, arguments)
                    self._used = asyncio.get_running_loop().time()
                    return rows
            except BaseException as error:
                if using is not None:
                    await self._part(using, error)
                raise

    @asynccontextmanager
    async def transaction(self, settings: str = "") -> AsyncGenerator[Connection, None]:
        """A transaction of ours, within the deadline of one statement as a whole.

        Arguments:
            settings: Statements with which it begins, such as `HOLD_BRIEFLY`.

        Raises:
            StoreError: See `translate`.
        """
        check_process(self._process, self._source.description)
        self._check_open()
        using: Connection | None = None
        with translated(self._source.description):
            try:
                async with asyncio.timeout(self._source.timeout), self._lock:
                    using = await self._pick()
                    async with in_transaction(using, self._source, settings):
                        yield using
                    self._used = asyncio.get_running_loop().time()
            except BaseException as error:
                if using is not None:
                    await self._part(using, error)
                raise

    async def _pick(self) -> Connection:
        using = self._connection
        if using is not None and not using.is_closed():
            idle = asyncio.get_running_loop().time() - self._used
            if idle < TRUSTED_SECONDS or await answers(using):
                return using
        opened = await self._opener.open()
        if self._closed:
            terminate(opened)
            self._check_open()
        if (kept := self._connection) is not None and kept is not opened:
            terminate(kept)  # put in order meanwhile
        self._connection = opened
        return opened

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"{self._source.description} was closed")

    async def _part(self, using: Connection, error: BaseException) -> None:
        """Don't use a connection again that isn't known to be in order."""
        if loop_has_ended():
            warn_of_ended_loop()
        elif breaks_connection(error):
            terminate(using)
        elif isinstance(error, GeneratorExit):
            terminate(using)  # nothing can be waited for
        elif (cut := cuts_short(error)) or (not using.is_closed() and using.is_in_transaction()):
            if self._connection is using:
                self._connection = None
            await self._cleanup.run(self._clean_up(using), partial(terminate, using), late=cut)

    async def _clean_up(self, connection: Connection) -> None:
        if await roll_back(connection):
            self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        if self._closed or (self._connection is not None and not self._connection.is_closed()):
            terminate(connection)
        else:
            self._connection = connection
            self._used = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close the connection, bounded in time."""
        self._closed = True
        await self._opener.close()
        await self._cleanup.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)
