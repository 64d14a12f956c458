"""Writing on a connection of the user's: recognised by what it is, without importing its library."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

from aioqueue.errors import ConfigurationError, NotInTransaction
from aioqueue.sqlite._errors import translated
from aioqueue.sqlite._insert import InsertResult, insert_conversation, insert_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aioqueue.vocabulary._job import NewJob

__all__ = ["insert_foreign"]

_ACCEPTED = "a sqlite3.Connection, an aiosqlite.Connection, or SQLAlchemy's AsyncSession or AsyncConnection on aiosqlite"


async def insert_foreign(tx: object, path: Path, jobs: Sequence[NewJob], *, repeated: bool) -> InsertResult:
    """Store jobs inside the user's transaction; its owner commits.

    A sqlite3 connection is used in the caller's thread, so it must be one that may be used there, and it waits for
    the write lock as long as its own `timeout` says: begin its transaction with BEGIN IMMEDIATE.

    Raises:
        TypeError: It isn't of a known library.
        NotInTransaction: It has no open transaction.
        ConfigurationError: It is connected to another file.
        StoreError: What the database said.
    """
    with translated("the job can't be stored in the given transaction"):
        if isinstance(tx, sqlite3.Connection):
            return _on_sqlite3(tx, path, jobs, repeated=repeated)
        if _is_of(tx, "aiosqlite", "Connection"):
            return await _on_aiosqlite(tx, path, jobs, repeated=repeated)
        if _is_of(tx, "sqlalchemy", "AsyncSession") or _is_of(tx, "sqlalchemy", "AsyncConnection"):
            return await _on_sqlalchemy(tx, path, jobs, repeated=repeated)
    raise TypeError(f"tx must be {_ACCEPTED}, not {type(tx).__module__}.{type(tx).__qualname__}")


def _is_of(value: Any, library: str, name: str) -> bool:
    return any(each.__name__ == name and each.__module__.split(".")[0] == library for each in type(value).__mro__)


def _on_sqlite3(connection: sqlite3.Connection, path: Path, jobs: Sequence[NewJob], *, repeated: bool) -> InsertResult:
    if not connection.in_transaction:
        raise _not_in_transaction("sqlite3 connection")
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        _check_file(cursor.execute("PRAGMA database_list").fetchall(), path)
    finally:
        cursor.close()
    return insert_rows(connection, jobs, repeated=repeated)


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


async def _on_aiosqlite(connection: Any, path: Path, jobs: Sequence[NewJob], *, repeated: bool) -> InsertResult:
    if not connection.in_transaction:
        raise _not_in_transaction("aiosqlite connection")
    cursor = await connection.cursor()
    try:
        cursor.row_factory = None
        await cursor.execute("PRAGMA database_list")
        _check_file(await cursor.fetchall(), path)
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
    finally:
        await cursor.close()


async def _on_sqlalchemy(tx: Any, path: Path, jobs: Sequence[NewJob], *, repeated: bool) -> InsertResult:
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
    return await _on_aiosqlite(driver, path, jobs, repeated=repeated)
