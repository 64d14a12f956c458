"""Where a job comes from, on PostgreSQL: what the conformance cases don't reach, such as text that somebody has written by
hand.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._job import Ending, SettlementKind
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import claimed, completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob, NewJob, Settlement

pytestmark = pytest.mark.anyio

TICK = Origin(schedule='shop/"daily"\\ ü', nominal_time=datetime(2026, 3, 29, 1, 30, tzinfo=UTC))
DRY = replace(TICK, dry_run=True)


async def origins(store: PostgresStore, *jobs: NewJob) -> list[Origin | None]:
    return [None if each is None else each.origin for each in await store.fetch([new.id for new in jobs])]


async def taken(store: PostgresStore, jobs: list[NewJob], *, dry_run: bool = False) -> list[ClaimedJob]:
    await store.insert(jobs)
    lease_id = await store.open_lease("w", 600)
    return list(await store.claim(lease_id, sorted({each.type for each in jobs}), len(jobs), dry_run=dry_run))


def continued(claim: ClaimedJob, next_: NewJob) -> Settlement:
    return replace(completed(claim), kind=SettlementKind.CONTINUED, output=None, next=next_)


async def test_by_the_function_for_other_drivers(postgres_url: str) -> None:
    """Also where the job takes another one's place, which had an origin of its own."""
    plain, old = job(origin=TICK), job(key="k", unique=Unique(), origin=TICK)
    new = job(key="k", unique=Unique(on_conflict="replace"), origin=Origin(dry_run=True))
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        for each in (plain, old, new):
            sql, parameters = store.statement([each], placeholder="$1")
            await connection.execute(sql, *parameters)
        assert await origins(store, plain, old) == [TICK, Origin(dry_run=True)]


async def test_its_place_is_taken(postgres_url: str) -> None:
    old = job(key="k", unique=Unique(), origin=TICK)
    async with opened(postgres_url) as store:
        await store.insert([old])
        await store.insert([job(key="k", unique=Unique(on_conflict="replace"))])
        assert await origins(store, old) == [None]


@pytest.mark.parametrize("slowly", [False, True], ids=["fast", "slow"])
async def test_a_chain_goes_on_with_it(postgres_url: str, slowly: bool) -> None:
    first, second, third = job(origin=TICK), job("b"), job("c", origin=Origin(schedule="another"))
    webhook = "https://example.org" if slowly else None
    async with opened(postgres_url) as store:
        (claim,) = await taken(store, [replace(first, webhook=webhook)])
        assert claim.origin == TICK
        assert claim.nominal_time == TICK.nominal_time
        await store.settle([continued(claim, second)])
        (claim,) = await store.claim(claim.lease_id, ["b"], 1)
        assert claim.origin == TICK
        await store.settle([continued(claim, third)])
        assert await origins(store, first, second, third) == [TICK, TICK, third.origin]


async def test_a_chain_that_was_asked_to_end_or_is_ended_by_others(postgres_url: str) -> None:
    first, second = job(origin=TICK), job("b")
    other, next_ = job(origin=TICK), job("b")
    async with opened(postgres_url) as store:
        (claim, _) = await taken(store, [first, other])
        await store.cancel([claim.id], "enough")
        await store.settle([continued(claim, second)])
        await store.end([Ending(id=other.id, kind=SettlementKind.CONTINUED, next=next_)])
        assert await origins(store, first, second, other, next_) == [TICK] * 4
        await store.retry([first.id])
        assert await origins(store, second) == [TICK]


async def test_a_recovered_job_says_it(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await taken(store, [job(origin=TICK)], dry_run=True)
        execute(postgres_url, "UPDATE aioqueue.lease SET expires_at = now() - interval '1 second'")
        (lost,) = await store.take_expired(10)
        assert lost.origin == DRY


async def test_a_dry_run_marks_what_it_takes(postgres_url: str) -> None:
    """For good: whoever claims it next is told so."""
    jobs = [job(), job(origin=TICK), job(origin=Origin(dry_run=True)), job(origin=Origin())]
    expected = [Origin(dry_run=True), DRY, Origin(dry_run=True), Origin(dry_run=True)]
    async with opened(postgres_url) as store:
        claims = {each.id: each for each in await taken(store, jobs, dry_run=True)}
        assert [claims[each.id].origin for each in jobs] == expected
        assert await origins(store, *jobs) == expected
        again = [replace(completed(each), kind=SettlementKind.RETRIED, output=None, delay=0.0) for each in claims.values()]
        await store.settle(again)
        claims = {each.id: each for each in await store.claim(claims[jobs[0].id].lease_id, ["a"], 4)}
        assert [claims[each.id].origin for each in jobs] == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{",
        "[]",
        "7",
        '{"schedule":"x}',
        '{"schedule":"a"b"}',
        '{"schedule":"\\q"}',
        '{"schedule":{"a":1}}',
        '{"dry_run":true,}',
    ],
)
async def test_what_somebody_wrote_by_hand_is_a_dry_run_all_the_same(postgres_url: str, written: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await store.insert([new := job()])
        await connection.execute("UPDATE aioqueue.job SET origin = $1", written)
        (shown,) = await origins(store, new)
        assert shown in {None, Origin()}
        lease_id = await store.open_lease("w", 600)
        (claim,) = await store.claim(lease_id, ["a"], 1, dry_run=True)
        assert claim.origin == Origin(dry_run=True)
        assert await origins(store, new) == [Origin(dry_run=True)]


async def test_one_by_one_it_marks_them_too(postgres_url: str) -> None:
    execute(
        postgres_url,
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF NEW.key = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$""",
    )
    execute(postgres_url, "CREATE TRIGGER refuse BEFORE UPDATE ON aioqueue.job FOR EACH ROW EXECUTE FUNCTION refuse()")
    async with opened(postgres_url) as store:
        claims = await taken(store, [job(origin=TICK), job(key="bad")], dry_run=True)
        assert [each.origin for each in claims] == [DRY]


async def test_most_have_none(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        assert claim.origin is None
        assert claim.nominal_time is None
