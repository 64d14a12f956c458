"""Looking and operating within a transaction: the store's own, and those of other libraries."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue.abc import JobFilter, Operable
from aioqueue.errors import NotInTransaction, StoreContended
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import JobState
from tests.postgres.libraries import LIBRARIES
from tests.postgres.stores import claimed, completed, connected, job, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(anyio_backend: str, postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store:
        yield store


@asynccontextmanager
async def within(store: PostgresStore, url: str, name: str) -> AsyncIterator[tuple[Operable, Callable[[], Awaitable[object]]]]:
    """The verbs in a transaction that is open, and what commits it."""
    if name == "own":
        block = store.transaction()
        tx = await block.__aenter__()
        try:
            yield tx.operations, lambda: block.__aexit__(None, None, None)
        finally:
            if tx.connection.is_in_transaction():
                await block.__aexit__(None, None, None)
        return
    async with LIBRARIES[name](url) as library:
        yield store.within(library.tx), library.commit


KINDS = ["own", *LIBRARIES]


@pytest.mark.parametrize("kind", KINDS)
async def test_looking(store: PostgresStore, postgres_url: str, kind: str) -> None:
    lease_id, [running] = await claimed(store)
    [done] = await store.claim(lease_id, ["a"], 1) or [running]
    chain, waiting = job("b", key="k", tags=("t",)), job("c", delay=60)
    blocked = job("c", blockers=(NewBlocker(chain.id),))
    await store.insert([chain, waiting, blocked])
    async with connected(postgres_url) as connection:
        # The last time that Python knows, which psycopg can't read in every zone.
        await connection.execute("UPDATE aioqueue.job SET run_at = 'infinity' WHERE id = $1", waiting.id)
        await connection.execute(
            "ALTER DATABASE current_database SET timezone = 'Asia/Tokyo'".replace(
                "current_database", f'"{postgres_url.rpartition("/")[2].partition("?")[0]}"'
            )
        )
    async with within(store, postgres_url, kind) as (verbs, _):
        assert isinstance(verbs, Operable)
        assert await verbs.fetch([chain.id, running.id, job().id]) == await store.fetch([chain.id, running.id, job().id])
        assert await verbs.fetch_ends([chain.id, done.id]) == await store.fetch_ends([chain.id, done.id])
        assert await verbs.list(JobFilter(), 10) == await store.list(JobFilter(), 10)
        assert await verbs.list_ids(JobFilter(types=["c"]), 10) == await store.list_ids(JobFilter(types=["c"]), 10)
        assert await verbs.list_chain(chain.id, 10) == await store.list_chain(chain.id, 10)
        assert [each.chain_id for each in await verbs.list_blockers(blocked.id, 10)] == [chain.id]
        assert [each.job_id for each in await verbs.list_dependents(chain.id, 10)] == [blocked.id]
        assert await verbs.find(["b"], "k") == await store.find(["b"], "k")
        assert (await verbs.stats()).workers == ("w",)
        assert [each.id for each in await verbs.leases()] == [lease_id]
        standing = await verbs.standing(running.id, ["a"])
        assert standing is not None
        assert standing.lease_id == lease_id


@pytest.mark.parametrize("kind", KINDS)
async def test_operating(store: PostgresStore, postgres_url: str, kind: str) -> None:
    """What is changed is seen in the transaction at once, by others once it's committed, and is told then."""
    later, gone = job("b", delay=600), job("c")
    await store.insert([later, gone])
    heard: set[str] = set()
    finished: set[UUID] = set()
    told = asyncio.Event()

    def listen(notification: Notification) -> None:
        heard.update(notification.types or ())
        finished.update(notification.finished or ())
        if heard >= {"b"} and (kind != "own" or finished):
            told.set()

    async with within(store, postgres_url, kind) as (verbs, commit):
        with store.subscribe(listen):
            assert await verbs.run_now([later.id, gone.id]) == [Changed.DONE, Changed.DONE]
            assert await verbs.delete([gone.id]) == [Changed.DONE]
            assert await verbs.retry([later.id, gone.id]) == [Changed.WRONG_STATE, Changed.NOT_FOUND]
            inside = await verbs.fetch([later.id, gone.id])
            assert [None if each is None else each.state for each in inside] == [JobState.READY, None]
            outside = await store.fetch([later.id, gone.id])
            assert [None if each is None else each.state for each in outside] == [JobState.SCHEDULED, JobState.READY]
            assert not heard
            await commit()
            with anyio.fail_after(10):
                await told.wait()
    assert finished == ({gone.id} if kind == "own" else set())
    assert await store.fetch([gone.id]) == [None]


async def test_retrying_and_taking_it_back(store: PostgresStore, postgres_url: str) -> None:
    _, [claim] = await claimed(store)
    await store.settle([completed(claim)])
    async with connected(postgres_url) as connection:
        await connection.execute("UPDATE aioqueue.archive SET state = 6")
        transaction = connection.transaction()
        await transaction.start()
        assert await store.within(connection).retry([claim.id]) == [Changed.DONE]
        await transaction.rollback()
    [found] = await store.fetch([claim.id])
    assert found is not None
    assert found.state is JobState.FAILED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_verb_that_raises_leaves_the_transaction_as_it_was(store: PostgresStore, postgres_url: str, kind: str) -> None:
    free, held = job("b", delay=600), job("b", delay=600)
    await store.insert([free, held])
    async with connected(postgres_url) as other, other.transaction(), within(store, postgres_url, kind) as (verbs, commit):
        assert await verbs.run_now([free.id]) == [Changed.DONE]
        await other.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", held.id)
        if kind == "own":
            assert await verbs.delete([held.id]) == [Changed.CONTENDED]
        else:
            own: Any = verbs  # its owner says how long its statements wait
            async with own._lend() as connection:
                await connection.execute("SET LOCAL lock_timeout = '50ms'")
            for _ in range(2):
                with pytest.raises(StoreContended):
                    await verbs.delete([free.id, held.id])
        with pytest.raises(ValueError, match="cursor"):
            await verbs.list(JobFilter(), 1, "nonsense")
        assert len((await verbs.list(JobFilter(), 10)).jobs) == 2
        await commit()
    states = [None if each is None else each.state for each in await store.fetch([free.id, held.id])]
    assert states == [JobState.READY, JobState.SCHEDULED]


async def test_nothing_is_left_of_what_a_query_needs(store: PostgresStore, postgres_url: str) -> None:
    names = ("enable_seqscan", "plan_cache_mode", "timezone", "lock_timeout")
    async with connected(postgres_url) as connection, connection.transaction():
        before = [await connection.fetchval(f"SHOW {name}") for name in names]
        await store.within(connection).stats()
        await store.within(connection).delete([job().id])
        assert [await connection.fetchval(f"SHOW {name}") for name in names] == before


async def test_what_isnt_a_transaction(store: PostgresStore, postgres_url: str) -> None:
    with pytest.raises(TypeError, match="asyncpg"):
        await store.within(object()).stats()
    async with connected(postgres_url) as connection:
        with pytest.raises(NotInTransaction):
            await store.within(connection).delete([job().id])


async def test_a_cancelled_query_leaves_the_transaction_as_it_was(store: PostgresStore, postgres_url: str) -> None:
    async with connected(postgres_url) as other, connected(postgres_url) as connection, connection.transaction():
        async with other.transaction():
            await other.execute("LOCK TABLE aioqueue.archive IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await store.within(connection).list(JobFilter(), 10)
        assert (await store.within(connection).list(JobFilter(), 10)).jobs == ()
        assert isinstance(connection, asyncpg.Connection)
