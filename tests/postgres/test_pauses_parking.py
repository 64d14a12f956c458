"""Parking what has a paused key: large backlogs, several at once, and rows that refuse it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue.postgres import _claim
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from tests.postgres.stores import connected, job, opened
from tests.postgres.test_blockers_races import statements_counted
from tests.postgres.test_pauses import BAD, KEY, REFUSE, claim, resumed, states, waiting
from tests.postgres_server import execute

if TYPE_CHECKING:
    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

MANY = """INSERT INTO aioqueue.job (id, type, run_at, key)
SELECT gen_random_uuid(), 'a', now() - interval '1 day' + n * interval '1 ms', {key} FROM generate_series(1, {rows}) AS n"""


async def test_a_large_backlog_of_a_paused_key_takes_few_claims(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none behind it waits. What is parked comes back in its order, a portion at once, the rest by tending."""
    execute(postgres_url, MANY.format(key="'k'", rows=5_000))
    monkeypatch.setattr(_claim, "_PARKING_SECONDS", 60.0)
    async with opened(postgres_url) as store, statements_counted(monkeypatch) as counted:
        await store.insert([behind := job()])
        await store.pause([KEY])
        assert [each.id for each in await claim(store)] == [behind.id]
        assert counted.total() < 20
        assert await waiting(store) == {(PauseTarget.KEY, "k"): 5_000}
        before = [row[0] for row in execute(postgres_url, "SELECT id FROM aioqueue.job WHERE state = 0 ORDER BY run_at")]
        await store.resume(PauseTarget.KEY, ["k"])
        assert execute(postgres_url, "SELECT count(*) FROM aioqueue.job WHERE state = 1") == [(500,)]
        assert sum(await resumed(store, 2_000)) == 4_500
        after = execute(postgres_url, "SELECT id, gate FROM aioqueue.job WHERE state = 1 ORDER BY run_at, id")
        assert after == [(each, None) for each in before]


async def test_a_claim_that_parks_for_long_is_continued_by_the_next(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(postgres_url, MANY.format(key="'k'", rows=5_000))
    monkeypatch.setattr(_claim, "_PARKING_SECONDS", 0.0)
    async with opened(postgres_url) as store:
        await store.insert([behind := job()])
        await store.pause([KEY])
        lease_id = await store.open_lease("w", 600)
        found: list[ClaimedJob] = []
        claims = 0
        while (await store.next_due(["a"])).job == 0:
            claims += 1
            found += await store.claim(lease_id, ["a"], 10)
        assert [each.id for each in found] == [behind.id]
        assert claims <= 4


async def test_others_between_them_are_all_claimed(postgres_url: str) -> None:
    """In the order in which they're due, however many of a paused key stand between them."""
    execute(postgres_url, MANY.format(key="CASE WHEN n % 3 > 0 THEN 'k' END", rows=3_000))
    async with opened(postgres_url) as store:
        await store.pause([KEY])
        lease_id = await store.open_lease("w", 600)
        found: list[ClaimedJob] = []
        while (await store.next_due(["a"])).job == 0:
            found += await store.claim(lease_id, ["a"], 100)
        assert len(found) == 1_000
        assert found == sorted(found, key=lambda each: each.run_at)
        assert await waiting(store) == {(PauseTarget.KEY, "k"): 2_000}


async def test_the_next_claim_begins_behind_what_was_parked_without_a_gap(postgres_url: str) -> None:
    """Past the dead entries that it has left, and before the first that is still there, such as one that is locked."""
    first, second, locked, last = jobs = [
        job(key="k", run_at=datetime.now(UTC) - timedelta(hours=4 - hour)) for hour in range(4)
    ]
    async with opened(postgres_url) as store, connected(postgres_url) as somebody:
        await store.insert(jobs)
        await store.pause([KEY])
        transaction = somebody.transaction()
        await transaction.start()
        await somebody.execute("SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE", locked.id)
        claims = store._opened.claims
        assert await claim(store) == []
        assert await states(store, *jobs) == [JobState.HELD, JobState.HELD, JobState.READY, JobState.HELD]
        assert claims._floors[("a", 2)][1] == second.id
        await transaction.rollback()
        assert await claim(store) == []
        assert await states(store, first, locked, last) == [JobState.HELD] * 3
        assert claims._floors[("a", 2)][1] == locked.id


async def test_a_row_that_refuses_to_be_parked_holds_up_no_other(postgres_url: str) -> None:
    jobs = [job(key="k") for _ in range(5)]
    async with opened(postgres_url) as store:
        await store.insert([*jobs, plain := job()])
        await store.pause([KEY])
        execute(postgres_url, BAD)
        execute(postgres_url, REFUSE.format(when=f"OLD.id = '{jobs[2].id}'"))
        assert [each.id for each in await claim(store)] == [plain.id]
        assert await claim(store) == []
        assert await states(store, *jobs) == [JobState.READY if each is jobs[2] else JobState.HELD for each in jobs]


async def test_one_by_one_pauses_count_too(postgres_url: str) -> None:
    """A row that can't be claimed makes the claim look at each by itself."""
    bad, held, plain, paused = job(priority=1), job(key="k"), job(), job("b")
    async with opened(postgres_url) as store:
        await store.insert([bad, held, plain, paused])
        await store.pause([KEY, NewPause(target=PauseTarget.TYPE, value="b")])
        execute(postgres_url, BAD)
        execute(postgres_url, REFUSE.format(when=f"OLD.id = '{bad.id}'"))
        assert [each.id for each in await claim(store, 10, ["a", "b"])] == [plain.id]
        assert await states(store, bad, held, paused) == [JobState.READY, JobState.HELD, JobState.READY]


async def test_several_claim_and_none_is_taken(postgres_url: str) -> None:
    """Side by side they park each job once, and wait for nobody."""
    execute(postgres_url, MANY.format(key="CASE WHEN n % 2 = 0 THEN 'k' END", rows=2_000))
    async with opened(postgres_url) as one, opened(postgres_url) as two, opened(postgres_url) as three:
        await one.pause([KEY])

        async def drain(store: PostgresStore) -> list[ClaimedJob]:
            lease_id = await store.open_lease("w", 600)
            found: list[ClaimedJob] = []
            while (await store.next_due(["a"])).job == 0:
                found += await store.claim(lease_id, ["a"], 50)
            return found

        found = [each for some in await asyncio.gather(*map(drain, (one, two, three))) for each in some]
        assert len({each.id for each in found}) == len(found) == 1_000
        assert {each.key for each in found} == {None}
        assert await waiting(one) == {(PauseTarget.KEY, "k"): 1_000}
