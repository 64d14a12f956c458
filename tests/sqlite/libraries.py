"""Connections of other libraries, in a transaction that is committed at the end of the block."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.sqlite.conftest import outsider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Begun = Callable[[Path], AbstractAsyncContextManager[Any]]

__all__ = ["Begun", "libraries", "of_aiosqlite", "of_sqlalchemy", "of_sqlite3"]


@asynccontextmanager
async def of_sqlite3(path: Path) -> AsyncIterator[Any]:
    with outsider(path) as connection:
        connection.row_factory = lambda *_: None
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


@asynccontextmanager
async def of_aiosqlite(path: Path) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        await connection.execute("BEGIN IMMEDIATE")
        yield connection
        await connection.commit()


@asynccontextmanager
async def of_sqlalchemy(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncSession(engine) as session:
        yield session
        await session.commit()
    await engine.dispose()


libraries = pytest.mark.parametrize("begun", [of_sqlite3, of_aiosqlite, of_sqlalchemy])
