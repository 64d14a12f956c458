"""Where statements run: on a connection of ours, or on one of the user's, whatever that makes of its rows and texts."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

__all__ = ["RemoteStatements", "Rows", "Statements", "UsersStatements", "in_savepoint", "readable_text", "shown_text"]


def shown_text(value: bytes) -> str:
    """Read text of a column: what isn't UTF-8 is shown as well as it can be."""
    return value.decode("utf-8", "replace")


class _HasTextFactory(Protocol):
    text_factory: Any


@contextmanager
def readable_text(connection: _HasTextFactory) -> Generator[None]:
    """Have a connection read text as those of ours do, in the block, whatever its owner makes of it."""
    theirs = connection.text_factory
    connection.text_factory = shown_text
    try:
        yield
    finally:
        connection.text_factory = theirs


class Rows(Protocol):
    """What a statement gives."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Statements(Protocol):
    """Runs statements. A connection of ours is one as it is."""

    def execute(self, sql: str, parameters: dict[str, Any] = ..., /) -> Rows: ...


class UsersStatements:
    """A user's connection of sqlite3, whose rows may be anything: here they are tuples.

    Arguments:
        connection: It may be used in this thread.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: dict[str, Any] | None = None, /) -> Rows:
        """Run one statement, and fetch all its rows."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        with readable_text(self._connection):
            rows = cursor.execute(sql, parameters or {}).fetchall()
        return _Fetched(rows, cursor.rowcount)


class RemoteStatements:
    """A connection of aiosqlite, for a helper thread: each statement goes to the event loop, and from there on.

    Arguments:
        connection: That of aiosqlite.
        loop: Where it's used, and which goes on meanwhile.
    """

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    def execute(self, sql: str, parameters: dict[str, Any] | None = None, /) -> Rows:
        """Run one statement, and fetch all its rows."""
        return asyncio.run_coroutine_threadsafe(self._run(sql, parameters or {}), self._loop).result()

    async def _run(self, sql: str, parameters: dict[str, Any]) -> _Fetched:
        cursor = await self._connection.cursor()
        try:
            cursor.row_factory = None
            with readable_text(self._connection):
                await cursor.execute(sql, parameters)
                rows = await cursor.fetchall()
            return _Fetched(list(rows), cursor.rowcount)
        finally:
            await cursor.close()


class _Fetched:
    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


@contextmanager
def in_savepoint(connection: Statements, name: str) -> Generator[None]:
    """Undo what the block has done if it raises, and nothing else of the open transaction."""
    connection.execute(f"SAVEPOINT {name}")
    try:
        yield
    except BaseException:
        # A trigger, or the disk, may have ended the whole transaction: then there is nothing to undo.
        with suppress(sqlite3.Error):
            connection.execute(f"ROLLBACK TO {name}")
            connection.execute(f"RELEASE {name}")
        raise
    connection.execute(f"RELEASE {name}")
