"""What notifications cost, however much is enqueued: few, small, and not missed where they're off."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from tests.postgres.stores import opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LONGEST = 8_000
"""Bytes that PostgreSQL takes in one notification, exclusively."""

registry = Registry()


@registry.job
async def size(text: str) -> int:
    return len(text)


@registry.job
async def double(number: int) -> int:
    return 2 * number


@asynccontextmanager
async def tapped(url: str) -> AsyncIterator[list[str]]:
    """All notes of the channel, as any session hears them."""
    notes: list[str] = []
    connection = await asyncpg.connect(url)
    try:
        await connection.add_listener(Schema().channel, lambda *given: notes.append(given[3]))
        yield notes
        # Notes come in the order of the commits: with this one all before it have come.
        execute(url, f"select pg_notify('{Schema().channel}', 'the end')")
        with anyio.fail_after(120):
            while notes[-1:] != ["the end"]:
                await connection.fetchval("select 1")
        notes.pop()
    finally:
        await connection.close()


def about_jobs(notes: list[str]) -> list[str]:
    """Without the probe of a listener that has just begun."""
    return [note for note in notes if '"p":' not in note]


@pytest.mark.parametrize("count", [5_000, pytest.param(50_000, marks=pytest.mark.soak)])
async def test_many_rows_in_one_call_send_one_small_note_for_each_statement(postgres_url: str, count: int) -> None:
    async with tapped(postgres_url) as notes, opened(postgres_url, timeout=600) as store:
        await store.insert([NewJob(id=new_id(), type=f"type {number % 50}") for number in range(count)])
    # The server itself drops repetitions within a transaction.
    assert 1 <= len(about_jobs(notes)) <= 2
    assert max(map(len, notes)) < LONGEST


async def test_thousands_of_long_type_names_still_fit(postgres_url: str) -> None:
    """In ours, and in the function's that all other libraries call."""
    jobs = [NewJob(id=new_id(), type=f"{number:04}" + "é" * 120) for number in range(200)]
    async with tapped(postgres_url) as notes, opened(postgres_url) as store, store.transaction() as transaction:
        await transaction.insert(jobs[:100])
        sql, parameters = store.statement(jobs[100:], placeholder="$1")
        await transaction.fetch(sql, *parameters)
    assert 1 <= len(about_jobs(notes)) <= 2
    assert max(len(note.encode()) for note in notes) < LONGEST


async def test_a_large_payload_isnt_in_the_note_and_arrives(postgres_url: str) -> None:
    async with tapped(postgres_url) as notes, Client(postgres_url) as client, Worker(client, registry, poll_interval=3600):
        assert await (await client.enqueue(size("x" * 1_000_000))).result(timeout=120) == 1_000_000
    assert max(map(len, notes)) < 1_000


@pytest.mark.parametrize("seconds", [0.1, pytest.param(0.5, marks=pytest.mark.soak)])
async def test_fifty_producers_with_open_transactions(postgres_url: str, seconds: float) -> None:
    """None waits for another one's notification before its own commit: they are open all at once."""
    count = 50
    together = asyncio.Event()
    arrived = 0

    async def produce(pool: asyncpg.Pool[Any], client: Client, number: int) -> Any:
        nonlocal arrived
        async with pool.acquire() as connection, connection.transaction():
            handle = await client.enqueue(double(number), tx=connection)
            arrived += 1
            if arrived == count:
                together.set()
            await together.wait()
            await connection.execute("select pg_sleep($1)", seconds)
        return handle

    async with (
        asyncpg.create_pool(postgres_url, min_size=1, max_size=count) as pool,
        Client(postgres_url) as client,
        Worker(client, registry, concurrency=20, poll_interval=3600),
    ):
        with anyio.fail_after(120):
            handles = await asyncio.gather(*[produce(pool, client, number) for number in range(count)])
        results = await asyncio.gather(*[handle.result(timeout=120) for handle in handles])
    assert results == [2 * number for number in range(count)]


async def test_polling_does_everything_without_notifications(postgres_url: str) -> None:
    """Nothing is sent, no session listens, and jobs and results are found all the same."""
    options = {"notify": False, "poll_interval": 0.1}
    async with tapped(postgres_url) as notes:
        async with (
            Client(postgres_url, **options) as producer,
            Client(postgres_url, **options) as client,
            Worker(client, registry, concurrency=5, poll_interval=0.1),
        ):
            handles = await producer.enqueue_many([double(number) for number in range(100)])
            handles.append(await producer.enqueue(double(100).options(delay=0.3)))
            results = await asyncio.gather(*[handle.result(timeout=120) for handle in handles])
            listeners = execute(postgres_url, "select 1 from pg_stat_activity where query ilike 'listen%'")
        assert results == [2 * number for number in range(101)]
        assert len(listeners) <= 1  # the test's own
    assert notes == []
