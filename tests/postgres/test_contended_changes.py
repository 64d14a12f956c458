"""Retrying, bringing forward and deleting while somebody's open transaction holds one of the jobs: the others are changed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.postgres import _operate
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import Ending, JobState, NewJob, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from tests.postgres_databases import Databases

JOBS, MOST_SECONDS = 1_000, 5.0
EMPTY = ";".join(f"DELETE FROM aioqueue.{table}" for table in ("job", "archive", "blocker", "chain_end", "dedup", "lease"))


@pytest.fixture(scope="module")
def url(postgres_databases: Databases) -> Iterator[str]:
    with postgres_databases.fresh() as url:
        yield url


@pytest.fixture
async def store(anyio_backend: str, url: str) -> AsyncIterator[PostgresStore]:
    execute(url, EMPTY)
    async with opened(url) as store:
        yield store


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is contended is left out after the first try."""
    monkeypatch.setattr(_operate, "_PATIENCE_SECONDS", 0.0)


def fails(each: NewJob) -> Ending:
    return Ending(id=each.id, kind=SettlementKind.FAILED)


async def failed(store: PostgresStore, jobs: Sequence[NewJob]) -> list[UUID]:
    await store.insert(jobs)
    assert all(await store.end([fails(each) for each in jobs]))
    return [each.id for each in jobs]


@asynccontextmanager
async def locked(url: str, job_id: UUID) -> AsyncIterator[None]:
    async with connected(url) as other, other.transaction():
        for table in ("job", "archive"):
            await other.execute(f"SELECT FROM aioqueue.{table} WHERE id = $1 FOR UPDATE", job_id)
        yield


async def all_but(ids: list[UUID], contended: UUID, changing: Any) -> None:
    """Change them: only this one is contended, and it doesn't take long."""
    begun = time.monotonic()
    results = dict(zip(ids, await changing, strict=True))
    assert Counter(results.values()) == {Changed.DONE: len(ids) - 1, Changed.CONTENDED: 1}
    assert results[contended] is Changed.CONTENDED
    assert time.monotonic() - begun < MOST_SECONDS


async def states(store: PostgresStore, ids: Sequence[UUID]) -> list[JobState | None]:
    return [each and each.state for each in await store.fetch(ids)]


@pytest.mark.parametrize("verb", ["retry", "run_now", "delete"])
async def test_one_of_a_thousand_is_locked(store: PostgresStore, url: str, verb: str) -> None:
    jobs = [job(delay=600) for _ in range(JOBS)]
    if verb == "retry":
        ids = await failed(store, jobs)
    else:
        await store.insert(jobs)
        ids = [each.id for each in jobs]
    before = (await states(store, ids))[0]
    async with locked(url, ids[700]):
        await all_but(ids, ids[700], getattr(store, verb)(ids))
    assert await states(store, [ids[700]]) == [before]
    assert await getattr(store, verb)([ids[700]]) == [Changed.DONE]


async def test_the_key_of_one_of_a_thousand_is_in_an_open_transaction(store: PostgresStore) -> None:
    """Rolled back it's free again; committed the retry says who has it."""
    jobs = [job(key=f"k{number}", unique=Unique()) for number in range(JOBS)]
    ids = await failed(store, jobs)
    async with store.transaction() as tx:
        await tx.insert([job(key="k300", unique=Unique())])
        await all_but(ids, ids[300], store.retry(ids))
    assert await store.retry([ids[300]]) == [Changed.KEY_HELD]


async def test_a_lock_that_is_given_back_soon_is_waited_for(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await failed(store, [job(), job()])
    refused, retry = asyncio.Event(), _operate.retry

    async def told(*arguments: Any, **options: Any) -> Any:
        try:
            return await retry(*arguments, **options)
        except asyncpg.LockNotAvailableError:
            refused.set()
            raise

    monkeypatch.setattr(_operate, "retry", told)
    async with locked(url, ids[0]):
        retrying = asyncio.create_task(store.retry(ids))
        await refused.wait()
    assert await retrying == [Changed.DONE] * 2


@pytest.mark.usefixtures("hasty")
async def test_those_that_wait_for_each_other_are_changed_together_all_the_same(store: PostgresStore, url: str) -> None:
    first, last, apart = job(), job(), job()
    second, waits = job(blockers=(NewBlocker(first.id),)), job(blockers=(NewBlocker(last.id),))
    everything = [waits, second, first, last, apart]
    ids = [each.id for each in everything]
    await store.insert([first, last, apart, second, waits])
    await store.end([fails(second), fails(waits)])
    await store.end([fails(first), fails(last), fails(apart)])
    async with locked(url, last.id):
        done, held, without = Changed.DONE, Changed.CONTENDED, Changed.BLOCKER_FAILED
        assert await store.retry(ids) == [without, done, done, held, done]
    assert await store.retry([waits.id, last.id]) == [done, done]
    async with locked(url, waits.id):
        assert await store.delete(ids) == [held, done, done, Changed.BLOCKS, done]


@pytest.mark.usefixtures("hasty")
async def test_a_root_behind_which_one_is_locked_is_left_with_all_of_its_cascade(store: PostgresStore, url: str) -> None:
    roots = [job(), job()]
    behind = [job("b", blockers=(NewBlocker(each.id),)) for each in roots]
    await store.insert([*roots, *behind])
    ids = [each.id for each in roots]
    await store.end([fails(each) for each in roots])
    while await states(store, [each.id for each in behind]) != [JobState.FAILED] * 2:
        await store.tend()
    async with locked(url, behind[0].id):
        assert await store.retry(ids, cascade=True) == [Changed.CONTENDED, Changed.DONE]
    everybody = [*ids, *(each.id for each in behind)]
    assert await states(store, everybody) == [JobState.FAILED, JobState.READY, JobState.FAILED, JobState.BLOCKED]


async def test_in_a_transaction_of_the_store_it_is_left_out_at_once(store: PostgresStore, url: str) -> None:
    ids = await failed(store, [job() for _ in range(3)])
    async with locked(url, ids[1]), store.transaction() as tx:
        assert await tx.operations.retry(ids) == [Changed.DONE, Changed.CONTENDED, Changed.DONE]
        assert await states(store, ids) == [JobState.FAILED] * 3
    assert await states(store, ids) == [JobState.READY, JobState.FAILED, JobState.READY]


@pytest.mark.usefixtures("hasty")
async def test_another_state_is_told_though_the_row_is_locked(store: PostgresStore, url: str) -> None:
    pending, held = job(), job()
    await store.insert([pending])
    await failed(store, [held])
    async with locked(url, held.id), locked(url, pending.id):
        assert await store.retry([pending.id, held.id]) == [Changed.WRONG_STATE, Changed.CONTENDED]
