"""Where the connections come from: URLs, a pool of the user's, a function of the user's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, Worker
from aioqueue.errors import ConfigurationError, StoreUnavailable
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
async def double(number: int) -> int:
    return 2 * number


async def works(client: Client, *, jobs: int = 40) -> None:
    """Enqueue, run and read results, with more slots than connections."""
    async with client, Worker(client, registry, concurrency=20):
        handles = await client.enqueue_many([double(number) for number in range(jobs)])
        handles += await asyncio.gather(*[client.enqueue(double(number)) for number in range(jobs, 2 * jobs)])
        async with client.transaction() as tx:
            assert (await tx.fetch("select 1 as one"))[0]["one"] == 1
            handles.append(await tx.enqueue(double(2 * jobs)))
        assert await asyncio.gather(*[handle.result(timeout=120) for handle in handles]) == [2 * n for n in range(2 * jobs + 1)]
        assert {(await handle.snapshot()).state for handle in handles} == {JobState.COMPLETED}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
async def test_urls(postgres_url: str, scheme: str) -> None:
    await works(Client(postgres_url.replace("postgresql", scheme, 1)))


async def test_a_small_pool_of_ours(postgres_url: str) -> None:
    await works(Client(postgres_url, pool_size=1))


async def test_a_users_pool(postgres_url: str) -> None:
    """A tiny one, used by others too; it's the user's to close."""
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=2) as pool, pool.acquire() as mine:
        await works(Client(pool))
        assert await mine.fetchval("select 1") == 1
        assert pool.get_size() <= 2


async def test_a_users_pool_serves_transactions_only_and_keeps_its_settings(postgres_url: str) -> None:
    queries: list[str] = []

    async def watched(connection: Any) -> None:
        connection.add_query_logger(lambda record: queries.append(record.query))

    async with asyncpg.create_pool(postgres_url, min_size=0, max_size=1, init=watched) as pool:
        async with Client(pool) as client:
            await client.enqueue(double(1))
            assert len((await client.list_jobs(types=[double.name])).jobs) == 1
            assert not queries
            async with client.transaction() as tx:
                await tx.enqueue(double(2))
            assert queries
        async with pool.acquire() as mine:
            assert await mine.fetchval("show enable_seqscan") == "on"


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.soak)])
async def test_more_slots_than_connections(postgres_url: str, count: int) -> None:
    """Jobs enqueue children, alone and in transactions, from all slots at once: nobody waits for ever, no lease is lost."""
    own = Registry()
    client: Client

    @own.job(name="child")
    async def child(number: int) -> int:
        return number

    @own.job(name="parent")
    async def parent(number: int) -> int:
        await client.enqueue(child(number))
        async with client.transaction() as tx:
            await tx.fetch("select 1")
            handle = await tx.enqueue(child(number))
        assert (await handle.snapshot()).id == handle.id
        return number

    async with (
        asyncpg.create_pool(postgres_url, min_size=0, max_size=2) as pool,
        Client(pool) as client,
        Worker(client, own, concurrency=20, lease=300, renew_every=0.5),
    ):
        handles = await client.enqueue_many([parent(number) for number in range(count)])
        assert await asyncio.gather(*[handle.result(timeout=240) for handle in handles]) == list(range(count))
        while execute(postgres_url, "select 1 from aioqueue.job limit 1"):
            await asyncio.sleep(0.05)
        ended = execute(postgres_url, "select type, count(*), max(claims), max(state) from aioqueue.archive group by type")
        assert sorted(ended) == [("child", 2 * count, 1, 4), ("parent", count, 1, 4)]
        assert pool.get_size() <= 2


async def test_a_users_function(postgres_url: str) -> None:
    opened: list[Any] = []

    async def connect() -> Any:
        opened.append(await asyncpg.connect(postgres_url, server_settings={"application_name": "mine"}))
        return opened[-1]

    await works(Client(connect=connect))
    assert opened
    assert all(connection.is_closed() for connection in opened)


@pytest.mark.parametrize("error", [OSError("no route"), asyncpg.CannotConnectNowError("starting")])
async def test_a_function_that_fails(error: Exception) -> None:
    async def connect() -> Any:
        raise error

    with pytest.raises(StoreUnavailable):
        await Client(connect=connect).open()


async def test_both_are_refused(postgres_url: str) -> None:
    async def connect() -> Any:
        raise AssertionError

    async with asyncpg.create_pool(postgres_url, min_size=0, max_size=1) as pool:
        with pytest.raises(ConfigurationError):
            Client(pool, connect=connect)


@pytest.mark.parametrize(
    "url",
    ["postgresql://nobody:hunter2@127.0.0.1:1/none", "postgresql://nobody:hunter2@127.0.0.1:1/none?passfile=hunter2"],
)
async def test_a_password_is_never_shown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(url)
    with pytest.raises(StoreUnavailable) as caught:
        await client.open()
    for text in (repr(client), client.store.description, str(caught.value), caplog.text):
        assert "hunter2" not in text


async def test_nothing_is_left_open(postgres_url: str) -> None:
    """Opened, used and closed again and again, in all ways, also by an error and by a cancellation."""

    async def use(end: Callable[[], Awaitable[None]]) -> None:
        async with Client(postgres_url) as client:
            await client.enqueue(double(1))
            await end()

    async def well() -> None: ...

    async def badly() -> None:
        raise ZeroDivisionError

    await use(well)
    with pytest.raises(ZeroDivisionError):
        await use(badly)
    task = asyncio.create_task(use(asyncio.Event().wait))
    while not execute(postgres_url, "select 1 from aioqueue.job offset 2"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
