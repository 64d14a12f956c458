"""Chains that are asked to end: rows that refuse it, transactions, and what comes at the same moment."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import Cancellation
from aioqueue.errors import StoreUnavailable
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._job import (
    AttemptError,
    Claim,
    Ending,
    JobState,
    SettlementKind,
)
from tests.sqlite.cancelling import asked, job_of, last_error
from tests.sqlite.chains import chain, continued, end
from tests.sqlite.conftest import execute, new_job, query
from tests.sqlite.waiting import running, state_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

BOOM = AttemptError(attempt=1, at=datetime(2026, 1, 1, tzinfo=UTC), type="ValueError", message="boom")


# -- what refuses, and what others leave behind -------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [False, True])
async def test_a_row_that_refuses_to_end(store: SQLiteStore, path: Path, alone: bool) -> None:
    """The request is kept, and whoever claims it hears of it; tend ends it as soon as it can be."""
    jobs = [new_job() for _ in range(5)]
    await store.insert(jobs)
    refuse = f"WHEN old.id = '{jobs[2].id}' BEGIN SELECT raise(ABORT, 'it stays'); END"
    execute(path, f"CREATE TRIGGER keep BEFORE DELETE ON job {refuse}")
    answers = await store.cancel([jobs[2].id] if alone else [each.id for each in jobs], "no")
    assert answers.count(Cancellation.CANCELLING) == 1
    assert answers.count(Cancellation.CANCELLED) == (0 if alone else 4)
    found = await job_of(store, jobs[2])
    assert (found.state, found.cancel_reason) == (JobState.READY, "no")
    execute(path, "DROP TRIGGER keep")
    await store.tend(100)
    found = await job_of(store, jobs[2])
    assert (found.state, last_error(found)) == (JobState.CANCELLED, ("Cancelled", "no"))


async def test_what_older_code_makes_pending(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    job, other = await asked(store, lease), await running(store, lease)
    execute(path, "UPDATE job SET state = 1, lease_id = NULL")
    await store.tend(100)
    assert await state_of(store, job.id) is JobState.CANCELLED
    assert await state_of(store, other.id) is JobState.READY


async def test_an_odd_id_never_ends_its_neighbours(store: SQLiteStore, path: Path) -> None:
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 2)
    plain = new_job()
    await store.insert([plain])
    execute(path, f"UPDATE job SET state = 1, lease_id = NULL, id = x'{'ff' * 36}' WHERE id = '{steps[1].id}'")
    answers = await store.cancel([steps[0].id, plain.id], "no")
    assert answers == [Cancellation.CANCELLING, Cancellation.CANCELLED]
    await store.tend(10)
    assert query(path, "SELECT cancel_reason FROM job") == [("no",)]


# -- transactions, and who has the lock -----------------------------------------------------------------------------------


async def test_within_a_transaction(store: SQLiteStore) -> None:
    """Listeners hear of it after the commit; a rollback takes it back."""
    lease = await store.open_lease("w", 600)
    job, pending = await running(store, lease), new_job("b")
    await store.insert([pending])
    heard: list[Notification] = []
    with store.subscribe(heard.append):
        with pytest.raises(RuntimeError):
            async with store.transaction() as tx:
                answers = await tx.operations.cancel([job.id, pending.id], "no")
                assert answers == [Cancellation.CANCELLING, Cancellation.CANCELLED]
                raise RuntimeError
        assert (await job_of(store, job)).cancel_reason is None
        assert await state_of(store, pending.id) is JobState.READY
        assert not any(each.leases for each in heard)
        async with store.transaction() as tx:
            await tx.operations.cancel([job.id], "no")
        assert any(lease in each.leases for each in heard)


async def test_within_a_foreign_transaction(store: SQLiteStore, path: Path) -> None:
    pending = new_job()
    await store.insert([pending])
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for ending in ("ROLLBACK", "COMMIT"):
            connection.execute("BEGIN IMMEDIATE")
            assert await store.within(connection).cancel([pending.id], "no") == [Cancellation.CANCELLED]
            connection.execute(ending)
            assert (await state_of(store, pending.id) is JobState.READY) is (ending == "ROLLBACK")
    finally:
        connection.close()


async def test_it_waits_for_a_block_for_a_bounded_time(path: Path) -> None:
    store = make_store(f"sqlite:///{path}?busy_timeout=0.2")
    await store.open()
    try:
        lease = await store.open_lease("w", 600)
        job = await running(store, lease)
        async with store.transaction() as tx:
            with pytest.raises(StoreUnavailable, match="no write lock"):
                await store.cancel([job.id], "no")
            assert await tx.hold(Claim(job.id, job.claims), lease) is None
            assert [each.lost for each in await tx.settle([end(job, output=b"1")])] == [None]
        assert await store.cancel([job.id], "no") == [Cancellation.FINISHED]
    finally:
        await store.close()


async def test_one_end_whatever_comes_first(store: SQLiteStore, path: Path) -> None:
    """Requests at the same moment as all that others do with a job: of each chain there's one end, never two."""
    other = make_store(f"sqlite:///{path}")
    await other.open()
    try:
        lease = await store.open_lease("w", 600)
        jobs = [await running(store, lease) for _ in range(48)]
        ways: list[Callable[[ClaimedJob], Awaitable[Any]]] = [
            lambda job: store.settle([end(job, output=b"1")]),
            lambda job: store.settle([end(job, SettlementKind.RETRIED, error=BOOM)]),
            lambda job: store.settle([end(job, SettlementKind.FAILED, error=BOOM, yields=True)]),
            lambda job: store.settle([continued(job)]),
            lambda job: store.release(lease, [Claim(job.id, job.claims)]),
            lambda job: store.end([Ending(id=job.id, kind=SettlementKind.COMPLETED, output=b"2")]),
        ]
        acts = [ways[place % 6](job) for place, job in enumerate(jobs)]
        asks = [other.cancel([job.id], "no") for job in jobs]
        results = await asyncio.gather(*(each for pair in zip(asks, acts, strict=True) for each in pair))
        for job, (answer,) in zip(jobs, results[::2], strict=True):
            (last,) = await store.fetch_ends([job.id])
            assert last is not None
            assert last.finished_at is not None
            assert last.state is not JobState.CONTINUED
            assert answer is not Cancellation.NOT_FOUND
            if answer is Cancellation.CANCELLED:
                assert last.state is JobState.CANCELLED
        assert query(path, "SELECT count(*) FROM job") == [(0,)]
        assert query(path, "SELECT count(*) FROM archive GROUP BY id HAVING count(*) > 1") == []
    finally:
        await other.close()


# -- what it costs others ---------------------------------------------------------------------------------------------------


async def test_nothing_is_asked_for_plain_jobs(store: SQLiteStore) -> None:
    """Batches without a marked job execute what they did before there were requests."""
    lease = await store.open_lease("w", 600)
    statements: list[str] = []
    await store._opened.writer.call(lambda connection, _: connection.set_trace_callback(statements.append))
    await store.insert([new_job() for _ in range(20)])
    jobs = await store.claim(lease, ["a"], 20)
    await store.settle(
        [end(each, SettlementKind.COMPLETED if place % 2 else SettlementKind.RETRIED) for place, each in enumerate(jobs)]
    )
    assert len(statements) > 8
    assert not [each for each in statements if "cancel_reason" in each]


async def test_looks_for_requests_go_along_the_index(store: SQLiteStore, path: Path) -> None:
    from aioqueue.sqlite._lease_odd import _ASKED as OF_LEASE
    from aioqueue.sqlite._notifications import _ASKED as OF_ALL
    from aioqueue.sqlite._tend_look import _ASKED as LEFT

    parameters = {"lease": 1, "skip": "[]", "limit": 10}
    with sqlite3.connect(path) as connection:
        for statement in (OF_LEASE, OF_ALL, LEFT):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            assert any("job_asked" in step for step in plan)
    connection.close()
