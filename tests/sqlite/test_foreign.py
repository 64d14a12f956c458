"""Transactions of other libraries, and our own."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import aiosqlite
import anyio
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from aioqueue.errors import ClientClosed, ConfigurationError, NotInTransaction, RowRejected, StoreUnavailable
from tests.sqlite.conftest import new_job, outsider

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.abc import Notification
    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def stored(store: SQLiteStore) -> int:
    return sum(sum(each.counts.values()) for each in (await store.stats()).types.values())


async def test_sqlite3_connection(store: SQLiteStore, path: Path) -> None:
    with outsider(path) as connection:
        connection.row_factory = sqlite3.Row
        with pytest.raises(NotInTransaction):
            await store.insert([new_job()], tx=connection)
        connection.execute("BEGIN IMMEDIATE")
        job = new_job()
        assert [each.created for each in await store.insert([job, job], tx=connection)] == [True, False]
        assert await stored(store) == 0
        connection.execute("ROLLBACK")
        assert await stored(store) == 0
        connection.execute("BEGIN IMMEDIATE")
        await store.insert([job], tx=connection)
        connection.execute("COMMIT")
        assert await stored(store) == 1


async def test_a_rejected_row_leaves_the_transaction_to_its_owner(store: SQLiteStore, path: Path) -> None:
    with outsider(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await store.insert([new_job()], tx=connection)
        with pytest.raises(RowRejected):
            await store.insert([new_job(), new_job(priority=9)], tx=connection)
        assert connection.in_transaction
        connection.execute("COMMIT")
    assert await stored(store) == 1


async def test_another_file_is_refused(store: SQLiteStore, tmp_path: Path) -> None:
    for target in (":memory:", str(tmp_path / "other.db")):
        with outsider(target) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(ConfigurationError, match="connected to"):
                await store.insert([new_job()], tx=connection)


async def test_a_transaction_that_read_first_is_refused_with_the_reason(store: SQLiteStore, path: Path) -> None:
    with outsider(path, 0.01) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM job").fetchone()
        await store.insert([new_job()])
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.insert([new_job()], tx=connection)
        connection.execute("ROLLBACK")


async def test_aiosqlite_connection(store: SQLiteStore, path: Path) -> None:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        connection.row_factory = sqlite3.Row
        with pytest.raises(NotInTransaction):
            await store.insert([new_job()], tx=connection)
        await connection.execute("BEGIN IMMEDIATE")
        await store.insert([new_job()], tx=connection)
        assert await stored(store) == 0
        await connection.rollback()
        await connection.execute("BEGIN IMMEDIATE")
        await store.insert([new_job()], tx=connection)
        await connection.commit()
    assert await stored(store) == 1


async def test_sqlalchemy_session_and_connection(store: SQLiteStore, path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncSession(engine) as session:
        await store.insert([new_job()], tx=session)
        assert await stored(store) == 0
        await session.rollback()
        assert await stored(store) == 0
        await store.insert([new_job()], tx=session)
        await session.commit()
        assert await stored(store) == 1
    async with engine.begin() as connection:
        await store.insert([new_job()], tx=connection)
    assert await stored(store) == 2
    await engine.dispose()


async def test_sqlalchemy_may_begin_immediate(store: SQLiteStore, path: Path) -> None:
    """As the documentation says: from the beginning of its transaction nobody else gets the write lock."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")

    @event.listens_for(engine.sync_engine, "connect")
    def no_implicit_begin(connection: Any, record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def begin_immediate(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    async with AsyncSession(engine) as session:
        await session.execute(text("select 1"))
        with (
            outsider(path, 0.0) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("begin immediate")
        await store.insert([new_job()], tx=session)
        assert await stored(store) == 0
        await session.commit()
    assert await stored(store) == 1
    await engine.dispose()


async def test_what_is_not_known_is_refused(store: SQLiteStore) -> None:
    with pytest.raises(TypeError, match=r"builtins\.dict"):
        await store.insert([new_job()], tx={})


async def test_own_transaction(store: SQLiteStore) -> None:
    heard: list[Notification] = []
    async with store.transaction() as tx:
        await tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT)")
    with store.subscribe(heard.append):
        async with store.transaction() as tx:
            assert await tx.execute("INSERT INTO orders (what) VALUES (?), (?)", "tea", "cake") == 2
            (row,) = await tx.fetch("SELECT count(*) AS number FROM orders")
            assert (row[0], row["number"]) == (2, 2)
            await tx.insert([new_job("ordered")])
            with pytest.raises(sqlite3.IntegrityError):
                await tx.execute("INSERT INTO orders (id) VALUES (1)")
            with pytest.raises(RowRejected):
                await tx.insert([new_job("ordered"), new_job(priority=9)])
            assert await stored(store) == 0
            assert not any("ordered" in (each.types or ()) for each in heard)
        assert any(each.types == {"ordered"} for each in heard)
    assert await stored(store) == 1
    with pytest.raises(StoreUnavailable, match="ended"):
        await tx.execute("SELECT 1")


async def test_own_transaction_is_rolled_back(store: SQLiteStore) -> None:
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await tx.insert([new_job()])
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with store.transaction() as tx:
            await tx.insert([new_job()])
            scope.cancel()
            await anyio.sleep_forever()
    assert await stored(store) == 0
    await store.insert([new_job()])  # no lock was left
    assert await stored(store) == 1


async def test_a_long_transaction_is_named_in_the_log(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warned = anyio.Event()
    monkeypatch.setattr("aioqueue.sqlite._transaction._LONG_SECONDS", 0.0)
    monkeypatch.setattr("aioqueue.sqlite._transaction._warn", warned.set)
    async with store.transaction():
        with anyio.fail_after(60):
            await warned.wait()


async def test_closing_a_store_with_an_open_transaction(store: SQLiteStore) -> None:
    with pytest.raises(ClientClosed):
        async with store.transaction() as tx:
            await tx.insert([new_job()])
            await store.close()
    await store.open()
    assert await stored(store) == 0


@pytest.mark.parametrize("ends_well", [True, False])
async def test_what_a_transaction_leaves_on_its_connection_is_gone(store: SQLiteStore, path: Path, ends_well: bool) -> None:
    async def leave(transaction: Any) -> None:
        await transaction.execute("PRAGMA cache_size = 7")
        await transaction.execute("  create temp table job (id, state)")
        transaction.connection.row_factory = sqlite3.Row
        if not ends_well:
            raise LookupError

    with contextlib.suppress(LookupError):
        async with store.transaction() as tx:
            await leave(tx)
    async with store.transaction() as tx:
        assert (await tx.fetch("PRAGMA cache_size"))[0][0] == -8192
        await tx.insert([new_job()])
    assert await stored(store) == 1


async def test_ordinary_transactions_keep_their_connection(store: SQLiteStore) -> None:
    async with store.transaction() as tx:
        await tx.fetch("SELECT 1")
        await tx.insert([new_job()])
        first = tx._connection
    async with store.transaction() as tx:
        assert tx._connection is first
