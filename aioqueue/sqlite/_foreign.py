"""Writing on a connection of the user's: recognised by what it is, without importing its library."""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import ConfigurationError, NotInTransaction
from aioqueue.runtime._shield import to_the_end
from aioqueue.sqlite._connections_statements import RemoteStatements, UsersStatements, in_savepoint
from aioqueue.sqlite._errors import translated
from aioqueue.sqlite._insert import are_only_rows, insert_jobs
from aioqueue.sqlite._insert_rows import InsertResult, insert_conversation, insert_rows
from aioqueue.sqlite._operate import change_within
from aioqueue.sqlite._operate_verbs import OperatingVerbs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._operate_steps import Change
    from aioqueue.vocabulary._job import NewJob

__all__ = ["insert_foreign", "operations_within", "run_foreign"]

T = TypeVar("T")
Answer = TypeVar("Answer")

_NOT_STORED = "the job can't be stored in the given transaction"
_NOT_CHANGED = "the jobs can't be changed in the given transaction"

_ACCEPTED = "a sqlite3.Connection, an aiosqlite.Connection, or SQLAlchemy's AsyncSession or AsyncConnection on aiosqlite"


async def insert_foreign(tx: object, path: Path, jobs: Sequence[NewJob], *, repeated: bool) -> InsertResult:
    """Store jobs inside the user's transaction; its owner commits. If it raises, the transaction is as it was.

    Raises:
        TypeError, NotInTransaction, ConfigurationError, StoreError: As of `run_foreign`.
        DuplicateJob, WrongJobType, BlockerNotFound, BlockerCycle: As of `insert_jobs`.
    """
    if are_only_rows(jobs):
        # Its statements are known beforehand, so that none needs a helper thread.
        return await run_foreign(
            tx,
            path,
            lambda connection: insert_rows(connection, jobs, repeated=repeated),
            _NOT_STORED,
            converse=lambda cursor: _converse(cursor, jobs, repeated=repeated),
        )

    def body(connection: Statements) -> InsertResult:
        with in_savepoint(connection, "aioqueue_insert"):
            return insert_jobs(connection, jobs, repeated=repeated)

    return await run_foreign(tx, path, body, _NOT_STORED)


async def _converse(cursor: Any, jobs: Sequence[NewJob], *, repeated: bool) -> InsertResult:
    conversation = insert_conversation(jobs, repeated=repeated)
    row: Sequence[Any] | None = None
    try:
        while True:
            statement, parameters = conversation.send(row)
            await cursor.execute(statement, parameters)
            row = await cursor.fetchone()
    except StopIteration as stop:
        result: InsertResult = stop.value
        return result


def operations_within(tx: object, path: Path, check: Callable[[], None]) -> OperatingVerbs:
    """The verbs for looking and operating, inside the user's transaction. If one raises, the transaction is as it was.

    Arguments:
        tx: As of `run_foreign`.
        path: The file of the jobs.
        check: Called before each verb, which it refuses by raising.
    """

    async def read(body: Callable[[Statements], T]) -> T:
        check()
        return await run_foreign(tx, path, body, "nothing can be read in the given transaction")

    async def change(change: Change[Answer], ids: Sequence[UUID], refused: Answer | None) -> Sequence[Answer]:
        check()
        return await run_foreign(tx, path, lambda connection: within(connection, change, ids, refused), _NOT_CHANGED)

    def within(connection: Statements, change: Change[Answer], ids: Sequence[UUID], refused: Answer | None) -> Sequence[Answer]:
        with in_savepoint(connection, "aioqueue_change"):
            return change_within(connection, change, ids, refused)[0]

    return OperatingVerbs(read, change)


async def run_foreign(
    tx: object,
    path: Path,
    body: Callable[[Statements], T],
    what: str,
    *,
    converse: Callable[[Any], Awaitable[T]] | None = None,
) -> T:
    """Run statements inside the user's transaction; its owner commits.

    A sqlite3 connection is used in the caller's thread, so it must be one that may be used there, and it waits for
    the write lock as long as its own `timeout` says: begin its transaction with BEGIN IMMEDIATE. For aiosqlite the body runs
    in a helper thread, to its end, also if the caller is cancelled: nothing of it comes after what the caller does then.

    Arguments:
        tx: A connection or session.
        path: The file of the jobs.
        body: What is to be done.
        what: Begins the message of errors.
        converse: Does the same with a cursor of aiosqlite's, without that thread.

    Raises:
        TypeError: It isn't of a known library.
        NotInTransaction: It has no open transaction.
        ConfigurationError: It is connected to another file.
        StoreError: What the database said.
    """
    with translated(what):
        if isinstance(tx, sqlite3.Connection):
            if not tx.in_transaction:
                raise _not_in_transaction("sqlite3 connection")
            statements = UsersStatements(tx)
            _check_file(statements.execute("PRAGMA database_list").fetchall(), path)
            return body(statements)
        if _is_of(tx, "aiosqlite", "Connection"):
            return await _on_aiosqlite(tx, path, body, converse)
        if _is_of(tx, "sqlalchemy", "AsyncSession") or _is_of(tx, "sqlalchemy", "AsyncConnection"):
            return await _on_aiosqlite(await _aiosqlite_of(tx), path, body, converse)
    raise TypeError(f"tx must be {_ACCEPTED}, not {type(tx).__module__}.{type(tx).__qualname__}")


def _is_of(value: Any, library: str, name: str) -> bool:
    return any(each.__name__ == name and each.__module__.split(".")[0] == library for each in type(value).__mro__)


def _not_in_transaction(what: str) -> NotInTransaction:
    return NotInTransaction(
        f"this {what} has no open transaction, so the job would be committed on its own: "
        "execute BEGIN IMMEDIATE first, or leave tx out"
    )


def _check_file(databases: Sequence[Sequence[Any]], path: Path) -> None:
    # Rows of (number, name, file); our tables are found in `main` only, whatever else is attached.
    for _, name, file in databases:
        text = file.decode("utf-8", "surrogateescape") if isinstance(file, bytes) else file
        if name in {"main", b"main"}:
            if text and os.path.exists(text) and os.path.samefile(text, path):
                return
            raise ConfigurationError(
                f"tx is connected to {text or 'a database in memory'}, but the jobs are kept in {path}: "
                "a transaction can't span two files"
            )


async def _on_aiosqlite(
    connection: Any, path: Path, body: Callable[[Statements], T], converse: Callable[[Any], Awaitable[T]] | None
) -> T:
    if not connection.in_transaction:
        raise _not_in_transaction("aiosqlite connection")
    cursor = await connection.cursor()
    try:
        cursor.row_factory = None
        await cursor.execute("PRAGMA database_list")
        _check_file(await cursor.fetchall(), path)
        if converse is not None:
            return await converse(cursor)
    finally:
        await cursor.close()
    return await to_the_end(_in_helper_thread(connection, body), math.inf)


async def _in_helper_thread(connection: Any, body: Callable[[Statements], T]) -> T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, body, RemoteStatements(connection, loop))


async def _aiosqlite_of(tx: Any) -> Any:
    """The driver's connection under SQLAlchemy's, in a transaction."""
    # SQLAlchemy begins its own transaction at first use; sqlite3 begins the file's only at the first write.
    connection = await tx.connection() if _is_of(tx, "sqlalchemy", "AsyncSession") else tx
    if not connection.in_transaction():
        await connection.begin()
    driver = (await connection.get_raw_connection()).driver_connection
    if not _is_of(driver, "aiosqlite", "Connection"):
        raise TypeError(f"tx must be {_ACCEPTED}, not SQLAlchemy on {type(driver).__module__}.{type(driver).__qualname__}")
    if not driver.in_transaction:
        if driver.isolation_level is None:
            raise _not_in_transaction("SQLAlchemy connection (it is in AUTOCOMMIT mode)")
        cursor = await driver.execute("BEGIN IMMEDIATE")
        await cursor.close()
    return driver
