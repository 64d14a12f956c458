"""A user's transaction, of any library that we know, as the connection that our statements are written for.

No library but asyncpg is imported: an object is recognised by the modules of its classes, so what isn't installed
isn't needed. SQLAlchemy's transactions are those of the driver below it, once it has begun one.
"""

from __future__ import annotations

import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from aioqueue.errors import NotInTransaction
from aioqueue.postgres._errors import translated
from aioqueue.postgres._foreign import KNOWN, described, kinds_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from aioqueue.postgres._connections_driver import Connection

__all__ = ["connection_of"]

_IDLE = 0  # libpq's PQTRANS_IDLE
_PLACEHOLDER = re.compile(r"\$(\d+)")


@asynccontextmanager
async def connection_of(tx: object) -> AsyncGenerator[Connection]:
    """Give the connection on which a transaction of the user's is open. What fails in the block is translated.

    A driver that begins a transaction by itself at the first statement does so here too.

    Arguments:
        tx: One of `KNOWN`.

    Raises:
        NotInTransaction: The connection is in autocommit mode, with no transaction open.
        TypeError: It is something else.
    """
    with translated("the connection given as tx="):
        yield await _recognised(tx)


async def _recognised(tx: Any) -> Connection:
    names = kinds_of(tx)
    if names & {("asyncpg", "Connection"), ("asyncpg", "PoolConnectionProxy")}:
        if not tx.is_in_transaction():
            raise NotInTransaction(
                "the asyncpg connection given as tx= has no open transaction: use it inside "
                "`async with connection.transaction():`"
            )
        return cast("Connection", tx)
    if ("psycopg", "AsyncConnection") in names:
        if tx.autocommit and int(tx.info.transaction_status) == _IDLE:
            raise NotInTransaction(
                "the psycopg connection given as tx= is in autocommit mode and has no open transaction: use it inside "
                "`async with connection.transaction():`, or connect without autocommit"
            )
        return cast("Connection", _Psycopg(tx))
    if names & {("sqlalchemy", "AsyncSession"), ("sqlalchemy", "async_scoped_session")}:
        return await _below(await tx.connection())
    if ("sqlalchemy", "AsyncConnection") in names:
        return await _below(tx)
    raise TypeError(
        f"tx={described(tx)} isn't a transaction that aioqueue can write in on PostgreSQL: it takes {', '.join(KNOWN)}"
    )


async def _below(tx: Any) -> Connection:
    """The driver's connection below one of SQLAlchemy's, in the transaction that SQLAlchemy ends."""
    if tx.dialect.name != "postgresql":
        raise TypeError(f"tx= is an SQLAlchemy connection to {tx.dialect.name}, and the jobs are on PostgreSQL")
    raw = await tx.get_raw_connection()
    if raw.dbapi_connection.autocommit:
        raise NotInTransaction(
            "the SQLAlchemy connection given as tx= has the isolation level AUTOCOMMIT: what is written would be committed at "
            "once; use a session or connection without it"
        )
    await tx.exec_driver_sql("SELECT 1")  # SQLAlchemy begins the driver's transaction with its first statement
    return await _recognised(raw.driver_connection)


class _Psycopg:
    """A psycopg connection, with the two calls that are used of asyncpg's.

    Arguments:
        connection: In a transaction, or about to begin one.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        """Run one statement; the rows are tuples."""
        psycopg = sys.modules["psycopg"]
        given: Any = arguments or None
        # The connection's own factories may make cursors with other placeholders, or rows that aren't tuples.
        if (raw := getattr(psycopg, "AsyncRawCursor", None)) is not None:
            cursor = raw(self._connection, row_factory=_tuples)
        else:  # before 3.2
            cursor = psycopg.AsyncCursor(self._connection, row_factory=_tuples)
            if given is not None:
                query = _PLACEHOLDER.sub(r"%(p\1)s", query.replace("%", "%%"))
                given = {f"p{number}": argument for number, argument in enumerate(arguments, 1)}
        try:
            await cursor.execute(query, given)
            return cast("Sequence[Any]", [] if cursor.description is None else await cursor.fetchall())
        finally:
            await cursor.close()

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


def _tuples(_cursor: object) -> Callable[[Sequence[object]], tuple[object, ...]]:
    return tuple
