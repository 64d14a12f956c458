"""The libraries whose transactions can be enqueued in, all used in the same way by the tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager


@dataclass
class Opened:
    """An object for `tx=` with a transaction open, and what its owner does with it."""

    tx: Any
    execute: Callable[[str], Awaitable[object]]
    commit: Callable[[], Awaitable[object]]
    rollback: Callable[[], Awaitable[object]]
    savepoint: Callable[[], AbstractAsyncContextManager[Any]]


def of_asyncpg(connection: Any, transaction: Any) -> Opened:
    return Opened(connection, connection.execute, transaction.commit, transaction.rollback, connection.transaction)


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Opened]:
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        yield of_asyncpg(connection, transaction)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Opened]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield of_asyncpg(connection, transaction)


@asynccontextmanager
async def psycopg_connection(url: str) -> AsyncIterator[Opened]:
    connection = await psycopg.AsyncConnection.connect(url)
    async with connection:
        yield Opened(
            connection,
            lambda statement: connection.execute(statement.encode()),
            connection.commit,
            connection.rollback,
            connection.transaction,
        )
        await connection.rollback()


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


def of_sqlalchemy(tx: AsyncSession | AsyncConnection) -> Opened:
    return Opened(tx, lambda statement: tx.execute(text(statement)), tx.commit, tx.rollback, tx.begin_nested)


@asynccontextmanager
async def sqlalchemy_session(url: str, driver: str) -> AsyncIterator[Opened]:
    engine = create_async_engine(sqlalchemy_url(url, driver))
    try:
        async with AsyncSession(engine) as session:
            yield of_sqlalchemy(session)
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_connection(url: str, driver: str) -> AsyncIterator[Opened]:
    engine = create_async_engine(sqlalchemy_url(url, driver))
    try:
        async with engine.connect() as connection:
            yield of_sqlalchemy(connection)
    finally:
        await engine.dispose()


LIBRARIES: dict[str, Callable[[str], AbstractAsyncContextManager[Opened]]] = {
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "psycopg": psycopg_connection,
    "session on asyncpg": lambda url: sqlalchemy_session(url, "asyncpg"),
    "session on psycopg": lambda url: sqlalchemy_session(url, "psycopg"),
    "connection on asyncpg": lambda url: sqlalchemy_connection(url, "asyncpg"),
    "connection on psycopg": lambda url: sqlalchemy_connection(url, "psycopg"),
}
