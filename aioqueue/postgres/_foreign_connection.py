"""A user's transaction, of any library that we know, as the connection that our statements are written for.

No library but asyncpg is imported: an object is recognised by the modules of its classes, so what isn't installed
isn't needed. SQLAlchemy's transactions are those of the driver below it, once it has begun one.
"""

from __future__ import annotations

import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from aioqueue.errors import NotInTransaction
from aioqueue.postgres._errors import translated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from aioqueue.postgres._connections_driver import Connection

__all__ = ["Library", "checked_connection", "connection_of", "lent", "library_of", "psycopg_rows"]

Library = Literal["asyncpg", "psycopg", "sqlalchemy"]

_KNOWN = (
    "an asyncpg Connection (also one from a pool)",
    "an SQLAlchemy AsyncSession, async_scoped_session or AsyncConnection on asyncpg or psycopg",
    "a psycopg AsyncConnection",
)
_LIBRARIES: dict[tuple[str, str], Library] = {
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("psycopg", "AsyncConnection"): "psycopg",
    ("sqlalchemy", "AsyncSession"): "sqlalchemy",
    ("sqlalchemy", "async_scoped_session"): "sqlalchemy",
    ("sqlalchemy", "AsyncConnection"): "sqlalchemy",
}
_SYNCHRONOUS = {
    ("sqlalchemy", "Session"),
    ("sqlalchemy", "Connection"),
    ("psycopg", "Connection"),
    ("psycopg2", "connection"),
    ("sqlite3", "Connection"),
}

_IDLE = 0  # libpq's PQTRANS_IDLE
_PLACEHOLDER = re.compile(r"\$(\d+)")


async def connection_of(tx: object) -> Connection:
    """Give the connection on which a transaction of the user's is open.

    A driver that begins a transaction by itself at the first statement does so here too.

    Arguments:
        tx: A connection or session that `library_of` knows.

    Raises:
        NotInTransaction: The connection is in autocommit mode, with no transaction open.
        TypeError: It is something else.
    """
    with translated("the connection given as tx="):
        return await _connection_of(tx)


@asynccontextmanager
async def lent(tx: object) -> AsyncGenerator[Connection]:
    """The same, for a block."""
    yield await connection_of(tx)


async def _connection_of(tx: object) -> Connection:
    library = library_of(tx)
    connection = await checked_connection(tx, library)
    if library == "asyncpg":
        return cast("Connection", connection)
    if library == "psycopg":
        return cast("Connection", _Psycopg(connection))
    # The driver's connection is in the transaction that SQLAlchemy ends, and begins with its own first statement.
    await connection.exec_driver_sql("SELECT 1")
    return await _connection_of((await connection.get_raw_connection()).driver_connection)


def library_of(tx: object) -> Library:
    """Whose connection or session it is.

    Raises:
        TypeError: Nobody's that we know.
    """
    for kind in _kinds_of(tx):
        if (library := _LIBRARIES.get(kind)) is not None:
            return library
    raise TypeError(
        f"tx={_described(tx)} isn't a transaction that aioqueue can write in on PostgreSQL: it takes {', '.join(_KNOWN)}"
    )


def _kinds_of(tx: object) -> list[tuple[str, str]]:
    """What an object is: the libraries and names of its classes."""
    return [(base.__module__.partition(".")[0], base.__name__) for base in type(tx).__mro__]


def _described(tx: object) -> str:
    """Name an object that can't be written with."""
    name = f"{type(tx).__module__}.{type(tx).__qualname__}"
    if not _SYNCHRONOUS.isdisjoint(_kinds_of(tx)):
        return f"<{name}> (a synchronous one: client.statement(call) gives SQL and parameters for it)"
    return f"<{name}>"


async def checked_connection(tx: Any, library: Library) -> Any:
    """Give the connection itself, once it's known that what is written on it isn't committed at once; a session's, if it's one.

    Raises:
        NotInTransaction: It would be.
        TypeError: SQLAlchemy leads to another database.
    """
    if library == "asyncpg":
        if not tx.is_in_transaction():
            raise NotInTransaction(
                "the asyncpg connection given as tx= has no open transaction: use it inside "
                "`async with connection.transaction():`"
            )
        return tx
    if library == "psycopg":
        if tx.autocommit and int(tx.info.transaction_status) == _IDLE:
            raise NotInTransaction(
                "the psycopg connection given as tx= is in autocommit mode and has no open transaction: use it inside "
                "`async with connection.transaction():`, or connect without autocommit"
            )
        return tx
    connection = tx if ("sqlalchemy", "AsyncConnection") in _kinds_of(tx) else await tx.connection()
    if connection.dialect.name != "postgresql":
        raise TypeError(f"tx= is an SQLAlchemy connection to {connection.dialect.name}, and the jobs are on PostgreSQL")
    raw = await connection.get_raw_connection()
    if raw.dbapi_connection.autocommit:
        raise NotInTransaction(
            "the SQLAlchemy connection given as tx= has the isolation level AUTOCOMMIT: what is written would be committed at "
            "once; use a session or connection without it"
        )
    return connection


class _Psycopg:
    """A psycopg connection, with the two calls that are used of asyncpg's.

    Arguments:
        connection: In a transaction, or about to begin one.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        """Run one statement; the rows are tuples."""
        given: Any = arguments or None
        if hasattr(sys.modules["psycopg"], "AsyncRawCursor"):
            return await psycopg_rows(self._connection, "AsyncRawCursor", query, given)
        if given is not None:  # before 3.2
            query = _PLACEHOLDER.sub(r"%(p\1)s", query.replace("%", "%%"))
            given = {f"p{number}": argument for number, argument in enumerate(arguments, 1)}
        return await psycopg_rows(self._connection, "AsyncCursor", query, given)

    async def execute(self, query: str, *arguments: Any) -> str:
        """Run statements, or one with arguments."""
        await self.fetch(query, *arguments)
        return ""

    def is_closed(self) -> bool:
        """Whether nothing can be done with it any more."""
        return bool(self._connection.closed)

    def terminate(self) -> None:
        """Cut it off: its transaction is rolled back."""
        self._connection.pgconn.finish()


async def psycopg_rows(connection: Any, cursor_type: str, query: str, arguments: Any) -> Sequence[Any]:
    """Run one statement on a psycopg connection; the rows are tuples.

    Its own factories may make cursors with other placeholders, or other rows.
    """
    cursor = getattr(sys.modules["psycopg"], cursor_type)(connection, row_factory=_tuples)
    try:
        await cursor.execute(query, arguments)
        return cast("Sequence[Any]", [] if cursor.description is None else await cursor.fetchall())
    finally:
        await cursor.close()


def _tuples(_cursor: object) -> Callable[[Sequence[object]], tuple[object, ...]]:
    return tuple
