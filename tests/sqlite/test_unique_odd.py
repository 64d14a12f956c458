"""Unique keys beside what somebody has written with SQL, and what is left over of windows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import Changed
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.chains import claim_one, end
from tests.sqlite.conftest import execute, new_job, query, spoil
from tests.sqlite.waiting import tend_all

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio

REPLACE = Unique(on_conflict="replace")

WAITS_ON = ("state = 9", "state = 'waiting'", "created_at = 'yesterday'")
"""Two that never end, and one that can be claimed."""


@pytest.mark.parametrize(
    "change",
    [
        "id = 'no UUID, but precisely as long as it'",
        "id = CAST(id AS BLOB)",
        "id = CAST(zeroblob(36) AS BLOB)",
        "state = 9",
        "state = 'waiting'",
        "position = x'00'",
        "chain_id = x'00ff'",
        "claims = 'many'",
        "created_at = 'yesterday'",
        "run_at = x'00', attempt = 'a', reschedules = x'ff', marked = 'no'",
        "type = x'ff00', key = x'ff', payload = x'ff', tags = '', metadata = x'00', errors = 'none'",
        "open_blockers = 'some', expires_at = 'never', started_at = x'00', until_started = 'x'",
    ],
)
async def test_a_strange_holder(store: SQLiteStore, path: Path, change: str) -> None:
    """It's replaced, or gives its key up where nobody could claim it, and nobody hears of what is strange."""
    await store.insert([held := new_job(key="k", unique=Unique(window=60))])
    spoil(path, held.id, change)
    (kept,) = await store.insert([new_job(key="k", unique=Unique(window=60))])
    assert not kept.created
    (first, other) = await store.insert([new_job(key="k", unique=replace(REPLACE, window=60), max_delay=5.0), new_job()])
    assert first.created or first.replaced
    assert other.created
    (second,) = await store.insert([new_job(key="k", unique=REPLACE)])
    assert second.replaced
    lease = await store.open_lease("w", 600)
    ran = [job.id for job in await store.claim(lease, ["a"], 5)]
    # One that waits for a chain that can't be found any more is told that it's gone.
    await tend_all(store)
    ran += [job.id for job in await store.claim(lease, ["a"], 5)]
    assert (second.id in ran) is not (change in WAITS_ON)


async def test_of_a_batch_only_whoever_stands_for_another_is_known_by_its_own_id(store: SQLiteStore, path: Path) -> None:
    """Whoever ends it has to tell those that wait for the other one."""
    first, second = (new_job(key="k", unique=Unique()) for _ in range(2))
    waits = replace(new_job("waits"), blockers=(NewBlocker(second.id),))
    await store.insert([first, second, waits])
    assert query(path, f"SELECT marked FROM job WHERE id = '{first.id}'") == [(1,)]
    lease = await store.open_lease("w", 600)
    await store.settle([end(await claim_one(store, lease), output=b"1")])
    (found,) = await store.fetch([waits.id])
    assert found is not None
    assert found.state is JobState.READY


async def test_a_key_is_replaced_many_times_in_one_batch(store: SQLiteStore, path: Path) -> None:
    jobs = [new_job(key=f"k{n % 2}", unique=REPLACE, payload=b'{"n":%d}' % n) for n in range(100)]
    results = await store.insert(jobs, apart=True)
    assert [each.replaced for each in results] == [False, False, *[True] * 98]
    assert query(path, "SELECT payload FROM job ORDER BY payload") == [('{"n":98}',), ('{"n":99}',)]


async def test_a_row_that_starts_is_found_no_more_and_comes_back_without_its_key(store: SQLiteStore, path: Path) -> None:
    await store.insert([first := new_job(key="k", unique=Unique(until="started"))])
    lease = await store.open_lease("w", 600)
    claimed = await claim_one(store, lease)
    (second,) = await store.insert([new_job(key="k", unique=Unique(until="started"))])
    assert second.created
    await store.settle([end(claimed, SettlementKind.RETRIED)])
    (third,) = await store.insert([new_job(key="k", unique=Unique(until="started"))])
    assert third.id == second.id
    again = {each.id: each for each in await store.claim(lease, ["a"], 2)}
    await store.settle([end(again[first.id], SettlementKind.FAILED)])
    assert query(path, "SELECT unique_key FROM archive") == [(None,)]
    assert await store.retry([first.id]) == [Changed.DONE]
    (fourth,) = await store.insert([new_job(key="k", unique=Unique())])
    assert fourth.created


async def test_windows_are_forgotten_in_portions(store: SQLiteStore, path: Path) -> None:
    execute(
        path,
        "INSERT INTO dedup SELECT 'key ' || value, 'c', value FROM json_each('[1,2,3,4,5,9000000000000000000]')",
    )
    assert (await store.tend(2)).more
    assert query(path, "SELECT count(*) FROM dedup") == [(4,)]
    await tend_all(store, 2)
    assert query(path, "SELECT expires_at FROM dedup") == [(9000000000000000000,)]
    assert not (await store.tend(2)).more
