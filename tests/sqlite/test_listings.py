"""Listings in each order, with each filter: by which indexes, over how many rows, and while rows come and go."""

from __future__ import annotations

import itertools
import random
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import JobFilter, ListOrder
from aioqueue.sqlite._connections import connect
from aioqueue.sqlite._connections_statements import UsersStatements
from aioqueue.sqlite._listing import list_jobs
from aioqueue.sqlite._migrations import migrate
from aioqueue.sqlite._options import Options
from aioqueue.testing.memory._listing import fits
from aioqueue.vocabulary._job import JobState, SettlementKind
from tests.sqlite.chains import chain, claim_one, end
from tests.sqlite.conftest import execute, new_job, outsider, query
from tests.sqlite.waiting import after

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import Job

pytestmark = pytest.mark.anyio

BY_TIME = {ListOrder.DUE: "run_at", ListOrder.FINISHED: "finished_at"}
DOWN = (ListOrder.NEWEST, ListOrder.FINISHED)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch, few: int, walk: int) -> None:
    monkeypatch.setattr("aioqueue.sqlite._listing_sources.FEW_ROWS", few)
    monkeypatch.setattr("aioqueue.sqlite._listing_lanes.WALK_ROWS", walk)


bounds = pytest.mark.parametrize(("few", "walk"), [(-1, 1), (3, 20), (1_000, 5_000)])


async def mixed(store: SQLiteStore, path: Path) -> list[UUID]:
    """Jobs in all states, with all that a filter can ask for, whose times are in another order than their ids."""
    lease = await store.open_lease("one", 600)
    jobs = [new_job("abc"[n % 3], key=f"k{n % 4}", tags=(f"t{n % 5}",), priority=1 + n % 4) for n in range(36)]
    await store.insert(jobs)
    kinds = [SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED]
    for n, job in enumerate(await store.claim(lease, ["a", "b", "c"], 22)):
        if n < 20:
            await store.settle([end(job, kinds[n % 3], outcome=[None, "o", "p"][n % 3])])
    steps = await chain(store, lease, 3)
    await store.insert([after(steps[0].id), after(steps[0].id, priority=3), new_job("later", delay=3600)])
    ids = [row[0] for row in query(path, "SELECT id FROM job UNION ALL SELECT id FROM archive ORDER BY id")]
    start = datetime.now(UTC) - timedelta(hours=1)
    shuffled = random.Random(7).sample(range(len(ids)), len(ids))
    with outsider(path) as connection:
        for n, (place, job_id) in enumerate(zip(shuffled, ids, strict=True)):
            at = int((start + timedelta(minutes=place // 2)).timestamp()) * 1_000_000
            errors = (
                f'[{{"at":"2026-01-01T00:00:00+00:00","attempt":1,"type":"E{n % 2}","message":"no"}}]' if n % 5 == 0 else "[]"
            )
            connection.execute(
                "UPDATE job SET run_at = iif(type = 'later', run_at, ?), errors = ?, created_at = ? WHERE id = ?",
                (at, errors, at + 1, job_id),
            )
            connection.execute(
                "UPDATE archive SET finished_at = ?, errors = ?, created_at = ? WHERE id = ?", (at, errors, at + 1, job_id)
            )
    page = await store.list_ids(JobFilter(), 100)
    assert page.cursor is None
    return sorted(page.ids)


def filters(ids: list[UUID], chain_id: UUID) -> list[JobFilter]:
    now = datetime.now(UTC)
    middle, later = now - timedelta(minutes=50), now - timedelta(minutes=45)
    asked: list[dict[str, Any]] = [
        *({"states": [state]} for state in JobState),
        {"states": ["ready", "failed"]},
        {"states": ["scheduled", "blocked", "cancelled", "continued"]},
        {"types": ["a"]},
        {"types": ["a", "waits"]},
        {"types": ["none"]},
        {"key": "k1"},
        {"tag": "t2"},
        {"chain_id": chain_id},
        {"worker": "one"},
        {"outcome": "o"},
        {"error_type": "E0"},
        {"created_after": middle},
        {"created_before": later},
        {"finished_after": middle, "finished_before": later},
        {"finished_before": later},
        {"first_id": ids[5], "last_id": ids[-5]},
        {"first_id": ids[-9]},
        {"last_id": ids[0]},
    ]
    pairs = [one | other for one, other in itertools.combinations(asked, 2) if not one.keys() & other.keys()]
    return [JobFilter(**each) for each in ({}, *asked, *pairs)]


async def pages(store: SQLiteStore, where: JobFilter, order: ListOrder, limit: int) -> list[UUID]:
    found: list[UUID] = []
    cursor: str | None = None
    for _ in range(500):
        page = await store.list(where, limit, cursor, order=order)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the listing doesn't end")


def expected(jobs: list[Job], where: JobFilter, order: ListOrder) -> list[UUID]:
    column = BY_TIME.get(order)
    fitting = [job for job in jobs if fits(job, where)]
    if order in BY_TIME:
        fitting = [job for job in fitting if (job.finished_at is None) is (order is ListOrder.DUE)]
    fitting.sort(
        key=lambda job: (getattr(job, column) if column else None, job.id) if column else job.id, reverse=order in DOWN
    )
    return [job.id for job in fitting]


@bounds
@pytest.mark.usefixtures("small_bounds")
async def test_each_filter_in_each_order(store: SQLiteStore, path: Path, few: int) -> None:
    ids = await mixed(store, path)
    jobs = [job for job in await store.fetch(ids) if job is not None]
    (chain_id,) = {job.chain_id for job in jobs if job.position}
    asked = filters(ids, chain_id)
    for number, where in enumerate(asked if few < 0 else asked[::5]):
        for order in ListOrder:
            limit = (100, 7, 1)[number % 3]
            assert await pages(store, where, order, limit) == expected(jobs, where, order), (where, order, limit)


async def test_ends_of_chains(store: SQLiteStore) -> None:
    lease = await store.open_lease("one", 600)
    steps = await chain(store, lease, 3)
    ended = await chain(store, lease, 2)
    await store.settle([end(ended[-1])])
    for order in (ListOrder.NEWEST, ListOrder.OLDEST):
        assert set(await pages(store, JobFilter(ends=True), order, 1)) == {steps[-1].id, ended[-1].id}
        assert await pages(store, JobFilter(ends=True, types=["a"], states=["completed", "continued"]), order, 1) == [
            ended[-1].id
        ]
    assert await pages(store, JobFilter(ends=True), ListOrder.FINISHED, 5) == [ended[-1].id]


@pytest.mark.parametrize("order", ListOrder)
@bounds
@pytest.mark.usefixtures("small_bounds")
async def test_what_is_there_all_the_time_is_shown_once(store: SQLiteStore, path: Path, order: ListOrder) -> None:
    chosen = random.Random(3)
    await mixed(store, path)
    lease = await store.open_lease("two", 600)
    shown: list[UUID] = []
    there = {job.id: job for job in (await store.list(JobFilter(), 100)).jobs}
    cursor: str | None = None
    for _ in range(200):
        page = await store.list(JobFilter(), 3, cursor, order=order)
        shown += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
        await store.delete(chosen.sample(sorted(there), 1))
        await store.insert([new_job("new"), new_job("new", delay=5)])
        for job in await store.claim(lease, ["new", "b"], 2):
            await store.settle([end(job)])
    assert cursor is None
    left = {job.id: job for job in (await store.list(JobFilter(), 300)).jobs}
    column = BY_TIME.get(order)
    stayed = {
        job_id
        for job_id, job in there.items()
        if job_id in left and (column is None or getattr(job, column) == getattr(left[job_id], column))
        if order not in BY_TIME or {job.finished_at is None, left[job_id].finished_at is None} == {order is ListOrder.DUE}
    }
    assert stayed <= set(shown)
    assert len([each for each in shown if each in stayed]) == len(stayed)


async def test_a_job_that_was_copied_back_is_shown_once_and_as_a_live_one(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("one", 600)
    await store.insert([new_job(), new_job()])
    for _ in range(2):
        await store.settle([end(await claim_one(store, lease), SettlementKind.FAILED)])
    execute(
        path,
        "INSERT INTO job (id, type, priority, state, run_at, created_at, payload)"
        " SELECT id, type, priority, 1, run_at, created_at, payload FROM archive",
    )
    for limit in (1, 2, 5):
        for order in (ListOrder.NEWEST, ListOrder.OLDEST):
            assert len(await pages(store, JobFilter(), order, limit)) == 2
    assert {job.state for job in (await store.list(JobFilter(), 5)).jobs} == {JobState.READY}


ODD_CHANGES = (
    "errors = 'not json', tags = x'ff'",
    "errors = x'00', created_at = 'yesterday'",
    "errors = '[1, null, {\"type\": {}}]'",
    "run_at = 'soon'",
    "run_at = x'00ff', state = 'odd'",
    "run_at = 9e999, priority = 2.5",
    "run_at = 9223372036854775807, type = x'ff'",
    "type = CAST(x'ff61' AS TEXT), key = CAST(x'ff' AS TEXT)",
    "id = CAST(x'ff20202020202020202020202020202020202020202020202020202020202020202020' AS TEXT) || '-', chain_id = 5",
    "state = 99, lease_id = 'x'",
    "state = 0, gate = 'odd'",
)


@bounds
@pytest.mark.usefixtures("small_bounds")
async def test_odd_values_break_no_page(store: SQLiteStore, path: Path) -> None:
    jobs = [new_job("ab"[n % 2], key="k", tags=("t",)) for n in range(len(ODD_CHANGES) + 3)]
    await store.insert(jobs)
    lease = await store.open_lease("one", 600)
    for job in await store.claim(lease, ["a"], 2):
        await store.settle([end(job, SettlementKind.FAILED)])
    odd = [job for job, state in zip(jobs, await store.fetch([job.id for job in jobs]), strict=True) if state is not None]
    live = [row[0] for row in query(path, "SELECT id FROM job ORDER BY id")]
    for job_id, change in zip(live, ODD_CHANGES, strict=False):
        execute(path, f"UPDATE job SET {change} WHERE id = '{job_id}'")
    execute(
        path,
        "UPDATE archive SET finished_at = iif(rowid_of.n, 'late', x'00'), state = iif(rowid_of.n, 6, 'odd'), errors = x'ff'"
        " FROM (SELECT id, row_number() OVER (ORDER BY id) = 1 AS n FROM archive) AS rowid_of WHERE archive.id = rowid_of.id",
    )
    assert len(await pages(store, JobFilter(), ListOrder.NEWEST, 2)) == len(odd)
    assert len(await pages(store, JobFilter(), ListOrder.OLDEST, 3)) == len(odd)
    assert len(await pages(store, JobFilter(), ListOrder.DUE, 2)) == len(live)
    assert len(await pages(store, JobFilter(), ListOrder.FINISHED, 1)) == 2
    assert len({*(await pages(store, JobFilter(), ListOrder.DUE, 1))}) == len(live)
    for where in filters(sorted(job.id for job in jobs), jobs[0].id)[::4]:
        for order in ListOrder:
            await pages(store, where, order, 2)


class Recorded:
    """Statements that have been executed, each with its plan."""

    def __init__(self, statements: UsersStatements) -> None:
        self._statements = statements
        self.plans: dict[str, list[str]] = {}

    def execute(self, sql: str, parameters: dict[str, Any] | None = None, /) -> Any:
        if sql not in self.plans:
            rows = self._statements.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
            self.plans[sql] = [row[3] for row in rows.fetchall()]
        return self._statements.execute(sql, parameters)


NEVER_MANY = ("job_running", "job_odd")
"""What is sorted however many rows there are: as many as there are slots, and what only somebody by hand writes."""


@pytest.mark.parametrize("few", [-1, 1_000])
@pytest.mark.parametrize("analyzed", [False, True])
async def test_no_table_is_scanned_and_nothing_big_is_sorted(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch, few: int, analyzed: bool
) -> None:
    monkeypatch.setattr("aioqueue.sqlite._listing_sources.FEW_ROWS", few)
    ids = await mixed(store, path)
    connection = connect(Options(path=path), tolerant=True)
    migrate(connection, 5.0)
    if analyzed:
        connection.execute("ANALYZE")
    recorded = Recorded(UsersStatements(connection))
    for where in filters(ids, ids[0]):
        for order in ListOrder:
            list_jobs(recorded, where, 5, None, order)
    connection.close()
    assert len(recorded.plans) > 100
    for statement, plan in recorded.plans.items():
        scanned = [step.split()[-1] for step in plan if re.match(r"SCAN (job|archive)\b", step)]
        # What is counted is so up to a bound, and what is sorted had few rows when it was counted.
        assert set(scanned) <= {"job_running", "job_odd", "job_held", "job_parked"}, (statement, plan)
        if few < 0 and "ORDER BY" in statement and not any(each in statement for each in NEVER_MANY):
            assert not scanned, (statement, plan)
            assert not any("TEMP B-TREE" in step for step in plan), (statement, plan)
            assert sum(step.startswith(("SEARCH job", "SEARCH archive")) for step in plan) == 1, (statement, plan)
