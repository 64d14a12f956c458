"""Where jobs come from: kept beside them in every path that writes them, and read with care."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.conftest import new_job, query, spoil

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

TICK = Origin(schedule="shop/report", nominal_time=datetime(2026, 3, 29, 1, 30, tzinfo=UTC))
DRY = Origin(dry_run=True)


async def test_plain_jobs_have_no_origin(store: SQLiteStore, path: Path) -> None:
    await store.insert([plain := new_job(), new_job(origin=TICK)])
    found = {each.id: each.origin for each in await store.claim(await store.open_lease("w", 600), ["a"], 10)}
    assert sorted(found.values(), key=str) == [None, TICK]
    assert found[plain.id] is None
    assert query(path, "SELECT count(*) FROM job WHERE origin IS NULL") == [(1,)]


async def test_a_replaced_job_gets_the_new_ones_origin(store: SQLiteStore) -> None:
    unique = Unique(on_conflict="replace")
    await store.insert([first := new_job(key="k", unique=unique, origin=TICK)])
    for origin in (None, DRY):
        (replaced,) = await store.insert([new_job(key="k", unique=unique, origin=origin)])
        assert replaced.replaced
        (job,) = await store.fetch([first.id])
        assert job is not None
        assert job.origin == origin


async def test_a_dry_run_is_written_into_what_is_there(store: SQLiteStore, path: Path) -> None:
    """Also into what newer code has written, of which this one knows nothing."""
    ticked, plain, newer = jobs = [new_job(origin=TICK), new_job(), new_job()]
    await store.insert(jobs)
    spoil(path, newer.id, """origin = '{"colour":"red"}'""")
    lease = await store.open_lease("w", 600)
    claimed = {each.id: each for each in await store.claim(lease, ["a"], 10, dry_run=True)}
    assert claimed[ticked.id].origin == Origin(schedule=TICK.schedule, nominal_time=TICK.nominal_time, dry_run=True)
    assert claimed[plain.id].origin == claimed[newer.id].origin == DRY
    assert query(path, f"SELECT origin FROM job WHERE id = '{newer.id}'") == [('{"colour":"red","dry_run":true}',)]
    await store.release(lease, [], end=True)
    again = await store.claim(await store.open_lease("w", 600), ["a"], 10)
    assert all(each.origin is not None and each.origin.dry_run for each in again)


@pytest.mark.parametrize("value", ["x'ff'", "'no JSON'", "'[]'", "7", "cast(x'ff' as text)", """'{"nominal_time":5}'"""])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_odd_origin_counts_as_none(store: SQLiteStore, path: Path, value: str, dry_run: bool) -> None:
    odd, sound = new_job(origin=TICK), new_job(origin=TICK)
    await store.insert([odd, sound])
    spoil(path, odd.id, f"origin = {value}")
    (found,) = await store.fetch([odd.id])
    assert found is not None
    assert found.origin is None
    claimed = await store.claim(await store.open_lease("w", 600), ["a"], 10, dry_run=dry_run)
    assert {each.id: each.nominal_time for each in claimed} == {odd.id: None, sound.id: TICK.nominal_time}
    ends = [
        Settlement(id=each.id, claims=each.claims, lease_id=each.lease_id, kind=SettlementKind.CONTINUED, next=new_job())
        for each in claimed
    ]
    assert [each.lost for each in await store.settle(ends)] == [None, None]


async def test_rows_that_are_claimed_one_by_one_are_dry_runs_too(store: SQLiteStore, path: Path) -> None:
    odd, sound = new_job(), new_job()
    await store.insert([odd, sound])
    spoil(path, odd.id, "timeout = 9e999")
    (claimed,) = await store.claim(await store.open_lease("w", 600), ["a"], 10, dry_run=True)
    assert (claimed.id, claimed.origin) == (sound.id, DRY)
    assert query(path, "SELECT origin FROM job") == [('{"dry_run":true}',)]


async def test_next_steps_take_it_over(store: SQLiteStore, path: Path) -> None:
    """Also such as say more of themselves, which another statement inserts."""
    await store.insert([first := new_job(origin=TICK)])
    lease = await store.open_lease("w", 600)
    chain = first.id
    for following in (new_job(), new_job(keep=60.0), new_job(webhook="https://example.org/")):
        (claimed,) = await store.claim(lease, ["a"], 1)
        assert (claimed.chain_id, claimed.origin) == (chain, TICK)
        end = Settlement(id=claimed.id, claims=claimed.claims, lease_id=lease, kind=SettlementKind.CONTINUED, next=following)
        assert [each.lost for each in await store.settle([end])] == [None]
    assert query(path, "SELECT count(*) FROM archive WHERE origin IS NOT NULL") == [(3,)]
    (claimed,) = await store.claim(lease, ["a"], 1)
    assert claimed.origin == TICK
