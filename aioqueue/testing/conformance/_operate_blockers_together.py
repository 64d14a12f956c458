"""The cases of `Store.delete` and `Store.retry` about jobs that wait for each other, and are changed by one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import HOUR, claim_one, equal, expect_state, insert_one, job, states_of
from aioqueue.testing.conformance._waiting import (
    after,
    complete,
    ending,
    fail,
    settled_after,
    start_blocker,
    tend_all,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["deleting", "retrying"]

deleting = Subject("delete_together")
retrying = Subject("retry_together")


@deleting()
async def with_the_only_one_that_waits(harness: Harness) -> None:
    """A chain goes with all that wait for it, however far behind, in whatever order they're named."""
    store = harness.store
    for order in (1, -1):
        blocker = await start_blocker(store)
        one, ready = after(job("one"), blocker.id), job("ready")
        both = settled_after(after(job("both"), one.id), ready.id)
        await store.insert([one, ready, both])
        ids = [blocker.id, one.id, ready.id, both.id][::order]
        equal(list(await store.delete(ids)), [Changed.DONE] * 4, "the results")
        equal(await states_of(store, *ids), [None] * 4, "what's left")
        equal([len(await waits_for(store, each)) for each in ids], [0] * 4, "how many are waited for")


@deleting()
async def those_behind_which_one_stays(harness: Harness) -> None:
    """One that another waits for stays, and so does what it waits for; the others go."""
    store = harness.store
    for order in (1, -1):
        blocker, other = await start_blocker(store), await start_blocker(store)
        one, plain = after(job("one"), blocker.id), after(job("plain"), other.id)
        behind = after(job("behind"), one.id)
        await store.insert([one, plain, behind])
        ids = [blocker.id, one.id, plain.id, other.id][::order]
        expected = [Changed.BLOCKS, Changed.BLOCKS, Changed.DONE, Changed.DONE][::order]
        equal(list(await store.delete(ids)), expected, "the results")
        equal(await waiting_for(store, blocker.id), [one.id], "who waits")
        await expect_state(store, one.id, JobState.BLOCKED)


@retrying()
async def one_and_what_it_waits_for(harness: Harness) -> None:
    """Both live again, in whatever order they're named, and the one waits for the other."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for order in (1, -1):
        blocker = await start_blocker(store)
        one = after(job("one"), blocker.id)
        two = after(job("two"), one.id)
        await store.insert([one, two])
        await fail(store, blocker)
        await tend_all(store)
        equal(list(await store.retry([blocker.id, one.id, two.id][::order])), [Changed.DONE] * 3, "the results")
        states = [JobState.READY, JobState.BLOCKED, JobState.BLOCKED]
        equal(await states_of(store, blocker.id, one.id, two.id), states, "the states")
        for name in ("blocker", "one", "two"):
            await complete(store, await claim_one(store, lease_id, name), b"5")


@retrying()
async def one_that_takes_the_end_of_another(harness: Harness) -> None:
    """It waits for the next end of what lives again with it, though it could run with the last one."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for order in (1, -1):
        first = await insert_one(store, job("first"))
        broken = await insert_one(store, after(job("broken"), first))
        takes = await insert_one(store, settled_after(job("takes"), broken))
        await complete(store, await claim_one(store, lease_id, "first"))
        await fail(store, await claim_one(store, lease_id, "broken"))
        await fail(store, await claim_one(store, lease_id, "takes"))
        equal(list(await store.retry([broken, takes][::order])), [Changed.DONE] * 2, "the results")
        await expect_state(store, takes, JobState.BLOCKED)
        await complete(store, await claim_one(store, lease_id, "broken"), b"7")
        takes_again = await claim_one(store, lease_id, "takes")
        equal(told(takes_again), [(broken, ChainEnd.COMPLETED, b"7")], "what it's told")
        await complete(store, takes_again)


@retrying()
async def behind_those_that_are_blocked_still(harness: Harness) -> None:
    """With `cascade` also those live again that failed behind one that lives, and hasn't been told of the failure yet."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    levels = [after(job("level"), blocker.id)]
    for _ in range(4):
        levels.append(after(job("level"), levels[-1].id))
    await store.insert(levels)
    await fail(store, blocker)
    await tend_all(store)
    ids = [each.id for each in levels]
    equal(list(await store.retry([blocker.id, *ids[:2]])), [Changed.DONE] * 3, "a retry of some")
    await fail(store, await claim_one(store, lease_id, "blocker"))
    equal(list(await store.retry([blocker.id], cascade=True)), [Changed.DONE], "the result")
    equal(await states_of(store, blocker.id, *ids), [JobState.READY, *[JobState.BLOCKED] * 5], "the states")
    await tend_all(store)
    await complete(store, await claim_one(store, lease_id, "blocker"))
    for _ in ids:
        await complete(store, await claim_one(store, lease_id, "level"))


@retrying()
async def a_cascade_goes_by_what_is_needed(harness: Harness) -> None:
    """One that failed through another chain stays, though that lives again, if it took the end either way of this one."""
    store = harness.store
    needed, taken = await start_blocker(store), await start_blocker(store)
    waits = await insert_one(store, settled_after(after(job("waits"), needed.id), taken.id))
    await fail(store, needed)
    await fail(store, taken)
    await tend_all(store)
    await store.retry([needed.id])
    equal(list(await store.retry([taken.id], cascade=True)), [Changed.DONE], "the result")
    await expect_state(store, waits, JobState.FAILED)


@retrying()
async def a_cascade_leaves_those_that_failed_otherwise(harness: Harness) -> None:
    """One that was made to fail from outside, before what it needed failed, stays."""
    store = harness.store
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), blocker.id))
    equal(list(await store.end([ending(waits, SettlementKind.FAILED)])), [True], "the end from outside")
    await fail(store, blocker)
    await tend_all(store)
    equal(list(await store.retry([blocker.id], cascade=True)), [Changed.DONE], "the result")
    await expect_state(store, waits, JobState.FAILED)
