"""The cases of `Store.stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    end_as,
    equal,
    insert_one,
    job,
    start_one,
)
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("stats")


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
    about(stats.types["a"].oldest_ready, HOUR, "the oldest ready job of a")
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
