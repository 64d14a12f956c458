"""Unique keys that others hold: who waits for whom, and for how long; and that nobody deadlocks."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import Client, Registry, StoreContended, Worker
from aioqueue.postgres import make_store
from aioqueue.postgres._insert_rows import insert_on, insert_statements
from aioqueue.postgres._options_schema import Schema
from aioqueue.store_rules._unique_keys import unique_hash
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue import Call

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def work() -> None: ...


def keyed(key: str) -> Call[None]:
    return work().options(key=key, unique=True)


@pytest.fixture
async def holder(postgres_url: str) -> Any:
    """Somebody's open transaction, in which a job with the key K was enqueued."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("begin")
    async with Client(postgres_url) as client:
        await client.enqueue(keyed("K"), tx=connection)
    yield connection
    await connection.close()


async def test_nobody_waits_for_a_key_that_isnt_theirs(postgres_url: str, holder: Any) -> None:
    """Neither other keys nor jobs without any, alone, in hundreds or in one transaction, while fifty wait for K."""
    async with Client(postgres_url) as client:
        waiting = [asyncio.create_task(client.enqueue(keyed("K"))) for _ in range(50)]
        await asyncio.sleep(0)
        begun = time.monotonic()
        others = [keyed("L"), work(), *(keyed(f"N{number}") for number in range(100)), *(work() for _ in range(100))]
        async with asyncio.timeout(20):
            await asyncio.gather(*(client.enqueue(call) for call in others))
            await client.enqueue_many([keyed("M"), work()])
        took = time.monotonic() - begun
        assert not any(task.done() for task in waiting)
        assert took < 5  # the others' own work: in 15 s they'd have waited for K
        await holder.execute("rollback")
        async with asyncio.timeout(60):
            handles = await asyncio.gather(*waiting)
        assert len({handle.id for handle in handles}) == 1
        assert [handle.created for handle in handles].count(True) == 1


async def test_a_key_is_waited_for_until_its_holder_commits(postgres_url: str, holder: Any) -> None:
    async with Client(postgres_url) as client:
        waiting = [
            asyncio.create_task(client.enqueue(keyed("K"))),
            asyncio.create_task(client.enqueue_many([keyed("K"), work()])),
        ]
        await client.enqueue(keyed("L"))
        await holder.execute("commit")
        async with asyncio.timeout(60):
            alone, (many, other) = await waiting[0], await waiting[1]
        assert (alone.created, many.created, other.created) == (False, False, True)
        assert alone.id == many.id


@pytest.mark.parametrize("many", [False, True])
async def test_waiting_for_a_key_is_bounded_and_says_for_which(postgres_url: str, holder: Any, many: bool) -> None:
    async with Client(postgres_url, retry_for=0.5) as client:
        call = keyed("K")
        with pytest.raises(StoreContended) as caught:
            async with asyncio.timeout(20):
                await (client.enqueue_many([call]) if many else client.enqueue(call))
        assert many or "key 'K' of work was held by somebody's open transaction" in str(caught.value)
        assert not client._session.opened().enqueuer._inserter._keyed._contended  # nothing is kept of a key that was given up
        await holder.execute("rollback")
        assert (await client.enqueue(call)).created


class Between:
    """A connection on which something happens after its first insert."""

    def __init__(self, connection: Any, happens: Callable[[], Any]) -> None:
        self._connection = connection
        self._happens: Callable[[], Any] | None = happens

    async def fetch(self, sql: str, *arguments: Any) -> Any:
        rows = await self._connection.fetch(sql, *arguments)
        if "INSERT INTO" in sql and self._happens is not None:
            happens, self._happens = self._happens, None
            await happens()
        return rows

    async def execute(self, sql: str) -> Any:
        return await self._connection.execute(sql)


async def test_a_key_that_becomes_free_between_two_statements_doesnt_deadlock(postgres_url: str) -> None:
    """We hold the greater key; the smaller one's holder ends, another takes it, and waits for the greater one."""
    small, great = sorted(("a", "b"), key=lambda key: unique_hash("t", key).bytes)

    def new(key: str) -> NewJob:
        return NewJob(id=new_id(), type="t", key=key, unique=Unique())

    store, statements = make_store(postgres_url), insert_statements(Schema())
    await store.open()
    ours, theirs, other = [await asyncpg.connect(postgres_url) for _ in range(3)]
    first, taken = new(small), new(small)
    waiting: list[asyncio.Task[Any]] = []
    try:
        await store.insert([first])
        await ours.execute("begin")
        await theirs.execute("begin")

        async def happens() -> None:
            await other.execute("delete from aioqueue.job where id = $1", first.id)
            await insert_on(theirs, statements, [taken], repeated=False, note=None)
            waiting.append(asyncio.create_task(insert_on(theirs, statements, [new(great)], repeated=False, note=None)))
            blocked = "select count(*) from pg_stat_activity where wait_event = 'transactionid'"
            async with asyncio.timeout(60):
                while await other.fetchval(blocked) == 0:
                    await asyncio.sleep(0.01)

        async with asyncio.timeout(60):
            inserting = asyncio.create_task(
                insert_on(Between(ours, happens), statements, [new(small), new(great)], repeated=False, note=None)
            )
            while not waiting:
                await asyncio.sleep(0.01)
            (their_result,) = await waiting[0]
            await theirs.execute("commit")
            results = await inserting
            await ours.execute("commit")
        assert their_result.created
        assert [(each.id, each.created) for each in results] == [(taken.id, False), (their_result.id, False)]
    finally:
        for task in waiting:
            task.cancel()
        for each in (ours, theirs, other):
            each.terminate()
        await store.close()


async def test_concurrent_batches_of_keys_never_deadlock(postgres_url: str) -> None:
    chance = random.Random(5)
    async with Client(postgres_url) as client, Worker(client, registry, poll_interval=0.05):
        until = time.monotonic() + 4

        async def produce() -> None:
            async with Client(postgres_url) as mine:
                while time.monotonic() < until:
                    calls = [keyed(f"k{number}") for number in chance.sample(range(30), 12)]
                    if chance.random() < 0.5:
                        await mine.enqueue_many(calls)
                    else:
                        async with mine.transaction() as tx:
                            await tx.enqueue_many(calls)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(produce())
    connection = await asyncpg.connect(postgres_url)
    try:
        found = await connection.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    finally:
        await connection.close()
    assert found == 0
