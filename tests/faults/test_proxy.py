"""The proxy does what the fault tests rely on."""

from __future__ import annotations

import asyncpg
import pytest

from tests.postgres_server import execute
from tests.proxy import Proxy

pytestmark = pytest.mark.anyio

LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, ConnectionError)


def through(url: str, proxy: Proxy) -> str:
    head, _, database = url.rpartition("/")
    return f"{head.rpartition(':')[0]}:{proxy.port}/{database}"


def port_of(url: str) -> int:
    return int(url.rpartition("/")[0].rpartition(":")[2])


async def test_it_passes_everything(empty_postgres_url: str) -> None:
    async with Proxy(port_of(empty_postgres_url)) as proxy:
        connection = await asyncpg.connect(through(empty_postgres_url, proxy))
        assert await connection.fetchval("select repeat('x', 1000000)") == "x" * 1000000
        await connection.close()


async def test_a_swallowed_commit_was_carried_out(empty_postgres_url: str) -> None:
    execute(empty_postgres_url, "create table thing (a int)")
    async with Proxy(port_of(empty_postgres_url)) as proxy:
        connection = await asyncpg.connect(through(empty_postgres_url, proxy))
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into thing values (1)")
        proxy.swallow("^commit")
        with pytest.raises(LOST):
            await transaction.commit()
        assert proxy.swallowed.is_set()
        await connection.close()
    assert execute(empty_postgres_url, "select a from thing") == [(1,)]


async def test_a_swallowed_statement_outside_a_transaction_was_carried_out(empty_postgres_url: str) -> None:
    execute(empty_postgres_url, "create table thing (a int)")
    async with Proxy(port_of(empty_postgres_url)) as proxy:
        connection = await asyncpg.connect(through(empty_postgres_url, proxy))
        await connection.fetch("insert into thing values ($1) returning a", 1)
        proxy.swallow("insert into thing")
        with pytest.raises(LOST):
            await connection.fetch("insert into thing values ($1) returning a", 2)
        await connection.close()
    assert execute(empty_postgres_url, "select a from thing order by a") == [(1,), (2,)]


async def test_a_paused_connection_goes_on_where_it_was(empty_postgres_url: str) -> None:
    async with Proxy(port_of(empty_postgres_url)) as proxy:
        connection = await asyncpg.connect(through(empty_postgres_url, proxy))
        proxy.pause()
        with pytest.raises(TimeoutError):
            await asyncpg.connect(through(empty_postgres_url, proxy), timeout=0.05)
        proxy.resume()
        assert await connection.fetchval("select 1") == 1
        await connection.close()


async def test_cut_and_refused(empty_postgres_url: str) -> None:
    async with Proxy(port_of(empty_postgres_url)) as proxy:
        connection = await asyncpg.connect(through(empty_postgres_url, proxy))
        proxy.refuse()
        proxy.cut()
        with pytest.raises(LOST):
            await connection.fetchval("select 1")
        with pytest.raises(ConnectionError):
            await asyncpg.connect(through(empty_postgres_url, proxy))
        await proxy.accept()
        connection = await asyncpg.connect(through(empty_postgres_url, proxy))
        await connection.close()
