"""Looking and operating in a transaction: one of the store's own, or one on a connection of the user's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import Changed, JobFilter, ListOrder, Notification
from aioqueue.errors import ClientClosed, ConfigurationError, NotInTransaction, StoreError, StoreUnavailable
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind
from tests.sqlite.chains import chain, claim_one, end
from tests.sqlite.conftest import execute, new_job, outsider, query, spoil
from tests.sqlite.libraries import libraries
from tests.sqlite.waiting import after

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._store_operating import Operable
    from tests.sqlite.libraries import Begun

pytestmark = pytest.mark.anyio


async def failed(store: SQLiteStore, lease: int) -> UUID:
    await store.insert([new_job()])
    job = await claim_one(store, lease)
    await store.settle([end(job, SettlementKind.FAILED)])
    return job.id


async def look(operations: Operable, job_id: UUID, waiting: UUID) -> None:
    """All the verbs that look see what was inserted in the transaction."""
    assert [None if job is None else job.key for job in await operations.fetch([job_id, new_id()])] == ["é", None]
    assert [job is not None for job in await operations.fetch_ends([job_id])] == [True]
    assert [job.id for job in (await operations.list(JobFilter(tag="t"), 5)).jobs] == [job_id]
    assert [job.id for job in (await operations.list(JobFilter(tag="t"), 5, order=ListOrder.DUE)).jobs] == [job_id]
    assert (await operations.list_ids(JobFilter(key="é"), 5)).ids == (job_id,)
    assert [job.id for job in (await operations.list_chain(job_id, 5)).jobs] == [job_id]
    assert [each.type for each in await operations.list_blockers(waiting, 5)] == ["a"]
    assert [each.job_id for each in await operations.list_dependents(job_id, 5)] == [waiting]
    found = await operations.find(["a"], "é")
    assert found is not None
    assert found.id == job_id
    assert (await operations.stats()).types["waits"].counts == {JobState.BLOCKED: 1}
    assert [lease.worker for lease in await operations.leases()] == ["w"]
    assert await operations.standing(job_id, ["a"]) is not None


async def change(operations: Operable, failed_id: UUID, job_id: UUID, gone: UUID) -> None:
    assert await operations.retry([failed_id, job_id]) == [Changed.DONE, Changed.WRONG_STATE]
    assert await operations.run_now([job_id, new_id()]) == [Changed.DONE, Changed.NOT_FOUND]
    assert await operations.delete([gone]) == [Changed.DONE]
    assert [None if job is None else job.state for job in await operations.fetch([failed_id, gone])] == [JobState.READY, None]


@libraries
async def test_on_a_connection_of_the_users(store: SQLiteStore, path: Path, begun: Begun) -> None:
    lease = await store.open_lease("w", 600)
    failed_id, gone = await failed(store, lease), await failed(store, lease)
    job = new_job(key="é", tags=("t",), delay=60)
    waiting = after(job.id)
    async with begun(path) as tx:
        await store.insert([job, waiting], tx=tx)
        operations = store.within(tx)
        await look(operations, job.id, waiting.id)
        await change(operations, failed_id, job.id, gone)
        assert [None if each is None else each.state for each in await store.fetch([failed_id, job.id, gone])] == [
            JobState.FAILED,
            None,
            JobState.FAILED,
        ]
    assert [None if each is None else each.state for each in await store.fetch([failed_id, job.id, gone])] == [
        JobState.READY,
        JobState.READY,
        None,
    ]


async def test_in_one_of_our_own(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    failed_id, gone = await failed(store, lease), await failed(store, lease)
    job = new_job(key="é", tags=("t",), delay=60)
    waiting = after(job.id)
    heard: list[Notification] = []
    with store.subscribe(heard.append, finished=True):
        async with store.transaction() as tx:
            await tx.insert([job, waiting])
            await look(tx.operations, job.id, waiting.id)
            await change(tx.operations, failed_id, job.id, gone)
            with pytest.raises(ZeroDivisionError):
                async with tx.savepoint():
                    assert await tx.operations.delete([failed_id]) == [Changed.DONE]
                    raise ZeroDivisionError
            heard.clear()
            kept = tx.operations
        assert {gone} == {each for told in heard for each in told.finished or ()}
        assert {"a"} <= {each for told in heard for each in told.types or ()}
    assert await store.fetch([gone]) == [None]
    with pytest.raises(StoreUnavailable, match="ended"):
        await kept.fetch([gone])


@libraries
async def test_a_row_that_refuses_is_undone_alone(store: SQLiteStore, path: Path, begun: Begun) -> None:
    lease = await store.open_lease("w", 600)
    ids = [await failed(store, lease) for _ in range(4)]
    execute(
        path,
        f"CREATE TRIGGER stubborn BEFORE DELETE ON archive WHEN old.id = '{ids[1]}' BEGIN SELECT raise(ABORT, 'no'); END",
    )
    before = new_job()
    async with begun(path) as tx:
        await store.insert([before], tx=tx)
        assert await store.within(tx).retry(ids) == [Changed.DONE, Changed.WRONG_STATE, Changed.DONE, Changed.DONE]
        with pytest.raises(StoreError, match="no"):
            await store.within(tx).retry([ids[1]])
    assert query(path, "SELECT count(*) FROM job") == [(4,)]
    assert query(path, "SELECT id FROM archive") == [(str(ids[1]),)]


@libraries
async def test_all_of_a_long_chain_goes_in_the_transaction(
    store: SQLiteStore, path: Path, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.sqlite._operate_delete._PORTION", 2)
    steps = await chain(store, await store.open_lease("w", 600), 7)
    async with begun(path) as tx:
        assert await store.within(tx).delete([steps[3].id]) == [Changed.DONE]
    assert query(path, "SELECT id FROM job UNION ALL SELECT id FROM archive") == []


@libraries
async def test_odd_rows(store: SQLiteStore, path: Path, begun: Begun) -> None:
    jobs = [new_job(key="k") for _ in range(3)]
    await store.insert(jobs)
    spoil(path, jobs[0].id, "payload = CAST(x'22ff22' AS TEXT), type = CAST(x'ff61' AS TEXT)")
    spoil(path, jobs[1].id, "run_at = 'soon', created_at = x'00', id = 'no uuid, but as long as one of those'")
    async with begun(path) as tx:
        operations = store.within(tx)
        for order in ListOrder:
            page = await operations.list(JobFilter(), 5, order=order)
            assert len(page.jobs) == (0 if order is ListOrder.FINISHED else 3)
        found = await operations.find(["a"], "k")
        assert found is not None
        assert found.key == "k"


async def test_what_is_no_transaction(store: SQLiteStore, path: Path) -> None:
    with outsider(path) as connection, outsider(":memory:") as other:
        with pytest.raises(NotInTransaction):
            await store.within(connection).fetch([])
        other.execute("BEGIN")
        with pytest.raises(ConfigurationError):
            await store.within(other).delete([])
    with pytest.raises(TypeError):
        await store.within(None).retry([])
    await store.close()
    operations = store.within(object())
    with pytest.raises(ClientClosed):
        await operations.stats()


async def test_a_caller_that_is_cancelled_gets_its_connection_back(store: SQLiteStore, path: Path) -> None:
    aiosqlite = pytest.importorskip("aiosqlite")
    await store.insert([new_job() for _ in range(5)])
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        connection.text_factory = bytes
        await connection.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(store.within(connection).list(JobFilter(), 5))
        while connection.text_factory is bytes:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert connection.text_factory is bytes
        await connection.rollback()
