"""The cases of `Store.leases` and `Store.standing`: who works, and where a job stands in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import HOUR, about, check, end_as, equal, insert_one, job, start, start_one
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("workers")


@subject()
async def leases_tell_what_their_worker_said(harness: Harness) -> None:
    """By name: id, since when, for how long, types, slots; None for what wasn't said."""
    store = harness.store
    silent = await store.open_lease("b", HOUR)
    first = await store.open_lease("a", HOUR, types=["one", 'tw"o'], slots=3)
    extra = await store.open_lease("c", HOUR / 2, extra=True, types=[], slots=1)
    found = await store.leases()
    equal([each.id for each in found], [first, silent, extra], "ids of the leases, by their worker's name")
    equal([each.worker for each in found], ["a", "b", "c"], "the workers")
    equal([each.types for each in found], [("one", 'tw"o'), None, ()], "the types")
    equal([each.slots for each in found], [3, None, 1], "the slots")
    equal([each.extra for each in found], [False, False, True], "which are extra")
    for each, seconds in zip(found, (HOUR, HOUR, HOUR / 2), strict=True):
        about(each.ends_in, seconds, f"seconds until the lease of {each.worker} ends")
        check(each.opened_at is not None, f"the lease of {each.worker} must say when it was opened")


@subject()
async def leases_that_have_run_out_are_shown(harness: Harness) -> None:
    """Their jobs wait for somebody to take them over; who looks wants to know."""
    store = harness.store
    await store.open_lease("w", HOUR)
    await harness.age(2 * HOUR)
    found = await store.leases()
    equal(len(found), 1, "leases, where one has run out")
    about(-found[0].ends_in, HOUR, "seconds since the lease ended")


@subject()
async def leases_count_the_jobs_that_they_hold(harness: Harness) -> None:
    """Each its own; neither finished nor pending ones."""
    store = harness.store
    first, second = await store.open_lease("a", HOUR), await store.open_lease("b", HOUR)
    await start(store, first, job(), job())
    await start_one(store, second)
    await end_as(store, job(), SettlementKind.COMPLETED)
    await store.insert([job()])
    running = {each.id: each.running for each in await store.leases()}
    equal((running[first], running[second]), (2, 1), "jobs that the leases hold")


async def _before(store: Store, job_id: UUID, *types: str) -> int:
    standing = await store.standing(job_id, types)
    assert standing is not None
    return standing.before


@subject()
async def due_jobs_before_one(harness: Harness) -> None:
    """As they are claimed: by priority, due time and id; of the types that are asked for; only what is due."""
    store = harness.store
    older = await insert_one(store, job())
    await harness.age(HOUR)
    same = [job() for _ in range(3)]
    await store.insert(same)
    await store.insert([job(priority=1), job("b"), job("b", priority=3), job(priority=1, delay=HOUR), job(priority=4)])
    equal(await _before(store, older, "a"), 1, "jobs before the oldest one: the urgent one")
    equal([await _before(store, each.id, "a") for each in same], [2, 3, 4], "jobs before those inserted together")
    late = await insert_one(store, job(priority=4))
    equal(await _before(store, late, "a"), 6, "jobs of its type before the last one")
    equal(await _before(store, late, "a", "b"), 8, "jobs of both types before the last one")
    equal(await _before(store, late), 0, "jobs of no types")
    scheduled = await insert_one(store, job(delay=HOUR))
    equal(await _before(store, scheduled, "a"), 5, "due jobs before one that isn't due yet")


@subject()
async def who_holds_a_running_job(harness: Harness) -> None:
    """The lease, also when it has run out; nobody before it is started, or when it's pending again."""
    store = harness.store
    waiting = await insert_one(store, job("waiting"))
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    for _ in range(2):
        standing = await store.standing(claimed.id, ["a"])
        assert standing is not None
        equal((standing.lease_id, standing.before), (lease_id, 0), "who holds it, and what is before it")
        await harness.age(2 * HOUR)
    pending = await store.standing(waiting, ["waiting"])
    assert pending is not None
    equal(pending.lease_id, None, "who holds a pending job")


@subject()
async def only_live_jobs_stand_anywhere(harness: Harness) -> None:
    """None for a finished one, and for one that isn't there."""
    store = harness.store
    finished = await end_as(store, job(), SettlementKind.FAILED)
    equal(await store.standing(finished, ["a"]), None, "a finished job")
    equal(await store.standing(new_id(), ["a"]), None, "a job that isn't there")
