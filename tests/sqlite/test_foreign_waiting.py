"""Other libraries' transactions: jobs that wait, claims that are held, outcomes and endings; and savepoints of our own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiosqlite
import pytest

from aioqueue.abc import Notification
from aioqueue.errors import BlockerNotFound, NotInTransaction, RowRejected
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim, Ending, JobState, LostReason, SettlementKind
from tests.sqlite.chains import continued, end
from tests.sqlite.conftest import new_job, outsider, query
from tests.sqlite.libraries import libraries
from tests.sqlite.waiting import after, complete, running, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from tests.sqlite.libraries import Begun

pytestmark = pytest.mark.anyio


@libraries
async def test_jobs_that_wait(store: SQLiteStore, path: Path, begun: Begun) -> None:
    lease = await store.open_lease("w", 600)
    ended, lives = await running(store, lease), await running(store, lease)
    await complete(store, ended)
    before, child = new_job(), new_job("child")
    waiting, ready = after(lives.id, child.id), after(ended.id)
    async with begun(path) as tx:
        await store.insert([before], tx=tx)
        with pytest.raises(BlockerNotFound):
            await store.insert([new_job("no"), after(lives.id, new_id())], tx=tx)
        assert [each.created for each in await store.insert([child, waiting, ready], tx=tx)] == [True] * 3
        assert await store.fetch([waiting.id]) == [None]
    assert query(path, "SELECT type, state, open_blockers FROM job WHERE state < 2 ORDER BY type, state") == [
        ("a", 1, 0),
        ("child", 1, 0),
        ("waits", 0, 2),
        ("waits", 1, 0),
    ]
    await complete(store, lives)
    assert [each.open_blockers for each in await store.fetch([waiting.id]) if each] == [1]


@libraries
async def test_a_claim_that_is_held_and_settled(store: SQLiteStore, path: Path, begun: Begun) -> None:
    lease = await store.open_lease("w", 600)
    jobs = [await running(store, lease) for _ in range(3)]
    waiting = after(jobs[0].id)
    await store.insert([waiting])
    async with begun(path) as tx:
        assert await store.hold(jobs[0].claim, lease, tx=tx) is None
        assert await store.hold(Claim(jobs[0].id, 7), lease, tx=tx) is LostReason.TAKEN
        assert await store.hold(Claim(new_id(), 1), lease, tx=tx) is LostReason.NOT_FOUND
        results = await store.settle(
            [
                end(jobs[0], output=b"1", children=(new_job("child"),)),
                continued(jobs[1], new_job("next")),
                end(jobs[2], children=(after(new_id()),)),
            ],
            tx=tx,
        )
        assert [each.lost for each in results] == [None] * 3
        assert isinstance(results[2].refused, BlockerNotFound)
        assert await state_of(store, waiting.id) is JobState.BLOCKED
    assert await state_of(store, waiting.id) is JobState.READY
    types = query(path, "SELECT type FROM job WHERE state = 1 ORDER BY type")
    assert types == [("child",), ("next",), ("waits",)]
    assert [each.lost for each in await store.settle([end(jobs[0], output=b"1")])] == [None]  # a repetition
    assert await state_of(store, jobs[2].id) is JobState.RUNNING


@libraries
async def test_endings(store: SQLiteStore, path: Path, begun: Begun) -> None:
    job = new_job()
    await store.insert([job])
    waiting = after(job.id)
    await store.insert([waiting])
    async with begun(path) as tx:
        assert await store.end([Ending(id=new_id(), kind=SettlementKind.FAILED)], tx=tx) == [False]
        with pytest.raises(BlockerNotFound):
            await store.end([Ending(id=job.id, kind=SettlementKind.COMPLETED, children=(after(new_id()),))], tx=tx)
        assert await store.end([Ending(id=job.id, kind=SettlementKind.COMPLETED, output=b"1")], tx=tx) == [True]
    assert await state_of(store, waiting.id) is JobState.READY


async def test_without_a_transaction(store: SQLiteStore, path: Path) -> None:
    with outsider(path) as connection:
        with pytest.raises(NotInTransaction):
            await store.hold(Claim(new_id(), 1), 1, tx=connection)
        with pytest.raises(NotInTransaction):
            await store.end([Ending(id=new_id(), kind=SettlementKind.COMPLETED)], tx=connection)
    with pytest.raises(TypeError):
        await store.settle([], tx=object())


async def test_a_caller_that_is_cancelled_gets_its_transaction_back_as_a_whole(store: SQLiteStore, path: Path) -> None:
    """What was begun on its connection has ended before the caller goes on: nothing of it comes after a rollback."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    new = [after(job.id) for _ in range(50)]
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        for turns in range(0, 40, 3):
            await connection.execute("BEGIN IMMEDIATE")
            inserting = asyncio.create_task(store.insert(new, tx=connection))
            for _ in range(turns):
                await asyncio.sleep(0)
            inserting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await inserting
            await connection.rollback()
            assert not connection.in_transaction
            assert query(path, "SELECT count(*) FROM job WHERE state = 0") == [(0,)]


async def test_savepoints_of_our_own(store: SQLiteStore, path: Path) -> None:
    kept, undone, again, refused = new_job(), new_job(), new_job(), new_job(priority=9)
    heard: list[Notification] = []
    with store.subscribe(heard.append):
        async with store.transaction() as tx:
            async with tx.savepoint():
                await tx.insert([kept])
                with pytest.raises(ZeroDivisionError):
                    async with tx.savepoint():
                        await tx.insert([undone, new_job("undone")])
                        raise ZeroDivisionError
            with pytest.raises(RowRejected):
                async with tx.savepoint():
                    await tx.insert([refused])
            async with tx.savepoint():
                await tx.insert([undone, again])
    assert query(path, "SELECT count(*), count(DISTINCT type) FROM job") == [(3, 1)]
    assert not any("undone" in (each.types or ()) for each in heard)


async def test_a_savepoint_whose_block_is_cancelled(store: SQLiteStore, path: Path) -> None:
    async with store.transaction() as tx:
        await tx.insert([new_job()])

        async def block() -> None:
            async with tx.savepoint():
                await tx.insert([new_job()])
                await asyncio.sleep(60)

        inner = asyncio.create_task(block())
        while not (await tx.fetch("SELECT 1 FROM job LIMIT 1 OFFSET 1")):
            await asyncio.sleep(0)
        inner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await inner
    assert query(path, "SELECT count(*) FROM job") == [(1,)]


async def test_a_transaction_of_our_own_settles(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job, other = await running(store, lease), await running(store, lease)
    heard: list[Notification] = []
    with store.subscribe(heard.append, finished=True):
        async with store.transaction() as tx:
            assert await tx.hold(job.claim, lease) is None
            async with tx.savepoint():
                (result,) = await tx.settle([end(job, output=b"1", children=(new_job("child"),))])
                assert result.lost is None
            assert await tx.end([Ending(id=other.id, kind=SettlementKind.COMPLETED)]) == [True]
            assert not any(each.finished for each in heard)
    assert {job.id, other.id} == {each for one in heard for each in one.finished or ()}
    assert lease in {each for one in heard for each in one.leases}
    assert query(path, "SELECT type FROM job") == [("child",)]
    assert [each.lost for each in await store.settle([end(other, output=b"1")])] == [LostReason.COMPLETED]
