"""What the lease thread connects with, in an event loop of its own, and within which time."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.errors import ClientClosed, ConfigurationError, StoreUnavailable
from aioqueue.postgres import make_store
from tests.postgres.stores import opened, port_of, proxied
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.abc import LeaseSession
    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def session_of(store: PostgresStore, *, timeout: float = 30.0) -> AsyncIterator[LeaseSession]:
    session = store.lease_session(timeout=timeout)
    try:
        yield session
    finally:
        await asyncio.to_thread(session.close)


async def renews(store: PostgresStore, session: LeaseSession) -> bool:
    lease_id = await store.open_lease("w", 600)
    return (await asyncio.to_thread(session.renew, lease_id, 600, [])).valid


class Tokens:
    """Fetches a token before each connection, with something that belongs to the event loop in which it was made."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()

    async def connect(self) -> Any:
        # As an HTTP session does: what it waits for belongs to its own loop, whichever runs.
        answer = self._loop.create_future()
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.1, answer.set_result, "token")
        await answer
        return await asyncpg.connect(self._url)


async def test_a_function_that_needs_the_clients_loop_is_refused_before_anything_is_claimed(postgres_url: str) -> None:
    """The lease thread calls it in a loop of its own, and says what may be given instead."""
    async with opened("postgresql://", connect=Tokens(postgres_url).connect, notify=False) as store:
        await store.stats()
        async with session_of(store) as session:
            with pytest.raises(ConfigurationError, match=r"connect=.*RuntimeError.*lease_connect="):
                await asyncio.to_thread(session.connect)


async def test_a_function_for_the_lease_thread_alone(postgres_url: str) -> None:
    loops: list[object] = []

    async def lease_connect() -> Any:
        loops.append(asyncio.get_running_loop())
        return await asyncpg.connect(postgres_url)

    async with opened(
        "postgresql://", connect=Tokens(postgres_url).connect, lease_connect=lease_connect, notify=False
    ) as store:
        async with session_of(store) as session:
            await asyncio.to_thread(session.connect)
            assert await renews(store, session)
        assert len(loops) == 1
        assert loops != [asyncio.get_running_loop()]


async def test_a_function_that_gives_a_connection_of_another_loop_is_refused(postgres_url: str) -> None:
    """It would be waited for for ever; and it isn't closed, as it's somebody else's."""
    mine = await asyncpg.connect(postgres_url)

    async def connect() -> Any:
        return mine

    try:
        async with opened(postgres_url, lease_connect=connect, notify=False) as store, session_of(store) as session:
            with pytest.raises(ConfigurationError, match=r"another event loop.*lease_connect="):
                await asyncio.to_thread(session.connect)
        assert await mine.fetchval("select 1") == 1
    finally:
        await mine.close()


async def test_a_pool_whose_password_comes_from_the_clients_loop_is_refused(postgres_url: str) -> None:
    head, _, rest = postgres_url.partition("://")
    tokens = Tokens(postgres_url)

    async def password() -> str:
        await (await tokens.connect()).close()
        return "unused"

    async with (
        asyncpg.create_pool(f"{head}://{rest}", password=password, min_size=0, max_size=1) as pool,
        opened("postgresql://", pool=pool, notify=False) as store,
        session_of(store) as session,
    ):
        with pytest.raises(ConfigurationError, match=r"pool=.*lease_connect="):
            await asyncio.to_thread(session.connect)


async def test_a_database_that_is_away_is_no_mistake_in_the_configuration(postgres_url: str) -> None:
    away = False

    async def connect() -> Any:
        if away:
            raise OSError("no route")
        return await asyncpg.connect(postgres_url)

    async with opened("postgresql://", connect=connect, notify=False) as store, session_of(store) as session:
        away = True
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(session.connect)
        away = False
        await asyncio.to_thread(session.connect)
        assert await renews(store, session)


async def test_a_function_that_hangs_in_the_other_loop_ends_with_a_hint(postgres_url: str) -> None:
    """Even if it doesn't let itself be cancelled."""
    loop = asyncio.get_running_loop()

    async def connect() -> Any:
        if asyncio.get_running_loop() is loop:
            return await asyncpg.connect(postgres_url)
        for _ in range(20):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        raise AssertionError

    async with opened("postgresql://", connect=connect, notify=False) as store:
        session = store.lease_session(timeout=0.5)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"connect= .*lease_connect="):
            await asyncio.to_thread(session.connect)
        assert time.monotonic() - began < 5
        await asyncio.to_thread(session.close)


@pytest.mark.parametrize("option", ["connect", "lease_connect"])
def test_what_cant_be_called_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        make_store("postgresql://", **{option: "postgresql://"})


async def test_each_call_ends_in_time_and_the_next_one_uses_a_new_connection(postgres_url: str) -> None:
    """The session's connection falls silent, and nothing else: neither is the next call lost, nor the lease."""
    async with (
        Proxy(port_of(postgres_url)) as proxy,
        opened(proxied(postgres_url, proxy), timeout=120, notify=False) as store,
        session_of(store, timeout=1.0) as session,
    ):
        lease_id = await store.open_lease("w", 600)
        before = set(proxy.connections)
        await asyncio.to_thread(session.connect)
        (silent,) = set(proxy.connections) - before
        for _ in range(3):
            silent.pause()
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await asyncio.to_thread(session.renew, lease_id, 600, [])
            assert time.monotonic() - began < 4
            known = set(proxy.connections)
            assert (await asyncio.to_thread(session.renew, lease_id, 600, [])).valid
            (silent,) = set(proxy.connections) - known
            assert (await asyncio.to_thread(session.renew, lease_id, 600, [])).valid
            assert set(proxy.connections) - known == {silent}
        silent.resume()


async def test_connecting_counts_too(postgres_url: str) -> None:
    async with (
        Proxy(port_of(postgres_url)) as proxy,
        opened(proxied(postgres_url, proxy), timeout=120, notify=False) as store,
        session_of(store, timeout=1.0) as session,
    ):
        lease_id = await store.open_lease("w", 600)
        proxy.pause()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await asyncio.to_thread(session.renew, lease_id, 600, [])
            assert time.monotonic() - began < 4
        proxy.resume()
        assert (await asyncio.to_thread(session.renew, lease_id, 600, [])).valid


async def test_a_store_that_isnt_open_gives_no_session(postgres_url: str) -> None:
    with pytest.raises(ClientClosed):
        make_store(postgres_url).lease_session()
