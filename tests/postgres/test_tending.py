"""What no claim leads to, and what others leave behind: orphans, roles with few rights, deadlocks, purged jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.postgres import _resolve, _settle
from aioqueue.postgres._lease_rights import WORKER
from aioqueue.postgres._settle_slowly import settle_portion
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import JobState, NewJob, SettlementKind, StoredState
from tests.postgres.stores import claimed, completed, connected, job, opened
from tests.postgres.test_blockers_races import after, failed, started, tend_all
from tests.postgres.test_rights import role_with
from tests.postgres_server import execute

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

LEFT = "SELECT (SELECT count(*) FROM aioqueue.blocker), (SELECT count(*) FROM aioqueue.chain_end)"


async def states(store: PostgresStore, *jobs: NewJob) -> list[JobState | None]:
    return [None if each is None else each.state for each in await store.fetch([new.id for new in jobs])]


async def test_a_dead_workers_last_attempt_fails_those_that_wait(postgres_url: str) -> None:
    """Also where they're settled by the hundred, with neighbours for which nobody waits."""
    async with opened(postgres_url) as store:
        lease_id, claims = await claimed(store, jobs=20)
        waiting = [after(job("d"), claim.id) for claim in claims[:10]]
        await store.insert(waiting)
        execute(postgres_url, f"DELETE FROM aioqueue.lease WHERE id = {lease_id}")
        results = await store.settle([failed(claim) for claim in claims], orphaned=True)
        assert {(each.lost, each.busy) for each in results} == {(None, False)}
        assert await states(store, *waiting) == [JobState.FAILED] * 10
        # Repeated, it answers as the first time did.
        results = await store.settle([failed(claim) for claim in claims], orphaned=True)
        assert {(each.lost, each.busy) for each in results} == {(None, False)}


async def test_a_deadlock_is_repeated(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    async def unlucky(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await settle_portion(*arguments)

    monkeypatch.setattr(_settle, "settle_portion", unlucky)
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        await store.insert([waiting := after(job("d"), claim.id)])
        assert [(each.lost, each.busy) for each in await store.settle([completed(claim)])] == [(None, False)]
        assert await states(store, waiting) == [JobState.READY]


async def test_a_role_that_may_not_delete_what_is_archived(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains that go along with a deleted one are gone all the same; what is archived of them may stay."""
    monkeypatch.setattr(_resolve, "MOST_TOLD", 1)
    async with opened(postgres_url) as store, role_with(postgres_url, WORKER) as (_, url), opened(url) as worker:
        await store.insert([root := job("root")])
        (claim,) = await started(store, [job("a")])
        step = after(job("b"), root.id)
        await store.settle([replace(completed(claim), kind=SettlementKind.CONTINUED, output=None, next=step)])
        others = [after(job("d"), root.id) for _ in range(5)]
        below = after(job("e"), claim.id)
        await store.insert([*others, below])
        assert await store.delete([root.id]) == [Changed.BLOCKS]
        assert await store.delete([root.id], cascade=True) == [Changed.DONE]
        await tend_all(worker)
        assert await states(store, root, step, below, *others) == [None] * 8
        await tend_all(store)
        assert execute(postgres_url, LEFT) == [(0, 0)]


async def test_nothing_is_left_of_what_was_purged(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        (claim,) = await started(store, [job("a")])
        await store.insert([first := after(job("b"), claim.id), second := after(job("c"), first.id)])
        await store.settle([failed(claim)])
        await tend_all(store)
        assert await states(store, first, second) == [JobState.FAILED] * 2
        assert execute(postgres_url, LEFT) == [(2, 2)]
        assert len((await store.prune(StoredState.FAILED, 0, None, 100)).ids) == 3
        for _ in range(2):
            await store.tend(100)
        assert execute(postgres_url, LEFT) == [(0, 0)]


async def test_all_edges_are_looked_through_in_turn(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.postgres._tend._SWEPT_ROWS", 3)
    async with opened(postgres_url) as store:
        blockers = [job("a") for _ in range(10)]
        await store.insert(blockers)
        waiting = [replace(job("d"), blockers=(NewBlocker(each.id, settled=True),)) for each in blockers]
        await store.insert(waiting)
        gone: list[UUID] = [each.id for each in blockers[1::2]]
        async with connected(postgres_url) as connection:
            await connection.execute("DELETE FROM aioqueue.job WHERE id = ANY($1)", gone)
        for _ in range(5):
            await store.tend(100)
        assert await states(store, *waiting) == [JobState.BLOCKED, JobState.READY] * 5
        await store.delete([each.id for each in waiting])
        for _ in range(20):
            await store.tend(100)
        assert execute(postgres_url, LEFT) == [(0, 0)]


async def test_jobs_expire_beside_those_that_others_hold(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        late = [job("undeclared", expires=0.0) for _ in range(3)]
        await store.insert([*late, kept := job("undeclared", expires=600.0)])
        blocked = replace(after(job("d"), kept.id), expires=0.0)
        await store.insert([blocked])
        await store.insert([below := after(job("e"), blocked.id)])
        async with other.transaction():
            await other.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", late[0].id)
            done = await store.tend(10)
            assert (done.expired, done.more) == (3, True)
            assert (await store.tend(10)).failed == 1
            assert not (await store.tend(10)).more
        assert (await store.tend(10)).expired == 1
        assert await states(store, *late, kept, blocked, below) == [
            *[JobState.CANCELLED] * 3,
            JobState.READY,
            JobState.CANCELLED,
            JobState.FAILED,
        ]
        (found,) = await store.fetch([below.id])
        assert found is not None
        assert found.errors[-1].message == (
            f"it waited for d {blocked.id}: cancelled: Expired: it wasn't started before it expired"
        )
