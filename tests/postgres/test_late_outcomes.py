"""What keeps one outcome from being written costs its own job something, and no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from aioqueue import Client, JobFailed, JobState, Registry, Retry, Worker, current_attempt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

registry = Registry()
runs: list[int] = []
gate = asyncio.Event()
started = asyncio.Semaphore(0)

TRIGGER = """
CREATE FUNCTION public.in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.payload->>'number' = '0' THEN {what}; END IF;
    RETURN new;
END $$;
CREATE TRIGGER in_the_way BEFORE INSERT ON aioqueue.archive FOR EACH ROW EXECUTE FUNCTION public.in_the_way();
"""


@registry.job
async def work(number: int) -> int:
    runs.append(number)
    return number


@registry.job
async def hold() -> int:
    started.release()
    await gate.wait()
    return current_attempt().number


@pytest.fixture
async def outsider(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    global gate, started
    runs.clear()
    gate, started = asyncio.Event(), asyncio.Semaphore(0)


async def neighbours_are_written(client: Client) -> None:
    for _ in range(3):
        handles: list[JobHandle[int]] = [await client.enqueue(work(number)) for number in range(1, 9)]
        for handle in handles:
            await handle.result(timeout=60)


async def test_an_outcome_whose_row_somebody_has_locked(postgres_url: str, outsider: asyncpg.Connection) -> None:
    async with Client(postgres_url) as client, Worker(client, registry, concurrency=3) as worker:
        held = await client.enqueue(hold())
        await started.acquire()
        transaction = outsider.transaction()
        await transaction.start()
        await outsider.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR SHARE", held.id)
        gate.set()
        await neighbours_are_written(client)
        assert (await held.snapshot()).state is JobState.RUNNING
        assert worker.health().unwritten == 1
        await transaction.rollback()
        assert await held.result(timeout=60) == 1


@pytest.mark.parametrize(
    "what",
    [
        "RAISE EXCEPTION 'not this one'",
        "PERFORM pg_advisory_xact_lock(77)",
        "PERFORM 1 FROM aioqueue.a_table_that_is_missing",
        "PERFORM pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())",
    ],
    ids=["raises", "waits for a lock", "looks for what isn't there", "ends the connection"],
)
async def test_an_outcome_that_a_trigger_keeps_from_being_written(
    postgres_url: str, outsider: asyncpg.Connection, what: str
) -> None:
    async with Client(postgres_url) as client:
        await outsider.execute(TRIGGER.format(what=what))
        await outsider.execute("SELECT pg_advisory_lock(77)")
        async with Worker(client, registry, concurrency=3) as worker:
            first = await client.enqueue(work(0))
            await neighbours_are_written(client)
            assert (await first.snapshot()).state is JobState.RUNNING
            await outsider.execute("DROP TRIGGER in_the_way ON aioqueue.archive; SELECT pg_advisory_unlock(77)")
            assert await first.result(timeout=60) == 0
            assert worker.health().running
    assert runs.count(0) == 1
    assert await outsider.fetchval("SELECT attempt FROM aioqueue.archive WHERE id = $1", first.id) == 1


async def test_an_orphan_that_a_trigger_keeps_from_being_written_ends_no_worker(
    postgres_url: str, outsider: asyncpg.Connection
) -> None:
    """The trigger's error is the same as that of a schema that doesn't fit."""
    async with Client(postgres_url) as client:
        orphans = [await client.enqueue(work(number).options(retry=Retry(max_attempts=1))) for number in range(3)]
        dead = await client.store.open_lease("dead", 60)
        assert len(await client.store.claim(dead, [work.name], 3)) == 3
        await outsider.execute("UPDATE aioqueue.lease SET expires_at = now() - interval '1 s' WHERE id = $1", dead)
        await outsider.execute(TRIGGER.format(what="PERFORM 1 FROM aioqueue.a_table_that_is_missing"))
        worker = Worker(client, registry, concurrency=3, lease=2, renew_every=0.2)
        async with worker:
            for orphan in orphans[1:]:
                with pytest.raises(JobFailed, match="WorkerLost"):
                    await orphan.result(timeout=60)
            await neighbours_are_written(client)
            assert (await orphans[0].snapshot()).state is JobState.RUNNING
            assert worker.health().running
            await outsider.execute("DROP TRIGGER in_the_way ON aioqueue.archive")
            with pytest.raises(JobFailed, match="WorkerLost"):
                await orphans[0].result(timeout=60)
