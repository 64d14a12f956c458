"""Connections: what falls silent is replaced, deadlines hold, nobody waits for what others hold."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import Client, Registry
from aioqueue.errors import StoreUnavailable
from tests.postgres.stores import CALLS, job, opened, port_of, proxied, transact, within
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def nothing() -> None: ...


@asynccontextmanager
async def behind(url: str, **options: Any) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """A store whose lines may fall silent, and whose own deadline is no help."""
    async with (
        Proxy(port_of(url)) as proxy,
        opened(proxied(url, proxy), **{"notify": False, "timeout": 120, **options}) as store,
    ):
        try:
            yield store, proxy
        finally:
            proxy.resume()


def silence(proxy: Proxy) -> None:
    """The network forgets all connections that are open; new ones work."""
    for connection in proxy.connections:
        connection.pause()


# -- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(CALLS))
async def test_deadlines_hold_on_silent_lines_and_what_is_silent_is_replaced(postgres_url: str, name: str) -> None:
    """A caller's own deadline ends a call soon, and not the same connections are given to those who come next."""
    call = CALLS[name]
    async with behind(postgres_url) as (store, proxy):
        for _ in range(2):
            await asyncio.gather(*[within(60, call(store)) for _ in range(4)])
        silence(proxy)
        tries = 1
        while not await within(0.5, call(store)):
            tries += 1
            assert tries < 12
        assert tries > 1


async def test_a_deadline_holds_while_a_commit_gets_no_answer(postgres_url: str) -> None:
    async with behind(postgres_url) as (store, proxy):

        async def commit() -> None:
            async with store.transaction() as tx:
                await tx.insert([job()])
                silence(proxy)

        assert not await within(0.5, commit())
        assert await within(30, transact(store))


async def test_a_statement_that_was_cancelled_leaves_its_connection_in_use(postgres_url: str) -> None:
    """It's asked, and answers: connections aren't thrown away for a caller's deadline."""
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        pids: set[int] = set()
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with store.transaction() as tx, asyncio.timeout(0.05):
                    pids.add((await tx.fetch("select pg_backend_pid()"))[0][0])
                    await tx.fetch("select pg_sleep(600)")
        assert len(pids) == 1
        active = "select query from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
        assert not [query for (query,) in execute(postgres_url, active) if "pg_sleep" in str(query)]


async def test_connections_that_were_idle_for_long_are_asked_first(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has a deadline here, and the store's own is two minutes."""
    async with behind(postgres_url) as (store, proxy):
        for call in CALLS.values():
            await within(60, call(store))
        silence(proxy)
        for module in ("_connections", "_connections_reserved", "_connections_users"):
            monkeypatch.setattr(f"aioqueue.postgres.{module}.TRUSTED_SECONDS", 0.0)
        async with asyncio.timeout(60):
            for call in CALLS.values():
                assert await within(40, call(store))


async def test_looking_is_repeated_on_a_connection_that_isnt_lost(postgres_url: str) -> None:
    """The server has ended all of them, and the event loop has had no time to notice."""
    backends = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'mine'"
    async with opened(f"{postgres_url}?application_name=mine", notify=False) as store:
        for name in ("fetch", "list", "stats"):
            await CALLS[name](store)
            execute(postgres_url, backends)
            await CALLS[name](store)


async def test_an_enqueue_that_gets_no_answer_stops_only_itself(postgres_url: str) -> None:
    async with behind(postgres_url) as (store, proxy):
        await store.close()  # the client opens it
        async with Client(store) as client:
            await client.enqueue(nothing())
            await client.stats()
            silence(proxy)
            first = asyncio.create_task(client.enqueue(nothing()))
            while not store._opened.operations._loans:
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await client.enqueue(nothing())
                await client.stats()
            assert not first.done()
            proxy.resume()
            await first


# -- what users hold --------------------------------------------------------------------------------------------------


async def test_who_waits_for_users_transactions_is_told_who_holds_them(postgres_url: str) -> None:
    async with opened(postgres_url, notify=False, pool_size=2, timeout=0.5) as store:
        leave = asyncio.Event()
        begun = [asyncio.Event(), asyncio.Event()]

        async def hold(event: asyncio.Event) -> None:
            async with store.transaction():
                event.set()
                await leave.wait()

        holders = [asyncio.create_task(hold(event), name=f"holder {number}") for number, event in enumerate(begun)]
        for event in begun:
            await event.wait()
        with pytest.raises(StoreUnavailable, match=r"none of 2 connections .*holder 0 for \d+ s, holder 1.*pool_size="):
            await transact(store)
        leave.set()
        await asyncio.gather(*holders)
        await transact(store)


async def test_who_waits_for_the_users_own_pool_is_told_who_holds_it(postgres_url: str) -> None:
    async with (
        asyncpg.create_pool(postgres_url, min_size=0, max_size=1) as pool,
        opened("postgresql://", pool=pool, notify=False, timeout=0.5) as store,
    ):
        async with pool.acquire():
            with pytest.raises(StoreUnavailable, match=r"held by nobody.*larger pool"):
                await transact(store)
            await store.insert([job()])
        await transact(store)


async def test_operations_inside_ones_own_transactions_never_wait_for_each_other(postgres_url: str) -> None:
    async with Client(postgres_url, pool_size=4) as client:
        inside = 0
        all_inside = asyncio.Event()

        async def look() -> None:
            nonlocal inside
            async with client.transaction() as tx:
                await tx.execute("select 1")
                inside += 1
                if inside == 4:
                    all_inside.set()
                await all_inside.wait()
                await client.stats()
                await client.list_jobs()

        async with asyncio.timeout(60):
            await asyncio.gather(*[look() for _ in range(4)])
