"""The connection of a diagnosis."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioqueue.postgres._connections_closing import close_connection
from aioqueue.postgres._connections_source import in_transaction
from aioqueue.postgres._errors import translated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aioqueue.postgres._connections_driver import Connection, Row
    from aioqueue.postgres._connections_source import Source

__all__ = ["Look"]


class Look:
    """One connection, opened at first use, and again after a check that failed or took too long.

    Arguments:
        source: Where it comes from.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._connection: Connection | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection, None]:
        """A transaction of ours: behind a pooler several statements need one."""
        if self._connection is None:
            self._connection = await self.source.open()
        try:
            with translated(self.source.description):
                async with in_transaction(self._connection, self.source):
                    yield self._connection
        except BaseException:
            await self.close()
            raise

    async def rows(self, sql: str, *arguments: Any) -> Sequence[Row]:
        """What one query gives."""
        async with self.transaction() as connection:
            return await connection.fetch(sql, *arguments)

    async def row(self, sql: str, *arguments: Any) -> Row:
        """The one row of a query that always has one."""
        return (await self.rows(sql, *arguments))[0]

    async def close(self) -> None:
        """Close it, if it's open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)
