"""The cases of `Store.reschedule`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._operate import named, one_of_each
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    about,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    near,
    next_step,
    rolled_back,
    settlement,
    snapshot,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import after
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("reschedule")


@subject()
async def in_every_state(harness: Harness) -> None:
    """Only pending jobs are moved; what is due then is claimed then."""
    store = harness.store
    jobs = await one_of_each(harness)
    jobs["blocked"] = await insert_one(store, after(job(), jobs["ready"]))
    expected = {
        "completed": Changed.WRONG_STATE,
        "failed": Changed.WRONG_STATE,
        "cancelled": Changed.WRONG_STATE,
        "running": Changed.RUNNING,
        "scheduled": Changed.DONE,
        "ready": Changed.DONE,
        "unknown": Changed.NOT_FOUND,
        "blocked": Changed.WRONG_STATE,
    }
    results = list(await store.reschedule(list(jobs.values()), delay=5 * HOUR))
    equal(named(jobs, results), expected, "the results of reschedule")
    now = datetime.now(UTC)
    for name in ("scheduled", "ready"):
        found = await expect_state(store, jobs[name], JobState.SCHEDULED)
        near(found.run_at, now + timedelta(hours=5), f"when the {name} one is due")
    about((await store.next_due(["a"])).job, 5 * HOUR, "the next due")
    lease_id = await store.open_lease("other", 100 * HOUR)
    equal(list(await store.claim(lease_id, ["a"], 10)), [], "what can be claimed before")
    await harness.age(6 * HOUR)
    equal({each.id for each in await store.claim(lease_id, ["a"], 10)}, {jobs["scheduled"], jobs["ready"]}, "claimed then")


@subject()
async def at_a_time(harness: Harness) -> None:
    """By a time, kept as exactly as the store can; one in the past, or a delay below zero, means now."""
    store = harness.store
    job_id, now = await insert_one(store, job(delay=HOUR)), datetime.now(UTC)
    at = now + timedelta(hours=30, microseconds=123456)
    equal(list(await store.reschedule([job_id], run_at=at)), [Changed.DONE], "the result")
    apart = abs((await snapshot(store, job_id)).run_at - at)
    check(apart <= harness.resolution, f"the time must be kept up to {harness.resolution}, not {apart} apart")
    for delay, run_at in ((None, now - timedelta(days=400)), (-HOUR, None), (0.0, None)):
        await store.reschedule([job_id], delay=HOUR)
        result = await store.reschedule([job_id], delay=delay, run_at=run_at)
        equal(list(result), [Changed.DONE], f"the result of {delay}, {run_at}")
        found = await expect_state(store, job_id, JobState.READY)
        near(found.run_at, now, f"when it's due after {delay}, {run_at}")
    await claim_one(store, await store.open_lease("w", HOUR))


@subject()
async def nothing_else_changes(harness: Harness) -> None:
    """Attempts stay counted, and its time to expire is what it was."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(expires=HOUR, key="k", tags=("t",)))
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    before = await snapshot(store, claimed.id)
    await store.reschedule([claimed.id], delay=9 * HOUR)
    found = await snapshot(store, claimed.id)
    same = ("attempt", "reschedules", "expires_at", "started_at", "errors", "key", "tags", "created_at", "state")
    equal([getattr(found, name) for name in same], [getattr(before, name) for name in same], "what isn't its due time")
    await store.reschedule([claimed.id], delay=0)
    equal((await claim_one(store, lease_id)).attempt, 2, "the next attempt")


@subject()
async def means_the_live_step(harness: Harness) -> None:
    """Any step's id stands for its chain's live step, and the same one twice is moved once."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    second = await next_step(store, first)
    last = job("last", delay=HOUR)
    await written(store, settlement(second, SettlementKind.CONTINUED, next=last))
    for each in (first.id, second.id, last.id):
        equal(list(await store.reschedule([each], delay=9 * HOUR)), [Changed.DONE], "the result")
    equal(list(await store.reschedule([first.id, second.id], delay=0)), [Changed.DONE] * 2, "the results by two ids")
    equal((await claim_one(store, lease_id, "last")).id, last.id, "what is claimed")


@subject(Capability.NAMES_TYPES)
async def listeners_are_told(harness: Harness) -> None:
    """Listeners hear of the types that are due, and when; after the commit, if it's in a transaction, or not at all."""
    store = harness.store
    now, later = await insert_one(store, job("now", delay=HOUR)), await insert_one(store, job("later", delay=9 * HOUR))
    with listening(store) as heard:
        with rolled_back():
            async with store.transaction() as transaction:
                await transaction.operations.reschedule([now, later], delay=0)
                raise OnPurposeError
        await store.reschedule([later], delay=0.5 * HOUR)
        found = await heard.wait(lambda each: "later" in (each.types or ()), "what is due later")
        check("now" not in heard.named(), "what was rolled back mustn't be told")
        about(found.delay, 0.5 * HOUR, "the delay that is told")
        async with store.transaction() as transaction:
            equal(list(await transaction.operations.reschedule([now], run_at=datetime.now(UTC))), [Changed.DONE], "the result")
            check("now" not in heard.named(), "nothing may be told before the commit")
        found = await heard.wait(lambda each: "now" in (each.types or ()), "what is due now")
        about(found.delay, 0, "the delay of what is due")
