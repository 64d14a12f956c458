"""Connections: what falls silent is replaced, deadlines hold, nobody waits for what others hold, users' leavings are undone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from aioqueue import Client, Registry
from aioqueue.abc import JobFilter
from aioqueue.errors import ClientClosed, StoreUnavailable, TransactionError
from aioqueue.postgres import make_store
from aioqueue.postgres._connections_reserved import ReservedConnection
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from tests.postgres.stores import opened
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def nothing() -> None: ...


def job(job_type: str = "a", **options: Any) -> NewJob:
    return NewJob(id=new_id(), type=job_type, **options)


def ids(url: str) -> set[UUID]:
    return {row[0] for row in execute(url, "select id from aioqueue.job")}  # type: ignore[misc]


@asynccontextmanager
async def behind(url: str, **options: Any) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """A store whose lines may fall silent, and whose own deadline is no help."""
    head, _, database = url.rpartition("/")
    host, _, port = head.rpartition(":")
    async with (
        Proxy(int(port)) as proxy,
        opened(f"{host}:{proxy.port}/{database}", **{"notify": False, "timeout": 120, **options}) as store,
    ):
        try:
            yield store, proxy
        finally:
            proxy.resume()


def silence(proxy: Proxy) -> None:
    """The network forgets all connections that are open; new ones work."""
    for connection in proxy.connections:
        connection.pause()


CALLS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "insert": lambda store: store.insert([job()]),
    "insert unique": lambda store: store.insert([job(key="k", unique=True)]),
    "fetch": lambda store: store.fetch([new_id()]),
    "list": lambda store: store.list(JobFilter(), 10),
    "stats": lambda store: store.stats(),
    "retry": lambda store: store.retry([new_id()]),
    "transaction": lambda store: transact(store),
    "claim": lambda store: store.claim(1, ["b"], 1),
    "release": lambda store: store.release(1, [], end=True),
    "next due": lambda store: store.next_due(["b"]),
}


async def transact(store: PostgresStore) -> None:
    async with store.transaction() as tx:
        await tx.insert([job()])
        await tx.fetch("select 1")


async def within(seconds: float, call: Awaitable[object]) -> bool:
    """Whether a call ended well under a caller's deadline, which holds within a second (and a little, on a busy machine)."""
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(seconds):
            await call
    except TimeoutError:
        return False
    except Exception:
        return True
    finally:
        assert asyncio.get_running_loop().time() - began < seconds + 2.5
    return True


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


# -- what users leave -------------------------------------------------------------------------------------------------

LEFT = {
    "role": "SET ROLE pg_monitor",
    "session authorization": "SET SESSION AUTHORIZATION pg_monitor",
    "prepared statements": "DEALLOCATE ALL",
    "setting": "SET search_path = nowhere; SET default_transaction_read_only = on",
    "temporary table": "CREATE TEMP TABLE left_over (a int)",
    "cursor": "DECLARE left_over CURSOR WITH HOLD FOR SELECT 1",
    "lock": "SELECT pg_advisory_lock(1)",
}


@pytest.mark.parametrize("what", list(LEFT))
async def test_what_a_transaction_leaves_on_its_connection_is_undone(postgres_url: str, what: str) -> None:
    """For every later one on the same connection, and whoever else needs the lock."""
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        await transact(store)
        async with store.transaction() as tx:
            await tx.insert([job()])
            await tx.execute(LEFT[what])
        for _ in range(2):
            await transact(store)
            await store.insert([job()])
            async with store.transaction() as tx:
                await tx.execute(LEFT["temporary table"])
                await tx.execute(LEFT["cursor"])
                assert (await tx.fetch("select current_user::text, current_setting('search_path')"))[0][1] != "nowhere"
        assert execute(postgres_url, "select pg_try_advisory_lock(1)") == [(True,)]


async def test_a_codec_that_a_transaction_leaves_is_of_no_consequence(postgres_url: str) -> None:
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        async with store.transaction() as tx:
            await tx.connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=lambda text: "mine")
        async with store.transaction() as tx:
            (new,) = await tx.insert([job()])
            assert (await tx.fetch("select id from aioqueue.job"))[0][0] == new.id


@pytest.mark.parametrize("by_hand", ["ROLLBACK", "ABORT AND CHAIN", "ROLLBACK; BEGIN", "COMMIT", "COMMIT AND CHAIN"])
async def test_a_transaction_that_was_ended_by_hand_ends_with_an_error(postgres_url: str, by_hand: str) -> None:
    async with opened(postgres_url, notify=False, pool_size=1) as store:
        before, after = job(), job()
        with pytest.raises(TransactionError, match="ended inside its block"):
            async with store.transaction() as tx:
                await tx.insert([before])
                await tx.execute(by_hand)
                await tx.insert([after])
        # What a statement commits by hand is committed, and what comes after it in no transaction too.
        chained = "CHAIN" in by_hand or "BEGIN" in by_hand
        expected = {before.id} if "COMMIT" in by_hand else set()
        assert ids(postgres_url) == (expected if chained else expected | {after.id})
        await transact(store)


async def test_savepoints_may_be_used(postgres_url: str) -> None:
    async with opened(postgres_url, notify=False) as store:
        kept, undone = job(), job()
        async with store.transaction() as tx:
            await tx.insert([kept])
            await tx.execute("SAVEPOINT mine")
            await tx.insert([undone])
            with pytest.raises(asyncpg.PostgresError):
                await tx.execute("SELECT 1 / 0")
            await tx.execute("ROLLBACK TO SAVEPOINT mine")
        assert ids(postgres_url) == {kept.id}


# -- contexts ---------------------------------------------------------------------------------------------------------


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
        link = ReservedConnection(store._opened.tracker, store._source)
        backends.clear()
        assert (await link.fetch("select 1"))[0][0] == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await link.fetch("select pg_sleep(600)")
        assert (await link.fetch("select 1"))[0][0] == 1
        assert [backend.is_closed() for backend in backends].count(False) == 1
        await link.close()
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
