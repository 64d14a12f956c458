"""Beginning to wait for a chain that ends, goes on or is removed at that very moment: nobody is left waiting, or runs early."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import BlockerNotFound, StoreContended, StoreUnavailable
from aioqueue.postgres._errors import sqlstate
from aioqueue.testing.conformance._waiting import after, complete, ends_well, start_blocker, tend_all
from aioqueue.vocabulary._job import JobState, Settlement, SettlementKind
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute
from tests.processes import until

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

pytestmark = pytest.mark.anyio

ROUNDS = 40
WAITS_FOR_A_ROW = "select 1 from pg_locks where not granted and locktype in ('transactionid', 'tuple')"


def going_on(claimed: ClaimedJob, job_type: str) -> Settlement:
    return Settlement(
        id=claimed.id,
        claims=claimed.claims,
        lease_id=claimed.lease_id,
        kind=SettlementKind.CONTINUED,
        next=job(job_type),
    )


async def settled(store: PostgresStore, settlement: Settlement) -> None:
    """Settle, as a worker does: what is busy again."""
    while (result := (await store.settle([settlement]))[0]).busy:
        await asyncio.sleep(0)
    assert result.lost is None
    assert result.refused is None


async def inserted(store: PostgresStore, new: NewJob) -> None:
    """Insert, as a client does: what is contended again."""
    while True:
        try:
            await store.insert([new], repeated=True)
        except StoreContended:
            continue
        return


async def state_of(store: PostgresStore, job_id: UUID) -> JobState:
    (found,) = await store.fetch([job_id])
    assert found is not None
    return found.state


async def test_a_blocker_that_ends(postgres_url: str) -> None:
    """Whichever comes first: the dependent is ready once both are done, without anybody looking after it."""
    async with opened(postgres_url) as producer, opened(postgres_url) as worker:
        for number in range(ROUNDS):
            blocker = await start_blocker(worker)
            dependents = [after(job(), blocker.id) for _ in range(3)]
            if number % 2:
                await inserted(producer, after(job("first"), blocker.id))  # it's marked before
            await asyncio.gather(settled(worker, ends_well(blocker)), *(inserted(producer, each) for each in dependents))
            for each in dependents:
                assert await state_of(producer, each.id) is JobState.READY
        assert execute(postgres_url, "select count(*) from aioqueue.blocker where not resolved") == [(0,)]


async def test_a_blocker_that_goes_on(postgres_url: str) -> None:
    """Its next step has the mark then, so that its end is told."""
    async with opened(postgres_url) as producer, opened(postgres_url) as worker:
        lease_id = await worker.open_lease("w", 600)
        for _ in range(ROUNDS):
            blocker = await start_blocker(worker)
            dependent = after(job(), blocker.id)
            await asyncio.gather(settled(worker, going_on(blocker, "step")), inserted(producer, dependent))
            assert await state_of(producer, dependent.id) is JobState.BLOCKED
            (step,) = await worker.claim(lease_id, ["step"], 1)
            await settled(worker, ends_well(step))
            assert await state_of(producer, dependent.id) is JobState.READY


async def test_a_blocker_that_is_deleted(postgres_url: str) -> None:
    """It's gone, or it stays since somebody waits for it."""
    async with opened(postgres_url) as producer, opened(postgres_url) as operator:
        for _ in range(ROUNDS):
            blocker, dependent = job(), None
            await producer.insert([blocker])
            dependent = after(job(), blocker.id)

            async def insert(new: NewJob = dependent) -> bool:
                try:
                    await inserted(producer, new)
                except BlockerNotFound:
                    return False
                return True

            (changed,), stored = await asyncio.gather(operator.delete([blocker.id]), insert())
            await tend_all(operator)
            if stored and changed != "done":
                assert await state_of(producer, dependent.id) is JobState.BLOCKED
                assert await state_of(producer, blocker.id) is JobState.READY
            elif stored:
                assert await state_of(producer, dependent.id) is JobState.FAILED
            else:
                assert await producer.fetch([dependent.id, blocker.id]) == [None, None]


async def test_a_blocker_whose_row_is_waited_for_while_it_ends(postgres_url: str) -> None:
    """The end was committed after the statement that marks had begun: the next one finds it."""
    async with opened(postgres_url) as producer, opened(postgres_url) as worker, connected(postgres_url) as holder:
        blocker = await start_blocker(worker)
        dependent = after(job(), blocker.id)
        archived = """WITH gone AS (DELETE FROM aioqueue.job WHERE id = $1 RETURNING *)
            INSERT INTO aioqueue.archive (id, type, priority, run_at, state, attempt, claims, reschedules, position, created_at,
                                          finished_at, tags, metadata, payload, errors, output)
            SELECT id, type, priority, run_at, 4, attempt, claims, reschedules, position, created_at, now(), tags, metadata,
                   payload, errors, '1' FROM gone"""
        async with producer.transaction() as tx:
            await tx.execute("SET LOCAL deadlock_timeout = '1min'")
            inserting = None
            async with holder.transaction():
                await holder.execute(archived, blocker.id)
                inserting = asyncio.create_task(tx.insert([dependent]))
                await until(lambda: inserting.done() or execute(postgres_url, WAITS_FOR_A_ROW), "an insert that waits")
            try:
                await inserting
            except StoreContended:  # the machine was too slow for a tenth of a second: it's found all the same
                await tx.insert([dependent])
        assert await state_of(producer, dependent.id) is JobState.READY


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_snapshot_from_before_the_end(postgres_url: str, isolation: Any, marked: bool) -> None:
    """Above READ COMMITTED the blocker's end isn't seen: an error, and no dependent that nobody would tell."""
    async with opened(postgres_url) as store, connected(postgres_url) as users:
        blocker = await start_blocker(store)
        if marked:
            await store.insert([after(job("first"), blocker.id)])
        transaction = users.transaction(isolation=isolation)
        await transaction.start()
        await users.fetch("select from aioqueue.job")
        await complete(store, blocker)
        with pytest.raises(StoreUnavailable) as caught:
            await store.insert([after(job(), blocker.id)], tx=users)
        assert sqlstate(caught.value.__cause__) == "40001"
        await transaction.rollback()
        async with users.transaction(isolation=isolation):
            dependent = after(job(), blocker.id)
            await store.insert([dependent], tx=users)
        assert await state_of(store, dependent.id) is JobState.READY


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_an_end_while_somebodys_transaction_is_open(postgres_url: str, isolation: Any) -> None:
    """Whoever begins to wait holds the blocker's row: it's settled after the commit, and tells."""
    async with opened(postgres_url) as store, connected(postgres_url) as users:
        blocker = await start_blocker(store)
        dependent = after(job(), blocker.id)
        async with users.transaction(isolation=isolation):
            await store.insert([dependent], tx=users)
            (result,) = await store.settle([ends_well(blocker)])
            assert result.busy
        await settled(store, ends_well(blocker))
        assert await state_of(store, dependent.id) is JobState.READY


async def test_a_blocker_that_is_retried(postgres_url: str) -> None:
    """A chain that lives again is waited for again; its earlier end counts for nobody who comes later."""
    async with opened(postgres_url) as producer, opened(postgres_url) as operator:
        for _ in range(ROUNDS // 4):
            blocker = await start_blocker(operator)
            failing = Settlement(id=blocker.id, claims=blocker.claims, lease_id=blocker.lease_id, kind=SettlementKind.FAILED)
            await settled(operator, failing)
            dependent = after(job(), blocker.id)
            await asyncio.gather(operator.retry([blocker.id]), inserted(producer, dependent))
            await tend_all(operator)
            (again,) = await operator.claim(blocker.lease_id, ["blocker"], 1)
            if await state_of(producer, dependent.id) is JobState.FAILED:
                await settled(operator, ends_well(again))
                continue
            assert await state_of(producer, dependent.id) is JobState.BLOCKED
            await settled(operator, ends_well(again))
            assert await state_of(producer, dependent.id) is JobState.READY
