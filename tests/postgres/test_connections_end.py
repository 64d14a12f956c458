"""Connections end, and nothing keeps what they don't need: requests' contexts, callers that have gone, loops that end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.errors import ClientClosed
from aioqueue.postgres import make_store
from aioqueue.postgres._connections_reserved import ReservedConnection
from tests.postgres.stores import CALLS, opened, transact, within
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio


class Mine:
    """What a request's context holds."""


async def freed(mine: weakref.ref[Mine]) -> None:
    """Wait until nothing holds it. A timer that was cancelled is held by the loop until many of them are."""
    loop = asyncio.get_running_loop()
    for _ in range(1_000):
        loop.call_later(600, loop.stop).cancel()
    async with asyncio.timeout(60):
        while mine() is not None:
            gc.collect()
            await asyncio.sleep(0.01)


request: ContextVar[Mine | None] = ContextVar("request", default=None)


async def test_nothing_keeps_the_context_of_the_request_in_which_it_was_begun(postgres_url: str) -> None:
    """The store is opened and all its connections are made in a request, which ends; what it had is free then."""
    stack: list[PostgresStore] = []
    seen: list[Mine | None] = []

    async def connect() -> Any:
        seen.append(request.get())
        return await asyncpg.connect(postgres_url, max_cached_statement_lifetime=0)

    async def first_request() -> weakref.ref[Mine]:
        mine = Mine()
        request.set(mine)
        store = make_store("postgresql://", connect=connect)
        await store.open()
        stack.append(store)
        with store.subscribe(lambda _: seen.append(request.get()), finished=True):
            for call in CALLS.values():
                await within(60, call(store))
            with pytest.raises(TimeoutError):
                async with store.transaction() as tx, asyncio.timeout(0.05):
                    await tx.fetch("select pg_sleep(600)")
            await store._opened.settler.settle([], orphaned=False)
        return weakref.ref(mine)

    mine = await asyncio.create_task(first_request())
    try:
        await freed(mine)
        assert set(seen) == {None}
    finally:
        await stack[0].close()


async def test_what_a_users_pool_opens_for_a_request_outlives_its_context(postgres_url: str) -> None:
    async with (
        asyncpg.create_pool(postgres_url, min_size=0, max_size=1, max_cached_statement_lifetime=0) as pool,
        opened("postgresql://", pool=pool, notify=False) as store,
    ):

        async def first_request() -> weakref.ref[Mine]:
            mine = Mine()
            request.set(mine)
            await transact(store)
            return weakref.ref(mine)

        await freed(await asyncio.create_task(first_request()))


# -- closing ----------------------------------------------------------------------------------------------------------


async def test_a_reserved_connection_that_is_put_in_order_meanwhile_isnt_lost(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next statement opens another, while the one whose statement was cut short is still being asked."""
    asked = asyncio.Event()
    opening = asyncio.Event()
    backends: list[Any] = []

    async def connect() -> Any:
        if backends:
            opening.set()
            await asked.wait()
        backends.append(await asyncpg.connect(postgres_url))
        return backends[-1]

    async def roll_back(connection: Any) -> bool:
        await opening.wait()
        await connection.execute("ROLLBACK")
        asyncio.get_running_loop().call_soon(asked.set)
        return True

    monkeypatch.setattr("aioqueue.postgres._connections_reserved.roll_back", roll_back)
    monkeypatch.setattr("aioqueue.postgres._connections_cleanup.PATIENCE_SECONDS", 0.01)
    async with opened("postgresql://", connect=connect, notify=False) as store:
        connection = ReservedConnection(store._opened.tracker, store._source)
        backends.clear()
        assert (await connection.fetch("select 1"))[0][0] == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connection.fetch("select pg_sleep(600)")
        assert (await connection.fetch("select 1"))[0][0] == 1
        assert [backend.is_closed() for backend in backends].count(False) == 1
        await connection.close()
        assert all(backend.is_closed() for backend in backends)


async def test_a_store_that_is_closed_meanwhile_says_so(postgres_url: str) -> None:
    """To whoever still holds a part of it; nothing is opened again."""
    store = make_store(postgres_url, notify=False)
    await store.open()
    parts = store._opened
    await store.close()
    for call in (
        lambda: parts.claims.claim(1, ["a"], 1),
        lambda: parts.operations.fetch("select 1"),
        lambda: parts.work.fetch("select 1"),
        lambda: parts.users.borrow(),
    ):
        with pytest.raises(ClientClosed):
            await call()


def cleanups() -> list[asyncio.Task[Any]]:
    """What puts connections in order."""
    return [task for task in asyncio.all_tasks() if task.get_name() == "aioqueue connection"]


CUT_SHORT: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "pool": lambda store: store._opened.work.fetch("select pg_sleep(600)"),
    "reserved": lambda store: store._opened.claims._connection.fetch("select pg_sleep(600)"),
    "transaction": lambda store: sleep_in_a_transaction(store),
}


async def sleep_in_a_transaction(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.fetch("select pg_sleep(600)")


@pytest.mark.parametrize("steps", range(3))
@pytest.mark.parametrize("what", list(CUT_SHORT))
async def test_a_cleanup_that_is_cancelled_leaves_no_connection_open(postgres_url: str, what: str, steps: int) -> None:
    """The event loop's end does so, also before the first step, to what a call that was cancelled before has left."""
    made: list[Any] = []

    async def connect() -> Any:
        made.append(await asyncpg.connect(postgres_url))
        return made[-1]

    async with opened("postgresql://", connect=connect, notify=False, pool_size=1) as store:
        made.clear()
        for _ in range(3):  # the pool has fewer: each is given back
            call = asyncio.ensure_future(CUT_SHORT[what](store))
            while not execute(postgres_url, "select 1 from pg_stat_activity where query like 'select pg_sleep%' limit 1"):
                await asyncio.sleep(0)
            call.cancel()
            while not (left := cleanups()):
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in left:
                task.cancel()
            await asyncio.wait([call, *left])
            await asyncio.sleep(0)
            assert all(connection.is_closed() for connection in made)
            sleeping = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where query like 'select pg_sleep%'"
            execute(postgres_url, sleeping)
