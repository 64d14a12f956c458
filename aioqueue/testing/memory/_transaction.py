"""A transaction of the store's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioqueue.errors import ConfigurationError
from aioqueue.testing.memory._insert import announce, insert_uncommitted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._job import Inserted, NewJob

    Verb = Callable[[str, Callable[[Database], Any]], Awaitable[Any]]

__all__ = ["MemoryTransaction", "SqlConnection"]


class SqlConnection(Protocol):
    """What runs a user's statements: a `sqlite3.Connection` in autocommit mode does."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any:
        """Run one statement; returns a cursor."""
        ...


class MemoryTransaction:
    """Jobs that nobody else sees until the commit. There is one at a time: whoever has it holds the database's turn.

    Arguments:
        verb: Has the store do something, if it's open.
        sql: Runs the user's statements.
    """

    def __init__(self, verb: Verb, sql: SqlConnection | None) -> None:
        self._verb = verb
        self._sql = sql
        self._open = False

    @property
    def connection(self) -> Any:
        """What runs the user's statements; None if nothing does."""
        return self._sql

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement of the user's; returns the number of rows that it changed."""
        return int(await self._verb("execute", lambda _: self._run(sql, arguments).rowcount))

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run one query of the user's; the rows are those of what runs it."""
        rows: Sequence[Any] = await self._verb("execute", lambda _: self._run(sql, arguments).fetchall())
        return rows

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs that others see, and listeners hear of, after the commit."""
        results: list[Inserted] = await self._verb("transaction.insert", lambda database: insert_uncommitted(database, jobs))
        return results

    def begin(self, database: Database) -> None:
        """Begin, in the user's database too."""
        if self._sql is not None:
            self._sql.execute("begin")
        self._open = True
        database.uncommitted = {}

    def commit(self, database: Database) -> None:
        """Make all of it visible, and tell listeners."""
        rows = list(database.uncommitted.values())
        if self._sql is not None:
            self._sql.execute("commit")
        self._end(database)
        for row in rows:
            database.add(row)
        announce(database, rows)

    def roll_back(self, database: Database) -> None:
        """Forget all of it, unless it was committed."""
        if self._open:
            if self._sql is not None:
                self._sql.execute("rollback")
            self._end(database)

    def _end(self, database: Database) -> None:
        self._open = False
        database.uncommitted = {}

    def _run(self, sql: str, arguments: Sequence[Any]) -> Any:
        if self._sql is None:
            raise ConfigurationError(
                "a store in memory runs no SQL by itself: MemoryStore(sql=sqlite3.connect(':memory:', isolation_level=None)) "
                "does"
            )
        return self._sql.execute(sql, arguments)
