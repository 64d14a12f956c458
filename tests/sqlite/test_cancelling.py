"""Chains that are asked to end: what becomes of their jobs, by whatever way those would have become pending again."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue.abc import Cancellation, Changed
from aioqueue.sqlite import make_store
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import (
    AttemptError,
    Claim,
    Ending,
    JobState,
    LostReason,
    SettlementKind,
    SettleResult,
)
from aioqueue.vocabulary._unique import Unique
from tests.sqlite.cancelling import asked, job_of, last_error
from tests.sqlite.chains import chain, claim_one, continued, end
from tests.sqlite.conftest import execute, new_job
from tests.sqlite.waiting import after, running, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.sqlite import SQLiteStore
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

BOOM = AttemptError(attempt=1, at=datetime(2026, 1, 1, tzinfo=UTC), type="ValueError", message="boom")


async def test_what_becomes_of_each(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    steps = await chain(store, lease, 3)
    done = await running(store, lease)
    await store.settle([end(done)])
    pending, later = new_job(), new_job(delay=3600)
    await store.insert([pending, later])
    waiting = after(pending.id)
    await store.insert([waiting])
    ids = [steps[0].id, done.id, pending.id, later.id, waiting.id, new_id(), pending.id, steps[2].id]
    answers = [str(each) for each in await store.cancel(ids, "not needed")]
    expected = "cancelling finished cancelled cancelled cancelled not_found cancelled cancelling"
    assert answers == expected.split()
    for each in (pending, later, waiting):
        job = await job_of(store, each)
        assert (job.state, last_error(job)) == (JobState.CANCELLED, ("Cancelled", "not needed"))
    live = await job_of(store, steps[2])
    assert (live.state, live.cancel_reason) == (JobState.RUNNING, "not needed")
    assert (await job_of(store, steps[0])).cancel_reason is None


async def test_the_first_reason_counts(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    job = await asked(store, lease, "first\0" + "x" * 2000)
    assert await store.cancel([job.id], "second") == [Cancellation.CANCELLING]
    reason = (await job_of(store, job)).cancel_reason
    assert reason is not None
    assert reason.startswith("first\ufffdx")
    assert len(reason) == 1000


@pytest.mark.parametrize(
    ("kind", "options", "ends_as", "entry"),
    [
        (SettlementKind.COMPLETED, {"output": b"1"}, JobState.COMPLETED, None),
        (SettlementKind.FAILED, {"error": BOOM}, JobState.FAILED, ("ValueError", "boom")),
        (SettlementKind.FAILED, {"error": BOOM, "yields": True}, JobState.CANCELLED, ("ValueError", "boom")),
        (SettlementKind.RETRIED, {"error": BOOM, "delay": 3600.0}, JobState.CANCELLED, ("ValueError", "boom")),
        (SettlementKind.RETRIED, {}, JobState.CANCELLED, ("Cancelled", "not needed")),
        (
            SettlementKind.RESCHEDULED,
            {"run_at": datetime(2036, 1, 1, tzinfo=UTC)},
            JobState.CANCELLED,
            ("Cancelled", "not needed"),
        ),
        (SettlementKind.CANCELLED, {"error": BOOM}, JobState.CANCELLED, ("ValueError", "boom")),
    ],
)
@pytest.mark.parametrize("orphaned", [False, True])
async def test_every_settlement_looks_at_it(
    store: SQLiteStore,
    kind: SettlementKind,
    options: dict[str, Any],
    ends_as: JobState,
    entry: tuple[str, str] | None,
    orphaned: bool,
) -> None:
    """And a repetition of it answers as the first time did."""
    lease = await store.open_lease("w", 600)
    other = await running(store, lease)
    job = await asked(store, lease)
    waiting, runs = after(job.id), after(job.id, settled=True)
    await store.insert([waiting, runs])
    if orphaned:
        await store.take_expired(10)
        await execute_lapse(store, lease)
    settlements = [end(other, SettlementKind.RETRIED), end(job, kind, **options)]
    results = await store.settle(settlements, orphaned=orphaned)
    cancelled = ends_as is JobState.CANCELLED and kind is not SettlementKind.CANCELLED
    assert results == [SettleResult(), SettleResult(cancelled=cancelled)]
    found = await job_of(store, job)
    assert (found.state, found.cancel_reason) == (ends_as, None)
    assert (None if found.last_error is None else last_error(found)) == entry
    assert await store.settle(settlements, orphaned=orphaned) == results
    if ends_as is JobState.COMPLETED:
        return
    assert await state_of(store, runs.id) is JobState.READY
    failed = await job_of(store, waiting)
    assert failed.state is JobState.FAILED
    assert entry is not None
    assert last_error(failed)[1].endswith(f"{ends_as}: {entry[0]}: {entry[1]}")


async def execute_lapse(store: SQLiteStore, lease: int) -> None:
    path = store.description.removeprefix("sqlite:///")
    await asyncio.to_thread(_lapse, path, lease)


def _lapse(path: str, lease: int) -> None:
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("DELETE FROM lease WHERE id = ?", (lease,))
    connection.close()


async def test_a_continuation_is_cancelled_unstarted(store: SQLiteStore) -> None:
    """Also if what it waits for has failed, and its own chain is waited for; and a retry brings it back, not asked to end."""
    lease = await store.open_lease("w", 600)
    failed = await running(store, lease)
    await store.settle([end(failed, SettlementKind.FAILED, error=BOOM)])
    plain, job = await asked(store, lease, ""), await asked(store, lease)
    waiting = after(job.id)
    await store.insert([waiting])
    following = after(failed.id)
    settlements = [continued(plain), continued(job, following)]
    assert await store.settle(settlements) == [SettleResult(cancelled=True)] * 2
    assert await store.settle(settlements) == [SettleResult(cancelled=True)] * 2
    assert settlements[0].next is not None
    found = await job_of(store, settlements[0].next)
    assert (found.state, found.started_at, last_error(found)) == (JobState.CANCELLED, None, ("Cancelled", "it was cancelled"))
    assert await state_of(store, job.id) is JobState.CONTINUED
    assert last_error(await job_of(store, following)) == ("Cancelled", "not needed")
    assert last_error(await job_of(store, waiting))[1].endswith(f"waits {job.id}: cancelled: Cancelled: not needed")
    assert await store.retry([following.id, plain.id]) == [Changed.BLOCKER_FAILED, Changed.DONE]
    again = await claim_one(store, lease)
    assert again.chain_id == plain.id
    assert await store.settle([end(again, SettlementKind.RETRIED)]) == [SettleResult()]


async def test_whoever_continues_it_from_outside(store: SQLiteStore) -> None:
    lease = await store.open_lease("w", 600)
    job = await asked(store, lease)
    following = new_job()
    assert await store.end([Ending(id=job.id, kind=SettlementKind.CONTINUED, next=following)]) == [True]
    assert await state_of(store, following.id) is JobState.CANCELLED


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_given_back(store: SQLiteStore, whole: bool) -> None:
    lease = await store.open_lease("w", 600)
    kept, job = await running(store, lease), await asked(store, lease)
    heard: list[Notification] = []
    with store.subscribe(heard.append, finished=True):
        await store.release(lease, [] if whole else [Claim(each.id, each.claims) for each in (kept, job)], end=whole)
    assert await state_of(store, kept.id) is JobState.READY
    found = await job_of(store, job)
    assert (found.state, found.attempt, found.started_at) == (JobState.CANCELLED, 0, None)
    assert last_error(found) == ("Cancelled", "not needed")
    assert any(job.id in (each.finished or ()) for each in heard)


async def test_it_frees_the_unique_key(store: SQLiteStore) -> None:
    first, second = (new_job(key="k", unique=Unique()) for _ in range(2))
    await store.insert([first])
    await store.cancel([first.id], "no")
    (inserted,) = await store.insert([second])
    assert inserted.id == second.id


async def test_a_late_settlement_of_what_was_cancelled(store: SQLiteStore) -> None:
    """Cancelled while it waited for its retry: the attempt before has nothing to say any more."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    await store.settle([end(job, SettlementKind.RETRIED)])
    assert await store.cancel([job.id], "no") == [Cancellation.CANCELLED]
    assert [each.lost for each in await store.settle([end(job)])] == [LostReason.CANCELLED]


# -- whoever runs it hears of it ----------------------------------------------------------------------------------------


async def test_renewals_tell(store: SQLiteStore, path: Path) -> None:
    """Whatever somebody has written as the reason; also beside a row that can't be read."""
    lease = await store.open_lease("w", 600)
    jobs = [await asked(store, lease), await asked(store, lease), await running(store, lease)]
    odd = await running(store, lease)
    execute(path, f"UPDATE job SET cancel_reason = x'ff00' WHERE id = '{jobs[1].id}'")
    claims = [Claim(each.id, each.claims) for each in jobs]
    session = store.lease_session()
    try:
        renewal = session.renew(lease, 600, claims[:1])
        expected = {claims[0]: "not needed", claims[1]: "\ufffd\0"}
        assert (renewal.lost, renewal.asked_to_stop) == ({}, expected)
        execute(path, f"UPDATE job SET id = x'{odd.id.hex}{'00' * 20}' WHERE id = '{odd.id}'")
        renewal = session.renew(lease, 600, claims)
        assert (renewal.lost, renewal.unheld, renewal.asked_to_stop) == ({}, (), expected)
    finally:
        session.close()
    assert (await job_of(store, jobs[1])).cancel_reason == "\ufffd\0"
    assert await store.settle([end(jobs[1], SettlementKind.RETRIED)]) == [SettleResult(cancelled=True)]


async def test_other_processes_hear_of_it_once(store: SQLiteStore, path: Path) -> None:
    """Each request is told once to each lease, and not with each commit of others that follows."""
    lease = await store.open_lease("w", 600)
    job = await running(store, lease)
    other = make_store(f"sqlite:///{path}")
    await other.open()
    heard: list[Notification] = []
    changed = asyncio.Event()

    def listen(notification: Notification) -> None:
        heard.append(notification)
        changed.set()

    try:
        with store.subscribe(listen), anyio.fail_after(20):
            await other.cancel([job.id], "no")
            while not any(lease in each.leases for each in heard):
                changed.clear()
                await changed.wait()
            for _ in range(3):
                heard.clear()
                changed.clear()
                await other.insert([new_job("b")])
                await changed.wait()
                assert not any(each.leases for each in heard)
    finally:
        await other.close()
