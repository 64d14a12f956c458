"""The cases of `Store.insert` about jobs that wait for others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import BlockerCycle, BlockerNotFound
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    expect_state,
    insert_one,
    job,
    listening,
    next_step,
    raises,
    snapshot,
    start_chain,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    completed,
    ends_well,
    fail,
    failed,
    settled_after,
    start_blocker,
    tend_all,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._blockers import ChainEnd, NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("insert_blockers")


@subject()
async def is_blocked_until_its_blockers_have_completed(harness: Harness) -> None:
    """It's stored as blocked, with as many open blockers, and isn't claimed before the last of them has completed."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start_blocker(store), await start_blocker(store)
    new = after(job("waits"), one.id, two.id)
    equal(list(await store.insert([new])), [Inserted(new.id, created=True)], "the result")
    found = await expect_state(store, new.id, JobState.BLOCKED)
    equal((found.open_blockers, found.attempt, found.errors), (2, 0, ()), "open blockers, attempt, errors")
    equal(await waits_for(store, new.id), [(one.id, False), (two.id, False)], "what it waits for")
    await complete(store, one)
    equal((await expect_state(store, new.id, JobState.BLOCKED)).open_blockers, 1, "open blockers after the first")
    equal(list(await store.claim(lease_id, ["waits"], 1)), [], "what may be claimed before the last has completed")
    equal((await store.next_due(["waits"])).job, None, "the next due while it's blocked")
    await complete(store, two)
    equal((await expect_state(store, new.id, JobState.READY)).open_blockers, 0, "open blockers after the last")
    equal((await claim_one(store, lease_id, "waits")).id, new.id, "what is claimed")


@subject()
async def in_one_batch_with_its_blockers(harness: Harness) -> None:
    """Jobs that wait for others of their batch are stored with them, whatever the graph."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = job("first")
    left, right = after(job("left"), first.id), after(job("right"), first.id)
    last = after(job("last"), left.id, right.id, first.id)
    results = await store.insert([first, left, right, last])
    equal([each.created for each in results], [True] * 4, "created")
    states = [(await snapshot(store, each.id)).state for each in (first, left, right, last)]
    equal(states, [JobState.READY, *[JobState.BLOCKED] * 3], "the states")
    equal((await snapshot(store, last.id)).open_blockers, 3, "open blockers of the last")
    await complete(store, await claim_one(store, lease_id, "first"))
    equal((await snapshot(store, last.id)).open_blockers, 2, "open blockers of the last, after the first")
    await complete(store, await claim_one(store, lease_id, "left"))
    equal(list(await store.claim(lease_id, ["last"], 1)), [], "the last, while one is open")
    await complete(store, await claim_one(store, lease_id, "right"))
    equal((await claim_one(store, lease_id, "last")).id, last.id, "the last")


@subject()
async def an_unknown_blocker(harness: Harness) -> None:
    """A chain that isn't there is refused with its id, and nothing of the batch is stored."""
    store = harness.store
    unknown, other = new_id(), job("other")
    known = await start_blocker(store)
    waits = after(job("waits"), known.id, unknown)
    try:
        await store.insert([other, waits])
    except BlockerNotFound as error:
        equal(error.blocker_id, unknown, "the id in the error")
    else:
        raise AssertionError("an unknown blocker must raise BlockerNotFound")
    equal(list(await store.fetch([other.id, waits.id])), [None, None], "what was stored")
    equal(await waiting_for(store, known.id), [], "who waits for the known one")
    equal(list(await store.insert([other])), [Inserted(other.id, created=True)], "another insert")


@subject()
async def a_deleted_blocker(harness: Harness) -> None:
    """A chain that was deleted isn't there."""
    store = harness.store
    gone = await insert_one(store, job())
    await store.delete([gone])
    await raises(BlockerNotFound, store.insert([after(job("waits"), gone)]), "a job that waits for a deleted one")


@subject()
async def a_blocker_behind_it(harness: Harness) -> None:
    """A job that waits for itself, or for one that comes after it in its batch, would wait for ever: nothing is stored."""
    store = harness.store
    first, second, other = job("first"), job("second"), job("other")
    circle = [other, after(first, second.id), after(second, first.id)]
    for batch in (circle, [other, after(first, first.id)], [other, after(first, second.id), second]):
        await raises(BlockerCycle, store.insert(batch), "a job that waits for itself, or for a later one")
    equal(list(await store.fetch([other.id, first.id, second.id])), [None, None, None], "what was stored")


@subject()
async def what_has_completed_counts_at_once(harness: Harness) -> None:
    """Waiting for a chain that has completed isn't waiting; its output is there at the claim."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    done, open_one = await completed(store, b'"out"'), await start_blocker(store)
    ready, partly = after(job("ready"), done), after(job("partly"), done, open_one.id)
    later = after(job("later", delay=HOUR), done)
    await store.insert([ready, partly, later])
    equal((await expect_state(store, ready.id, JobState.READY)).open_blockers, 0, "open blockers")
    equal((await expect_state(store, partly.id, JobState.BLOCKED)).open_blockers, 1, "open blockers of the other")
    await expect_state(store, later.id, JobState.SCHEDULED)
    equal(told(await claim_one(store, lease_id, "ready")), [(done, ChainEnd.COMPLETED, b'"out"')], "what it's told")
    await complete(store, open_one, b"2")
    claimed = await claim_one(store, lease_id, "partly")
    equal(
        told(claimed), [(done, ChainEnd.COMPLETED, b'"out"'), (open_one.id, ChainEnd.COMPLETED, b"2")], "what the other is told"
    )


@subject()
async def what_has_failed_counts_at_once(harness: Harness) -> None:
    """A job that needs the output of a chain that has failed, or was cancelled, fails with its insert, and says why."""
    store = harness.store
    broken = await failed(store, "the disk is full")
    dropped = await end_as(store, job("dropped"), SettlementKind.CANCELLED)
    one, other = after(job("waits"), broken), after(job("waits"), dropped)
    results = await store.insert([one, other])
    equal([each.created for each in results], [True, True], "created")
    caused(await expect_state(store, one.id, JobState.FAILED), broken, "blocker", "failed", "the disk is full")
    caused(await expect_state(store, other.id, JobState.FAILED), dropped, "dropped", "cancelled")


@subject()
async def what_fails_with_its_insert_takes_those_along_that_wait_for_it(harness: Harness) -> None:
    """In the batch and after it, down all levels, with the first cause."""
    store = harness.store
    broken = await failed(store, "the first cause")
    one = after(job("one"), broken)
    two = after(job("two"), one.id)
    three = after(job("three"), two.id)
    await store.insert([one, two])
    await store.insert([three])
    await tend_all(store)
    for each in (one, two, three):
        caused(await expect_state(store, each.id, JobState.FAILED), broken, "the first cause")


@subject()
async def settled_counts_either_way(harness: Harness) -> None:
    """A job that takes a chain's end however it is runs after a failure that was there before, and sees it."""
    store = harness.store
    broken = await failed(store, "boom")
    new = settled_after(job("waits"), broken)
    await store.insert([new])
    claimed = await claim_one(store, await store.open_lease("w", HOUR), "waits")
    equal(told(claimed), [(broken, ChainEnd.FAILED, None)], "what it's told")
    check("boom" in claimed.blockers[0].cause, f"the cause must tell why: {claimed.blockers[0].cause!r}")


@subject()
async def an_output_and_a_settled_one(harness: Harness) -> None:
    """Where a job needs one chain's output, another's failure doesn't stop it; where it needs the failed one's, it fails."""
    store = harness.store
    broken, done = await failed(store), await completed(store)
    runs = settled_after(after(job("runs"), done), broken)
    stops = settled_after(after(job("stops"), broken), done)
    await store.insert([runs, stops])
    await expect_state(store, runs.id, JobState.READY)
    await expect_state(store, stops.id, JobState.FAILED)


@subject()
async def any_steps_id_stands_for_its_chain(harness: Harness) -> None:
    """A job that waits for a step waits for the end of its chain: a continued step isn't one."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, second = await start_chain(store, lease_id, 2, job("step"))
    by_first, by_second = after(job("waits"), first.id), after(job("waits"), second.id)
    await store.insert([by_first, by_second])
    for new in (by_first, by_second):
        equal(await waits_for(store, new.id), [(first.id, False)], "what it waits for")
        await expect_state(store, new.id, JobState.BLOCKED)
    last = await next_step(store, second)
    equal(await waiting_for(store, first.id), sorted([by_first.id, by_second.id]), "who waits after another step")
    await complete(store, last, b"3")
    claimed = await store.claim(lease_id, ["waits"], 10)
    equal([told(each) for each in claimed], [[(first.id, ChainEnd.COMPLETED, b"3")]] * 2, "what they're told")
    late = after(job("late"), second.id)
    await store.insert([late])
    await expect_state(store, late.id, JobState.READY)
    equal(await waits_for(store, late.id), [(first.id, True)], "what the late one has waited for")


@subject()
async def a_blocker_whose_unique_key_another_has(harness: Harness) -> None:
    """A blocker of the batch that wasn't created, since another chain holds its key: that chain is waited for."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    holder = await insert_one(store, job("blocker", key="k", unique=Unique()))
    blocker = job("blocker", key="k", unique=Unique())
    new = after(job("waits"), blocker.id)
    results = await store.insert([blocker, new])
    equal(list(results), [Inserted(holder, created=False), Inserted(new.id, created=True)], "the results")
    equal(await waits_for(store, new.id), [(holder, False)], "what it waits for")
    await complete(store, await claim_one(store, lease_id, "blocker"), b"7")
    equal(told(await claim_one(store, lease_id, "waits")), [(holder, ChainEnd.COMPLETED, b"7")], "what it's told")


@subject()
async def two_blockers_with_one_unique_key(harness: Harness) -> None:
    """Both stand for the chain that has it: its end counts for both."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, other = job("blocker", key="k", unique=Unique()), job("blocker", key="k", unique=Unique())
    new = after(job("waits"), one.id, other.id)
    await store.insert([one, other, new])
    equal(await waits_for(store, new.id), [(one.id, False), (one.id, False)], "what it waits for")
    await complete(store, await claim_one(store, lease_id, "blocker"))
    await expect_state(store, new.id, JobState.READY)


@subject()
async def a_dependent_whose_unique_key_another_has(harness: Harness) -> None:
    """It isn't created, and what it would have waited for isn't held up by it."""
    store = harness.store
    holder = await insert_one(store, job("waits", key="k", unique=Unique()))
    blocker = await start_blocker(store)
    new = after(job("waits", key="k", unique=Unique()), blocker.id)
    equal(list(await store.insert([new])), [Inserted(holder, created=False)], "the result")
    equal(await waiting_for(store, blocker.id), [], "who waits")
    await expect_state(store, holder, JobState.READY)


@subject(Capability.NAMES_TYPES)
async def is_told_when_it_can_run(harness: Harness) -> None:
    """Listeners don't hear of a blocked job, and do when its last blocker has completed."""
    store = harness.store
    blocker = await start_blocker(store)
    with listening(store) as heard:
        await store.insert([after(job("waits"), blocker.id), job("plain")])
        await heard.wait_for_type("plain")
        check("waits" not in heard.named(), "nothing may be told of a job that is blocked")
        await complete(store, blocker)
        await heard.wait_for_type("waits")


@subject()
async def places_come_back(harness: Harness) -> None:
    """Where outputs stand is stored beside the payload, and given back at the claim, in order."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start_blocker(store), await start_blocker(store)
    places = b'[["output", "pages", 0], ["settled", "\\u0000", "x"]]'
    blockers = (NewBlocker(one.id, places=places), NewBlocker(two.id, settled=True, places=b'[["settled", "r"]]'))
    new = replace(job("waits", payload=b'{"pages": [null], "r": null}'), blockers=blockers)
    await store.insert([new])
    await complete(store, one, b'{"a": "\\u0000"}')
    await fail(store, two)
    claimed = await claim_one(store, lease_id, "waits")
    equal([each.places for each in claimed.blockers], [places, b'[["settled", "r"]]'], "the places")
    equal(told(claimed), [(one.id, ChainEnd.COMPLETED, b'{"a": "\\u0000"}'), (two.id, ChainEnd.FAILED, None)], "the ends")
    equal(claimed.payload, b'{"pages": [null], "r": null}', "the payload")


@subject()
async def many_blockers_of_one_job(harness: Harness) -> None:
    """Hundreds, some of which end in one batch: each counts once, and the job runs after the last."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blockers = [job("blocker") for _ in range(300)]
    new = after(job("waits"), *(each.id for each in blockers))
    await store.insert([*blockers, new])
    equal((await snapshot(store, new.id)).open_blockers, 300, "open blockers")
    left = 300
    while claimed := await store.claim(lease_id, ["blocker"], 120):
        equal(list(await store.claim(lease_id, ["waits"], 1)), [], f"while {left} are open")
        results = await store.settle([ends_well(each) for each in claimed])
        equal([each for each in results if each.lost or each.busy], [], "what was lost or busy")
        await tend_all(store)  # a settlement tells a bounded number
        left -= len(claimed)
        equal((await snapshot(store, new.id)).open_blockers, left, "open blockers")
    claimed_one = await claim_one(store, lease_id, "waits")
    equal([each.chain_id for each in claimed_one.blockers], [each.id for each in blockers], "the order of the blockers")
