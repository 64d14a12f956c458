"""The cases of `Store.release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import LeaseLost
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    job,
    lease_thread,
    raises,
    settlement,
    start,
    start_one,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim, JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("release")


@subject()
async def gives_the_attempt_back(harness: Harness) -> None:
    """A job that is given back is pending at once, with its attempt; its claims go on, since they're the fence."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    claimed = await start_one(store, lease_id)
    await store.release(lease_id, [claimed.claim])
    found = await expect_state(store, claimed.id, JobState.READY)
    equal((found.attempt, found.worker, found.errors), (0, None, ()), "attempt, worker, errors")
    again = await claim_one(store, other)
    equal((again.attempt, again.claims, again.reschedules), (1, 2, 0), "attempt, claims, reschedules")


@subject()
async def leaves_alone_what_it_doesnt_own(harness: Harness) -> None:
    """Claims of others, old ones and unknown ones don't matter, nor do they stop the rest."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    mine, done = await start(store, lease_id, job(), job())
    theirs = await start_one(store, other)
    await store.settle([settlement(done, SettlementKind.COMPLETED, output=b"1")])
    await store.release(lease_id, [theirs.claim, done.claim, Claim(new_id(), 1), Claim(mine.id, 7)])
    await expect_state(store, theirs.id, JobState.RUNNING)
    await expect_state(store, mine.id, JobState.RUNNING)
    await expect_state(store, done.id, JobState.COMPLETED)
    await store.release(lease_id, [theirs.claim, done.claim, mine.claim])
    await expect_state(store, mine.id, JobState.READY)
    await expect_state(store, theirs.id, JobState.RUNNING)


@subject()
async def repeating_is_safe(harness: Harness) -> None:
    """A release whose answer was lost may be repeated, also when another has the job by now."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    claimed = await start_one(store, lease_id)
    await store.release(lease_id, [claimed.claim])
    await store.release(lease_id, [claimed.claim])
    equal((await expect_state(store, claimed.id, JobState.READY)).attempt, 0, "attempts")
    await store.claim(other, ["a"], 1)
    await store.release(lease_id, [claimed.claim])
    equal((await expect_state(store, claimed.id, JobState.RUNNING)).attempt, 1, "attempts")


@subject()
async def ending_gives_everything_back(harness: Harness) -> None:
    """With `end` the lease is gone and all that it held is pending, named or not."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    one, two, three = await start(store, lease_id, job(), job(), job())
    theirs = await start_one(store, other)
    await store.settle([settlement(three, SettlementKind.COMPLETED, output=b"1")])
    await store.release(lease_id, [one.claim], end=True)
    for each in (one, two):
        equal((await expect_state(store, each.id, JobState.READY)).attempt, 0, "attempts")
    await expect_state(store, theirs.id, JobState.RUNNING)
    await raises(LeaseLost, store.claim(lease_id, ["a"], 1), "a claim with a lease that has ended")
    async with lease_thread(store) as thread:
        check(not (await thread.renew(lease_id, HOUR)).valid, "a lease that has ended can't be renewed")
    equal((await store.stats()).workers, ("other",), "workers with a valid lease")
    await store.release(lease_id, [], end=True)


@subject()
async def ending_an_expired_lease(harness: Harness) -> None:
    """A worker that stops late gives back what nobody has taken."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    await store.release(lease_id, [], end=True)
    equal((await expect_state(store, claimed.id, JobState.READY)).attempt, 0, "attempts")


@subject()
async def is_due_now(harness: Harness) -> None:
    """What is given back is due again, at the earliest now."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(HOUR)
    await store.release(lease_id, [claimed.claim])
    equal((await store.next_due(["a"])).job, 0, "the next due time")
    again = await claim_one(store, lease_id)
    check((again.started_at - again.run_at).total_seconds() < HOUR, "every change to pending sets the due time")
