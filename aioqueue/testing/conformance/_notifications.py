"""The cases of `Store.subscribe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    end_as,
    equal,
    failure,
    insert_one,
    job,
    listening,
    settlement,
    start_one,
    written,
)
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("notifications")


@subject()
async def an_insert_is_told(harness: Harness) -> None:
    """Whoever listens hears that jobs of the types became pending."""
    with listening(harness.store) as heard:
        await harness.store.insert([job("a"), job("b")])
        await heard.wait_for_type("a")
        await heard.wait_for_type("b")


@subject()
async def an_insert_is_told_to_others(harness: Harness) -> None:
    """Another process hears it as well."""
    second = await harness.second_store()
    with listening(second) as heard:
        await insert_one(harness.store, job("a"))
        await heard.wait_for_type("a")
    with listening(harness.store) as heard:
        await insert_one(second, job("b"))
        await heard.wait_for_type("b")


@subject(Capability.NAMES_TYPES)
async def an_insert_names_types_and_delay(harness: Harness) -> None:
    """A due job has delay 0, a scheduled one at most its own."""
    store = harness.store
    with listening(store) as heard:
        await insert_one(store, job("now"))
        found = await heard.wait(lambda each: "now" in (each.types or ()), "a due job")
        equal(found.delay, 0, "the delay of a due job")
        await insert_one(store, job("unrelated", delay=100 * HOUR))
        await insert_one(store, job("soon", delay=2))
        found = await heard.wait(lambda each: "soon" in (each.types or ()), "a job that's due soon")
        check(0 <= found.delay <= 2, f"the delay of a job that's due in 2 s: {found.delay}")


@subject()
async def what_becomes_pending_again_is_told(harness: Harness) -> None:
    """Retries, releases, bringing forward, and operators' retries wake workers."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    retried = await start_one(store, lease_id, job("retried"))
    released = await start_one(store, lease_id, job("released"))
    later = await insert_one(store, job("later", delay=HOUR))
    failed = await end_as(store, job("failed"), SettlementKind.FAILED)
    with listening(await harness.second_store()) as heard, listening(store) as own:
        await written(store, settlement(retried, SettlementKind.RETRIED, delay=0, error=failure()))
        await store.release(lease_id, [released.claim])
        await store.run_now([later])
        await store.retry([failed])
        for listener in (heard, own):
            for name in ("retried", "released", "later", "failed"):
                await listener.wait_for_type(name)


@subject()
async def the_end_of_jobs_is_told(harness: Harness) -> None:
    """Whoever waits for results hears of every kind of end, here and elsewhere."""
    store, second = harness.store, await harness.second_store()
    with listening(store, finished=True) as own, listening(second, finished=True) as others:
        for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
            own.notifications.clear()
            others.notifications.clear()
            job_id = await end_as(store, job(), kind)
            await own.wait_for_end(job_id)
            await others.wait_for_end(job_id)


@subject(Capability.NAMES_FINISHED)
async def the_end_of_jobs_names_them(harness: Harness) -> None:
    """The ids of what has finished, and not of what was retried."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    with listening(store, finished=True) as heard:
        retried = await start_one(store, lease_id, job("retried"))
        await written(store, settlement(retried, SettlementKind.RETRIED, delay=HOUR))
        job_id = await end_as(store, job(), SettlementKind.COMPLETED)
        await heard.wait(lambda each: job_id in (each.finished or ()), "the finished job")
        named = {each for found in heard.notifications for each in found.finished or ()}
        check(retried.id not in named, "a retried job hasn't finished")


@subject()
async def deleted_jobs_are_told(harness: Harness) -> None:
    """Whoever waits in the store for the result of a job that is deleted hears of it, live or finished."""
    store = harness.store
    live, finished = await insert_one(store, job(delay=HOUR)), await end_as(store, job(), SettlementKind.FAILED)
    for job_id in (live, finished):
        with listening(store, finished=True) as heard:
            await store.delete([job_id])
            await heard.wait_for_end(job_id)


@subject(Capability.TELLS_LEASES)
async def a_taken_lease_is_told_to_its_owner(harness: Harness) -> None:
    """The old owner is told at once, instead of finding out at its next renewal."""
    store, second = harness.store, await harness.second_store()
    with listening(store) as heard:
        lease_id = await store.open_lease("w", HOUR)
        await start_one(store, lease_id)
        await harness.age(2 * HOUR)
        await second.take_expired(10)
        await heard.wait(lambda each: lease_id in each.leases, "the lease that was taken")


@subject()
async def a_listener_that_left_hears_nothing(harness: Harness) -> None:
    """After its block a listener isn't called; the others still are."""
    store = harness.store
    with listening(store) as stays:
        with listening(store) as left:
            await insert_one(store, job("first"))
            await left.wait_for_type("first")
        count = len(left.notifications)
        await insert_one(store, job("second"))
        await stays.wait(lambda each: each.types is None or "second" in each.types, "the second job")
    equal(len(left.notifications), count, "notifications of a listener that has left")
