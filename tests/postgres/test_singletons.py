"""Leases of which only one may have a name, on PostgreSQL: who wins where several want it, or its holder renews late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from aioqueue.errors import SingletonHeld
from aioqueue.postgres._options_schema import Schema
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

NAME = "nightly"
LATE = "UPDATE aioqueue.lease SET expires_at = now() - interval '1 second'"
RENEW = "UPDATE aioqueue.lease SET expires_at = now() + interval '1 hour'"
WAITING = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store, asyncio.timeout(60):
        yield store


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_a_late_renewal_that_is_being_committed_is_seen(postgres_url: str, store: PostgresStore, end: str) -> None:
    first = await store.open_lease("one", 600, singleton=NAME)
    execute(postgres_url, LATE)
    async with connected(postgres_url) as holder, connected(postgres_url) as third:
        await holder.execute(f"BEGIN; {RENEW}")
        opening = asyncio.create_task(store.open_lease("two", 600, singleton=NAME))
        while not await third.fetchval(WAITING):
            assert not opening.done()
        await holder.execute(end)
    if end == "COMMIT":
        with pytest.raises(SingletonHeld) as caught:
            await opening
        assert (caught.value.name, caught.value.worker) == (NAME, "one")
        assert 3_500 < caught.value.ends_in <= 3_600
        assert [each.id for each in await store.leases()] == [first]
    else:
        second = await opening
        assert [(each.id, each.worker, each.singleton) for each in await store.leases()] == [(second, "two", NAME)]


async def test_of_many_that_want_it_one_gets_it(postgres_url: str, store: PostgresStore) -> None:
    """Also once its holder's time is over: each time one of them takes it over, and the others hear of that one."""
    async with opened(postgres_url) as second:
        for _ in range(10):
            asked = (each.open_lease("w", 600, singleton=NAME) for each in (store, second) * 10)
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(each) for each in results if not isinstance(each, int)] == [SingletonHeld] * 19
            assert len(await store.leases()) == 1
            execute(postgres_url, LATE)


async def test_who_has_lost_it_hears_of_it_and_has_lost_its_jobs(postgres_url: str, store: PostgresStore) -> None:
    """Its next renewal finds no lease, and what it ran is recovered as if it had died."""
    async with opened(postgres_url) as second:
        first = await store.open_lease("one", 600, singleton=NAME)
        new = job()
        await store.insert([new])
        (claim,) = await store.claim(first, ["a"], 1)
        execute(postgres_url, LATE)
        heard = asyncio.Event()
        with store.subscribe(lambda told: heard.set() if first in told.leases else None):
            await second.open_lease("two", 600, singleton=NAME)
            await heard.wait()
        session = store.lease_session()
        try:
            assert not (await asyncio.to_thread(session.renew, first, 600, [claim.claim])).valid
        finally:
            await asyncio.to_thread(session.close)
        assert [each.id for each in await second.take_expired(10)] == [new.id]


async def test_opening_looks_at_no_other_leases(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url, statement_cache_size=0)
    try:
        await connection.execute(
            "INSERT INTO aioqueue.lease (worker, expires_at, singleton) "
            "SELECT 'w', now() - interval '1 hour', CASE WHEN n % 2 = 0 THEN n::text END FROM generate_series(1, 5000) AS n"
        )
        arguments = [2**40, "w", 600.0, False, None, None, "10", None]
        for name in (None, "10"):
            arguments[6] = name
            plan = await explain(connection, all_statements(Schema())["open_lease"], arguments)
            assert plan.buffers < 60, plan.text
    finally:
        await connection.close()
