"""Enqueueing inside a transaction of the user's own, on a connection of any library that we know.

No library but asyncpg is imported: an object is recognised by the modules of its classes, so what isn't installed
isn't needed. All of them call the SQL function `enqueue_v1(json)` with one parameter of text, which makes the same jobs
as every other way, and notifies when the user's transaction commits.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from uuid import UUID

from aioqueue.errors import NotInTransaction
from aioqueue.postgres._insert_encoded import encode_jobs
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue.vocabulary._job import NewJob

__all__ = ["KNOWN", "Placeholder", "described", "insert", "kinds_of", "statement"]

KNOWN = (
    "an asyncpg Connection (also one from a pool)",
    "an SQLAlchemy AsyncSession, async_scoped_session or AsyncConnection on asyncpg or psycopg",
    "a psycopg AsyncConnection",
)
"""What `tx=` may be on PostgreSQL."""

Placeholder = Literal["%s", "$1"]
"""How a driver writes a parameter: psycopg and psycopg2 `%s`, asyncpg and the server itself `$1`."""

_INSERT = "select cast(id as text), created from {schema}.enqueue_v1(cast(cast({text} as text) as json))"
_INSERT_WAITING = _INSERT.replace("enqueue_v1", "enqueue_v2")
# Themselves, or what their chains have become.
_FINISHED = (
    "with given as (select unnest(cast(string_to_array(cast({text} as text), ',') as uuid[])) as id) "
    "select cast(id as text), false from given where exists (select from {schema}.archive a where a.id = given.id) "
    "or exists (select from {schema}.job c where c.chain_id = given.id) "
    "or exists (select from {schema}.archive c where c.chain_id = given.id)"
)

_IDLE = 0  # libpq's PQTRANS_IDLE
_SYNCHRONOUS = {
    ("sqlalchemy", "Session"),
    ("sqlalchemy", "Connection"),
    ("psycopg", "Connection"),
    ("psycopg2", "connection"),
    ("sqlite3", "Connection"),
}


class _Cursor(Protocol):
    async def execute(self, query: str, params: tuple[str, ...]) -> object: ...
    async def fetchall(self) -> Sequence[Sequence[object]]: ...
    async def close(self) -> None: ...


async def insert(tx: object, schema: str, jobs: Sequence[NewJob], *, repeated: bool = False) -> Sequence[Inserted]:
    """Store jobs in the transaction that is open on `tx`; its owner commits.

    A driver that begins a transaction by itself at the first statement does so here too.

    Arguments:
        tx: One of `KNOWN`.
        schema: The name of aioqueue's schema, unquoted.
        jobs: In the order of the results.
        repeated: Whether they may have been stored by an earlier try, and have finished since.

    Returns:
        One result each, in order. It holds if the transaction commits.

    Raises:
        NotInTransaction: The connection is in autocommit mode, with no transaction open.
        TypeError: It is something else.
    """
    run = _recognise(tx)
    if not jobs:
        return []
    finished: set[UUID] = set()
    if repeated:
        rows = await run(tx, _FINISHED, schema, ",".join(str(job.id) for job in jobs))
        finished = {UUID(str(row[0])) for row in rows}
    missing = [job for job in jobs if job.id not in finished]
    stored = iter(await run(tx, _INSERT, schema, encode_jobs(missing)) if missing else ())
    return [Inserted(job.id, created=False) if job.id in finished else _inserted(next(stored)) for job in jobs]


def _inserted(row: Sequence[object]) -> Inserted:
    return Inserted(UUID(str(row[0])), bool(row[1]))


def statement(schema: str, jobs: Sequence[NewJob], *, placeholder: Placeholder = "%s") -> tuple[str, tuple[str]]:
    """The statement that stores jobs, for any driver, and its one parameter.

    Arguments:
        schema: The name of aioqueue's schema, unquoted.
        jobs: What is to be stored.
        placeholder: How the driver writes a parameter.

    Returns:
        The SQL and the parameters. It returns a row each, in order: id as text, and whether the job was created.
    """
    template = _INSERT_WAITING if any(job.blockers for job in jobs) else _INSERT
    return _query(template, schema, placeholder), (encode_jobs(jobs),)


def _query(template: str, schema: str, placeholder: str) -> str:
    quoted = '"' + schema.replace('"', '""') + '"'
    if placeholder == "%s":
        quoted = quoted.replace("%", "%%")
    elif placeholder == ":jobs":
        quoted = quoted.replace(":", r"\:")
    return template.format(schema=quoted, text=placeholder)


def _recognise(tx: object) -> Callable[[Any, str, str, str], Awaitable[Sequence[Sequence[object]]]]:
    """Which of the functions below writes on such an object."""
    names = kinds_of(tx)
    if names & {("asyncpg", "Connection"), ("asyncpg", "PoolConnectionProxy")}:
        return _asyncpg
    if ("psycopg", "AsyncConnection") in names:
        return _psycopg
    if names & {("sqlalchemy", "AsyncSession"), ("sqlalchemy", "async_scoped_session")}:
        return _session
    if ("sqlalchemy", "AsyncConnection") in names:
        return _sqlalchemy
    raise TypeError(
        f"tx={described(tx)} isn't a transaction that aioqueue can write in on PostgreSQL: it takes {', '.join(KNOWN)}"
    )


def kinds_of(tx: object) -> set[tuple[str, str]]:
    """What an object is: the libraries and names of its classes."""
    return {(base.__module__.partition(".")[0], base.__name__) for base in type(tx).__mro__}


def described(tx: object) -> str:
    """Name an object that can't be written with."""
    kind = type(tx)
    name = f"{kind.__module__}.{kind.__qualname__}"
    for base in kind.__mro__:
        if (base.__module__.partition(".")[0], base.__name__) in _SYNCHRONOUS:
            return f"<{name}> (a synchronous one: client.statement(call) gives SQL and parameters for it)"
    return f"<{name}>"


async def _asyncpg(tx: Any, template: str, schema: str, text: str) -> Sequence[Sequence[object]]:
    if not tx.is_in_transaction():
        raise NotInTransaction(
            "the asyncpg connection given as tx= has no open transaction: enqueue inside `async with connection.transaction():`"
        )
    return cast("Sequence[Sequence[object]]", await tx.fetch(_query(template, schema, "$1"), text))


async def _psycopg(tx: Any, template: str, schema: str, text: str) -> Sequence[Sequence[object]]:
    if tx.autocommit and int(tx.info.transaction_status) == _IDLE:
        raise NotInTransaction(
            "the psycopg connection given as tx= is in autocommit mode and has no open transaction: enqueue inside "
            "`async with connection.transaction():`, or connect without autocommit"
        )
    # The connection's own factories may make cursors with other placeholders, or rows that aren't tuples.
    cursor: _Cursor = sys.modules["psycopg"].AsyncCursor(tx, row_factory=_tuples)
    try:
        await cursor.execute(_query(template, schema, "%s"), (text,))
        return await cursor.fetchall()
    finally:
        await cursor.close()


def _tuples(_cursor: object) -> Callable[[Sequence[object]], tuple[object, ...]]:
    return tuple


async def _session(tx: Any, template: str, schema: str, text: str) -> Sequence[Sequence[object]]:
    return await _sqlalchemy(await tx.connection(), template, schema, text)


async def _sqlalchemy(tx: Any, template: str, schema: str, text: str) -> Sequence[Sequence[object]]:
    if tx.dialect.name != "postgresql":
        raise TypeError(f"tx= is an SQLAlchemy connection to {tx.dialect.name}, and the jobs are on PostgreSQL")
    raw = await tx.get_raw_connection()
    if raw.dbapi_connection.autocommit:
        raise NotInTransaction(
            "the SQLAlchemy connection given as tx= has the isolation level AUTOCOMMIT: the job would be committed at once; "
            "use a session or connection without it"
        )
    query = sys.modules["sqlalchemy"].text(_query(template, schema, ":jobs"))
    return cast("Sequence[Sequence[object]]", (await tx.execute(query, {"jobs": text})).all())
