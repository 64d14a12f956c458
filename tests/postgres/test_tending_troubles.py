"""One row that refuses, or that somebody holds, is a trouble of its own: everybody else is told, and discarded, beside it."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import StoreContended
from aioqueue.postgres import _tend
from aioqueue.postgres._tend_look import MOST_CHAINS
from aioqueue.vocabulary._job import Ending, JobState, SettlementKind
from tests.postgres.stores import connected, job, opened
from tests.postgres.test_blockers_races import after, failed, started, tend_all
from tests.postgres.test_tending import states
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

pytestmark = pytest.mark.anyio

REFUSES = """CREATE FUNCTION public.refuses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF new.type = 'bad' THEN RAISE EXCEPTION 'no bad ones'; END IF; RETURN new; END $$;
CREATE TRIGGER refuses BEFORE INSERT ON aioqueue.archive FOR EACH ROW EXECUTE FUNCTION public.refuses()"""


@asynccontextmanager
async def held(url: str, ids: Sequence[UUID]) -> AsyncIterator[None]:
    async with connected(url) as other, other.transaction():
        await other.execute("SELECT FROM aioqueue.job WHERE id = ANY($1) FOR UPDATE", ids)
        yield


async def test_a_job_that_refuses_to_be_told_is_passed_over(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        execute(postgres_url, REFUSES)
        first, second, third = await started(store, [job("a") for _ in range(3)])
        bad, *good = [after(job(name), first.id) for name in ("bad", "b", "c", "d")]
        held_up = after(job("bad"), second.id)
        below = after(job("below"), good[0].id)
        also = after(job("also"), third.id)
        await store.insert([bad, *good, held_up, below, also])
        results = await store.settle([failed(first)])
        assert [(each.lost, each.busy, each.more) for each in results] == [(None, False, True)]
        # In somebody's transaction, too.
        async with other.transaction():
            error = failed(second).error
            endings = [Ending(id=each, kind=SettlementKind.FAILED, error=error) for each in (second.id, third.id)]
            assert await store.end(endings, tx=other) == [True, True]
        with caplog.at_level(logging.ERROR, "aioqueue.postgres"):
            await tend_all(store)
            await tend_all(store)
        assert await states(store, bad, held_up) == [JobState.BLOCKED] * 2
        assert await states(store, *good, below, also) == [JobState.FAILED] * 5
        # Once each: then they're left in peace for a while.
        told = {str(record.__dict__["job_id"]): record.getMessage() for record in caplog.records}
        assert told.keys() == {str(bad.id), str(held_up.id)}
        assert len(caplog.records) == 2
        assert told[str(bad.id)].endswith("is passed over: the database: no bad ones (P0001)")
        execute(postgres_url, "DROP TRIGGER refuses ON aioqueue.archive")
        store._opened.tender._passed_over.clear()
        await tend_all(store)
        assert await states(store, bad, held_up) == [JobState.FAILED] * 2


async def test_a_job_that_refuses_to_expire_is_passed_over(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(postgres_url) as store:
        execute(postgres_url, REFUSES)
        bad, *good = [replace(job(name), expires=0.0) for name in ("bad", "b", "c", "d", "e")]
        await store.insert([bad])
        await store.insert([*good, below := after(job("below"), good[0].id)])
        with caplog.at_level(logging.ERROR, "aioqueue.postgres"):
            assert (await store.tend(3)).expired == 2
            assert (await store.tend(3)).expired == 2
            await tend_all(store)
        assert await states(store, bad, *good, below) == [JobState.READY, *[JobState.CANCELLED] * 4, JobState.FAILED]
        assert [record.__dict__["job_id"] for record in caplog.records] == [str(bad.id)]


async def test_many_ends_that_cant_be_told_hold_up_no_others(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        blockers = [job("a") for _ in range(MOST_CHAINS + 10)]
        collect = after(job("collect"), *[each.id for each in blockers])
        first = job("first")
        await store.insert([*blockers, collect, first])
        await store.insert([second := after(job("second"), first.id)])
        await store.insert([third := after(job("third"), second.id)])
        async with held(postgres_url, [collect.id]):
            await store.end([Ending(id=each.id, kind=SettlementKind.CANCELLED) for each in [*blockers, first]])
            for _ in range(3):
                await store.tend(1_000)
            assert await states(store, collect, second, third) == [JobState.BLOCKED, JobState.FAILED, JobState.FAILED]
        await tend_all(store)
        assert await states(store, collect) == [JobState.FAILED]


async def test_those_that_somebody_holds_hold_up_no_others_of_their_chain(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.insert([root := job("root")])
        waiting = [after(job("d"), root.id) for _ in range(6)]
        await store.insert(waiting)
        async with held(postgres_url, [each.id for each in waiting[:4]]):
            execute(postgres_url, f"DELETE FROM aioqueue.job WHERE id = '{root.id}'")
            for _ in range(2):
                assert (await store.tend(1)).failed == 1
            assert (await store.tend(1)).failed == 0
            assert await states(store, *waiting) == [*[JobState.BLOCKED] * 4, *[JobState.FAILED] * 2]
        await tend_all(store)
        assert await states(store, *waiting) == [JobState.FAILED] * 6


async def test_an_end_that_somebody_stores_holds_up_no_others(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        blockers = [job("a") for _ in range(4)]
        await store.insert(blockers)
        waiting = [after(job("d"), each.id) for each in blockers]
        await store.insert(waiting)
        execute(postgres_url, "DELETE FROM aioqueue.job WHERE type = 'a'")
        async with other.transaction():
            await other.execute("INSERT INTO aioqueue.chain_end (chain_id, state, untold) VALUES ($1, 8, true)", blockers[1].id)
            await tend_all(store)
            assert await states(store, *waiting) == [
                JobState.FAILED,
                JobState.BLOCKED,
                JobState.FAILED,
                JobState.FAILED,
            ]
        await tend_all(store)
        assert await states(store, *waiting) == [JobState.FAILED] * 4


async def test_trouble_with_one_kind_of_work_doesnt_hold_up_the_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def contended(*_: object, **__: object) -> None:
        raise StoreContended("somebody holds it")

    async with opened(postgres_url) as store:
        await store.insert([late := replace(job("late"), expires=0.0), root := job("root")])
        await store.insert([waiting := after(job("d"), root.id)])
        execute(postgres_url, f"DELETE FROM aioqueue.job WHERE id = '{root.id}'")
        with monkeypatch.context() as patched:
            patched.setattr(_tend, "resolve", contended)
            assert (await store.tend(100)).expired == 1
            with pytest.raises(StoreContended):
                await store.tend(100)
        await tend_all(store)
        assert await states(store, late, waiting) == [JobState.CANCELLED, JobState.FAILED]
