"""The cases of `Store.stats` and `Store.next_due`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Fault, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    end_as,
    equal,
    failure,
    insert_one,
    job,
    settlement,
    start_one,
    written,
)
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["due", "subject"]

subject = Subject("stats")
due = Subject("next_due")


def _about(actual: float | None, expected: float, what: str) -> None:
    if actual is None or not abs(actual - expected) <= 300:
        raise AssertionError(f"{what}: expected about {expected} s, got {actual!r}")


@subject()
async def of_an_empty_queue(harness: Harness) -> None:
    """No types, no workers."""
    stats = await harness.store.stats()
    equal((len(stats.types), len(stats.workers)), (0, 0), "types and workers")


@subject()
async def counts_by_type_and_state(harness: Harness) -> None:
    """Every state that occurs, live and archived."""
    store = harness.store
    for kind in (SettlementKind.COMPLETED, SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        await end_as(store, job("a"), kind)
    await end_as(store, job("b"), SettlementKind.FAILED)
    lease_id = await store.open_lease("w", HOUR)
    await start_one(store, lease_id, job("a"))
    await store.insert([job("a"), job("a"), job("a", delay=HOUR), job("c", delay=HOUR)])
    stats = await store.stats()
    equal(sorted(stats.types), ["a", "b", "c"], "the types")
    expected = {
        JobState.COMPLETED: 2,
        JobState.FAILED: 1,
        JobState.CANCELLED: 1,
        JobState.RUNNING: 1,
        JobState.READY: 2,
        JobState.SCHEDULED: 1,
    }
    equal({state: count for state, count in stats.types["a"].counts.items() if count}, expected, "counts of a")
    equal({state: count for state, count in stats.types["b"].counts.items() if count}, {JobState.FAILED: 1}, "counts of b")
    equal(len(stats.types["a"].capped), 0, "capped states")


@subject()
async def the_oldest_ready_job(harness: Harness) -> None:
    """How long the oldest ready job has been due; None if there is none."""
    store = harness.store
    await insert_one(store, job("a"))
    await harness.age(HOUR)
    await store.insert([job("a"), job("b", delay=HOUR)])
    stats = await store.stats()
    _about(stats.types["a"].oldest_ready, HOUR, "the oldest ready job of a")
    equal(stats.types["b"].oldest_ready, None, "the oldest ready job of b")


@subject()
async def workers_with_a_valid_lease(harness: Harness) -> None:
    """Expired ones aren't shown."""
    store = harness.store
    await store.open_lease("dead", HOUR)
    await harness.age(2 * HOUR)
    await store.open_lease("alive", HOUR)
    await store.open_lease("also alive", HOUR)
    equal(sorted((await store.stats()).workers), ["alive", "also alive"], "the workers")


@subject()
async def workers_are_counted_once_each(harness: Harness) -> None:
    """Two of one name are two; one with several leases is one."""
    store = harness.store
    for name in ("same", "same", "other"):
        await store.open_lease(name, HOUR)
    await store.open_lease("other", HOUR / 2, extra=True)
    equal(sorted((await store.stats()).workers), ["other", "same", "same"], "the workers")


@due()
async def of_nothing(harness: Harness) -> None:
    """None without a pending job of the types."""
    store = harness.store
    equal((await store.next_due(["a"])).job, None, "the next due of an empty queue")
    await insert_one(store, job("b"))
    equal((await store.next_due(["a"])).job, None, "the next due of other types")
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job("a"))
    equal((await store.next_due(["a"])).job, None, "the next due while all are running")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    equal((await store.next_due(["a"])).job, None, "the next due when all are finished")


@due()
async def of_the_first(harness: Harness) -> None:
    """Seconds until the first is due, whatever its priority; 0 when one is."""
    store = harness.store
    await store.insert([job("a", delay=3 * HOUR, priority=1), job("b", delay=2 * HOUR, priority=4), job("c", delay=HOUR)])
    _about((await store.next_due(["a", "b"])).job, 2 * HOUR, "the next due")
    _about((await store.next_due(["a"])).job, 3 * HOUR, "the next due")
    await harness.age(HOUR)
    _about((await store.next_due(["a", "b"])).job, HOUR, "the next due an hour later")
    await harness.age(5 * HOUR)
    equal((await store.next_due(["a", "b"])).job, 0, "the next due when it's over")


@due()
async def of_the_far_future(harness: Harness) -> None:
    """Year 9999 is only a large number."""
    store = harness.store
    await insert_one(store, job(run_at=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)))
    seconds = (await store.next_due(["a"])).job
    check(seconds is not None and seconds > 365 * 24 * HOUR, f"the next due in seconds: {seconds!r}")


@due()
async def after_a_retry(harness: Harness) -> None:
    """A job that waits to be tried again counts."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=2 * HOUR))
    _about((await store.next_due(["a"])).job, 2 * HOUR, "the next due")


@due()
async def of_what_is_never_due(harness: Harness) -> None:
    """A job whose due time is infinite never counts, and hides none that is due some day."""
    store = harness.store
    odd = await insert_one(store, job())
    if not await harness.spoil(odd, Fault.DUE):
        return
    equal((await store.next_due(["a"])).job, None, "the next due beside one that is never due")
    await insert_one(store, job(delay=2 * HOUR))
    _about((await store.next_due(["a"])).job, 2 * HOUR, "the next due beside one that is never due")


@due()
async def of_leases(harness: Harness) -> None:
    """Seconds until the first lease of somebody else runs out; 0 once it has, until it's taken."""
    store = harness.store
    equal((await store.next_due(["a"])).lease, None, "the first end without leases")
    mine = await store.open_lease("mine", HOUR)
    equal((await store.next_due(["a"], own=[mine])).lease, None, "the first end of the leases of others")
    _about((await store.next_due(["a"])).lease, HOUR, "the first end")
    await store.open_lease("longer", 5 * HOUR)
    theirs = await store.open_lease("theirs", 3 * HOUR)
    _about((await store.next_due([], own={mine})).lease, 3 * HOUR, "the first end of the leases of others")
    await harness.age(4 * HOUR)
    equal((await store.next_due(["a"], own=[mine])).lease, 0, "the first end when it's over")
    equal((await store.next_due(["a"], own=[])).lease, 0, "the first end, the own included")
    await store.take_expired(10, own=[mine])
    _about((await store.next_due(["a"], own=[mine])).lease, HOUR, "the first end when one was taken")
    check(theirs != mine, "ids of two leases must differ")


@due()
async def of_jobs_without_a_lease(harness: Harness) -> None:
    """0 while jobs run without any lease, whatever became of its row; their own worker's don't count."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    claimed = await start_one(store, lease_id)
    await start_one(store, other)
    await harness.delete_lease(lease_id)
    equal((await store.next_due(["b"])).lease, 0, "the first end while a job has no lease")
    own = (await store.next_due(["b"], own=[lease_id])).lease
    _about(own, HOUR, "the first end for the worker whose job it is")
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure()), orphaned=True)
    _about((await store.next_due(["b"])).lease, HOUR, "the first end once it's settled")
