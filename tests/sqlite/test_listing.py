"""Listings and numbers: odd rows, bounds, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.abc import JobFilter
from aioqueue.vocabulary._job import JobState, Settlement, SettlementKind
from tests.sqlite.conftest import new_job, spoil

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


async def pages(store: SQLiteStore, where: JobFilter, limit: int) -> list[object]:
    found: list[object] = []
    cursor: str | None = None
    for _ in range(200):
        page = await store.list(where, limit, cursor)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the listing doesn't end")


@pytest.mark.parametrize(
    "change",
    [
        "payload = 'not json'",
        "payload = x'ff00fe'",
        "payload = CAST(x'22ff22' AS TEXT)",
        "state = 99",
        "state = 'odd'",
        "errors = 'not json'",
        "errors = '[1, null, {\"at\": 5}]'",
        "errors = x'00'",
        "tags = 'x'",
        "tags = '{}'",
        "metadata = x'ff'",
        "run_at = 9e30, created_at = 'yesterday'",
        "run_at = 9223372036854775807",
        "created_at = -9223372036854775807",
        "attempt = 'many', timeout = 'long', max_attempts = x'00', key = x'ff'",
        "type = x'ff'",
        "id = 'no uuid, but as long as one of those'",
    ],
)
async def test_an_odd_row_does_not_break_its_page(store: SQLiteStore, path: Path, change: str) -> None:
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    spoil(path, jobs[1].id, change)
    page = await store.list(JobFilter(), 10)
    assert len(page.jobs) == 3
    assert {jobs[0].id, jobs[2].id} <= {job.id for job in page.jobs}
    for job in page.jobs:
        repr(job)
    await store.list(JobFilter(tag="x"), 10)
    await store.fetch([job.id for job in jobs])
    await store.stats()


@pytest.mark.parametrize(
    "change",
    [
        "payload = 'not json'",
        "payload = x'ff00fe'",
        "tags = 'x'",
        "errors = 'x'",
        "metadata = x'ff'",
        "attempt = 'many', key = x'ff'",
    ],
)
async def test_an_odd_row_does_not_stop_a_claim(store: SQLiteStore, path: Path, change: str) -> None:
    jobs = [new_job() for _ in range(3)]
    await store.insert(jobs)
    spoil(path, jobs[1].id, change)
    lease = await store.open_lease("w", 60)
    assert [job.id for job in await store.claim(lease, ["a"], 10)] == [job.id for job in jobs]


async def test_pages_meet_every_job_once_whatever_the_filter(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.sqlite._listing_lanes.WALK_ROWS", 5)
    jobs = [new_job("ab"[number % 2], key=f"k{number % 3}", tags=("even",) if number % 4 == 0 else ()) for number in range(40)]
    await store.insert(jobs)
    lease = await store.open_lease("w", 60)
    for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        taken = await store.claim(lease, ["a", "b"], 7)
        await store.settle([Settlement(id=job.id, claims=1, lease_id=lease, kind=kind) for job in taken])
    running = {job.id for job in await store.claim(lease, ["a"], 4)}
    snapshots = [job for job in await store.fetch([job.id for job in jobs]) if job is not None]
    filters = [JobFilter(), JobFilter(key="k1"), JobFilter(tag="even"), JobFilter(types=frozenset({"a"}))]
    filters += [JobFilter(states=frozenset({state})) for state in JobState]
    filters += [JobFilter(states=frozenset({JobState.READY, JobState.FAILED}), types=frozenset({"b"}), tag="even")]
    filters += [JobFilter(states=frozenset({JobState.FAILED, JobState.CANCELLED}), types=frozenset({"a", "b"}), key="k2")]
    for where in filters:
        wanted = [
            job.id
            for job in reversed(snapshots)
            if (not where.states or job.state in where.states)
            and (not where.types or job.type in where.types)
            and (where.key is None or job.key == where.key)
            and (where.tag is None or where.tag in job.tags)
        ]
        for limit in (1, 3, 100):
            assert await pages(store, where, limit) == wanted, where
    assert {job.id for job in (await store.list(JobFilter(states=frozenset({JobState.RUNNING})), 10)).jobs} == running


@pytest.mark.parametrize("cursor", ["", "1.", "x", "1.no-uuid", "2.01a220e9-b801-7000-93c9-5e3914d6501c"])
async def test_a_strange_cursor(store: SQLiteStore, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await store.list(JobFilter(), 10, cursor)


async def test_numbers_are_capped(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.sqlite._stats.MOST_COUNTED_JOBS", 5)
    await store.insert([new_job() for _ in range(5)] + [new_job("b") for _ in range(6)])
    stats = await store.stats()
    assert stats.types["a"].counts == {JobState.READY: 5}
    assert stats.types["a"].capped == frozenset()
    assert stats.types["b"].counts == {JobState.READY: 5}
    assert stats.types["b"].capped == {JobState.READY}


async def test_the_view_shows_everything(store: SQLiteStore) -> None:
    await store.insert([new_job(), new_job(delay=60)])
    lease = await store.open_lease("w", 60)
    (job,) = await store.claim(lease, ["a"], 5)
    await store.settle([Settlement(id=job.id, claims=1, lease_id=lease, kind=SettlementKind.FAILED)])
    async with store.transaction() as tx:
        rows = await tx.fetch("SELECT state, finished_at FROM jobs ORDER BY id")
    assert [row["state"] for row in rows] == ["failed", "scheduled"]
    assert rows[0]["finished_at"].endswith("Z")
