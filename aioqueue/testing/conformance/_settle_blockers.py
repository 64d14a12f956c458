"""The cases of `Store.settle` about jobs for which others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    next_step,
    refused,
    settle_one,
    settlement,
    snapshot,
    start,
    start_chain,
    take_one,
    written,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    ends_well,
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
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["subject"]

subject = Subject("settle_blockers")


async def _dependent(store: Store, *chains: UUID, name: str = "waits") -> UUID:
    return await insert_one(store, after(job(name), *chains))


@subject()
async def a_failure_fails_those_that_need_the_output(harness: Harness) -> None:
    """In the same transaction they're archived as failed, unstarted, with a reason that names the blocker and its error."""
    store = harness.store
    blocker = await start_blocker(store)
    job_id = await _dependent(store, blocker.id)
    await fail(store, blocker, "the disk is full")
    found = await expect_state(store, job_id, JobState.FAILED)
    caused(found, blocker.id, "blocker", "failed", "the disk is full")
    equal((found.attempt, found.started_at, found.output_json, found.worker), (0, None, None, None), "what it never had")
    check(found.finished_at is not None, "it must have its end")
    equal(found.open_blockers, 0, "open blockers")
    equal(await waiting_for(store, blocker.id), [], "who still waits")


@subject()
async def a_cancelled_one_fails_them_too(harness: Harness) -> None:
    """A blocker that was cancelled doesn't complete either."""
    store = harness.store
    blocker = await start_blocker(store)
    job_id = await _dependent(store, blocker.id)
    await written(store, settlement(blocker, SettlementKind.CANCELLED, error=failure(message="not needed")))
    caused(await expect_state(store, job_id, JobState.FAILED), blocker.id, "cancelled", "not needed")


@subject()
async def a_failure_goes_all_the_way_down(harness: Harness) -> None:
    """Each level fails with the first cause, unchanged, however many there are."""
    store = harness.store
    blocker = await start_blocker(store)
    levels = [after(job("level 0"), blocker.id)]
    while len(levels) < 6:
        levels.append(after(job(f"level {len(levels)}"), levels[-1].id))
    await store.insert(levels)
    await fail(store, blocker, "the first cause")
    await tend_all(store)
    errors = [(await expect_state(store, each.id, JobState.FAILED)).last_error for each in levels]
    caused(await snapshot(store, levels[-1].id), blocker.id, "blocker", "the first cause")
    equal(len({error and error.message for error in errors}), 1, "different messages")


@subject()
async def settled_ones_run_and_see_what_happened(harness: Harness) -> None:
    """Those that take the end however it is run after a failure and after a cancellation, and are told which, and why."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for kind, end in ((SettlementKind.FAILED, ChainEnd.FAILED), (SettlementKind.CANCELLED, ChainEnd.CANCELLED)):
        blocker = await start_blocker(store)
        job_id = await insert_one(store, settled_after(job("waits"), blocker.id))
        await written(store, settlement(blocker, kind, error=failure(message="boom")))
        await expect_state(store, job_id, JobState.READY)
        claimed = await claim_one(store, lease_id, "waits")
        equal(told(claimed), [(blocker.id, end, None)], "what it's told")
        check("boom" in claimed.blockers[0].cause, f"the cause must tell why: {claimed.blockers[0].cause!r}")


@subject()
async def settled_ones_stop_a_failure_on_its_way(harness: Harness) -> None:
    """What waits for a settled one waits for what that makes of it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    needs = after(job("needs"), blocker.id)
    takes = settled_after(job("takes"), needs.id)
    last = after(job("last"), takes.id)
    await store.insert([needs, takes, last])
    await fail(store, blocker, "the first cause")
    await tend_all(store)
    await expect_state(store, needs.id, JobState.FAILED)
    claimed = await claim_one(store, lease_id, "takes")
    equal(told(claimed), [(needs.id, ChainEnd.FAILED, None)], "what the one that takes it is told")
    check("the first cause" in claimed.blockers[0].cause, f"the first cause must be told: {claimed.blockers[0].cause!r}")
    await complete(store, claimed)
    await expect_state(store, last.id, JobState.READY)


@subject()
async def another_attempt_isnt_an_end(harness: Harness) -> None:
    """While a blocker is retried, rescheduled or given back nobody is told."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = (await start(store, lease_id, job("blocker")))[0]
    job_id = await _dependent(store, claimed.id)
    for kind in (SettlementKind.RETRIED, SettlementKind.RESCHEDULED):
        await written(store, settlement(claimed, kind, error=failure()))
        await expect_state(store, job_id, JobState.BLOCKED)
        claimed = await claim_one(store, lease_id, "blocker")
    await store.release(lease_id, [claimed.claim])
    await expect_state(store, job_id, JobState.BLOCKED)
    await complete(store, await claim_one(store, lease_id, "blocker"))
    await expect_state(store, job_id, JobState.READY)


@subject()
async def a_worker_that_dies_on_the_last_attempt(harness: Harness) -> None:
    """Whoever recovers its job tells those that wait; one that is tried again by that isn't an end."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    last, again = await start(store, lease_id, job("last"), job("again"))
    needs, waits = await _dependent(store, last.id), await _dependent(store, again.id)
    takes = await insert_one(store, settled_after(job("takes"), last.id))
    await store.claim(lease_id, ["takes", "waits"], 1)
    await harness.age(2 * HOUR)
    for claimed in await store.take_expired(10):
        kind = SettlementKind.FAILED if claimed.id == last.id else SettlementKind.RETRIED
        await written(store, settlement(claimed, kind, error=failure(message="worker lost")), orphaned=True)
    caused(await expect_state(store, needs, JobState.FAILED), last.id, "worker lost")
    await expect_state(store, takes, JobState.READY)
    await expect_state(store, waits, JobState.BLOCKED)


@subject()
async def a_continuation_inherits_those_that_wait(harness: Harness) -> None:
    """A chain's steps pass on that somebody waits; its end tells them, and gives them its output."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    (first,) = await start_chain(store, lease_id, 1, job("step"))
    job_id = await _dependent(store, first.id)
    second = await next_step(store, first)
    equal(await waiting_for(store, first.id), [job_id], "who waits after the first step")
    third = await next_step(store, second, job("other"))
    await expect_state(store, job_id, JobState.BLOCKED)
    await complete(store, third, b'"the end"')
    claimed = await claim_one(store, lease_id, "waits")
    equal(told(claimed), [(first.id, ChainEnd.COMPLETED, b'"the end"')], "what it's told")


@subject()
async def a_dependent_that_continues(harness: Harness) -> None:
    """Its next job has waited for nothing; those that wait for its chain wait on, and what it has waited for is closed."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    job_id = await _dependent(store, blocker.id)
    last = await insert_one(store, after(job("last"), job_id))
    await complete(store, blocker)
    claimed = await claim_one(store, lease_id, "waits")
    following = await next_step(store, claimed, job("next"))
    equal(told(following), [], "what the next one is told")
    equal(await waits_for(store, job_id), [], "what the finished one has waited for")
    await expect_state(store, last, JobState.BLOCKED)
    await complete(store, following)
    await expect_state(store, last, JobState.READY)


@subject()
async def two_of_one_job_in_one_batch(harness: Harness) -> None:
    """Each counts: neither is one left for ever, nor does it start before the third."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job("blocker") for _ in range(3)))
    job_id = await _dependent(store, *(each.id for each in claimed))
    results = await store.settle([ends_well(each) for each in claimed[:2]])
    equal([(each.lost, each.busy) for each in results], [(None, False)] * 2, "the results")
    equal((await expect_state(store, job_id, JobState.BLOCKED)).open_blockers, 1, "open blockers after two")
    await complete(store, claimed[2])
    equal((await expect_state(store, job_id, JobState.READY)).open_blockers, 0, "open blockers after all")


@subject()
async def a_good_and_a_bad_end_in_one_batch(harness: Harness) -> None:
    """A job that waits for both fails, once; those that wait for one of them get what that one's end means for them."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    good, bad = await start(store, lease_id, job("blocker"), job("blocker"))
    both, one = await _dependent(store, good.id, bad.id), await _dependent(store, good.id)
    other = await _dependent(store, bad.id)
    bad_end = settlement(bad, SettlementKind.FAILED, error=failure(message="boom"))
    await store.settle([ends_well(good), bad_end])
    found = await expect_state(store, both, JobState.FAILED)
    equal(len(found.errors), 1, "entries in the history of the one that waits for both")
    await expect_state(store, one, JobState.READY)
    await expect_state(store, other, JobState.FAILED)


@subject()
async def what_has_failed_isnt_touched_again(harness: Harness) -> None:
    """A job that failed through one blocker stays as it is when another one ends, well or badly."""
    store = harness.store
    one, two, three = await start_blocker(store), await start_blocker(store), await start_blocker(store)
    job_id = await _dependent(store, one.id, two.id, three.id)
    await fail(store, one, "the first cause")
    found = await expect_state(store, job_id, JobState.FAILED)
    await complete(store, two)
    await fail(store, three, "another cause")
    await tend_all(store)
    equal(await snapshot(store, job_id), found, "the job after its other blockers have ended")


@subject()
async def more_dependents_than_one_portion(harness: Harness) -> None:
    """A bounded number is told by the transaction that ends a chain, and all of them soon after; each once."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker, other = await start(store, lease_id, job("blocker"), job("blocker"))
    new = [after(job("waits"), blocker.id) for _ in range(230)]
    both = [after(job("both"), blocker.id, other.id) for _ in range(5)]
    await store.insert([*new, *both])
    await complete(store, blocker, b"5")
    await tend_all(store)
    equal(await waiting_for(store, blocker.id), [], "who still waits")
    claimed = await store.claim(lease_id, ["waits", "both"], 1000)
    equal(sorted(each.id for each in claimed), sorted(each.id for each in new), "what may be claimed")
    equal({each.blockers[0].output for each in claimed}, {b"5"}, "the outputs")
    for each in both:
        equal((await snapshot(store, each.id)).open_blockers, 1, "open blockers of those that wait for another too")


@subject()
async def more_failures_than_one_portion(harness: Harness) -> None:
    """They all fail, with all that wait for them."""
    store = harness.store
    blocker = await start_blocker(store)
    new = [after(job("waits"), blocker.id) for _ in range(130)]
    behind = [after(job("behind"), each.id) for each in new]
    await store.insert([*new, *behind])
    await fail(store, blocker, "the first cause")
    await tend_all(store)
    found = await store.fetch([each.id for each in (*new, *behind)])
    equal({each and each.state for each in found}, {JobState.FAILED}, "the states")
    equal(len({each and each.last_error and each.last_error.message for each in found}), 1, "different messages")


@subject()
async def repeating_an_end_counts_once(harness: Harness) -> None:
    """A settlement that is repeated after an unclear commit answers as it did, and isn't counted again."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start(store, lease_id, job("blocker"), job("blocker"))
    job_id = await _dependent(store, one.id, two.id)
    for _ in range(3):
        equal(await settle_one(store, ends_well(one)), await settle_one(store, ends_well(one)), "the results")
    equal((await expect_state(store, job_id, JobState.BLOCKED)).open_blockers, 1, "open blockers")
    await refused(store, settlement(one, SettlementKind.FAILED, error=failure()), LostReason.COMPLETED)
    await expect_state(store, job_id, JobState.BLOCKED)
    await complete(store, two)
    await expect_state(store, job_id, JobState.READY)


@subject()
async def outputs_last_until_they_are_needed(harness: Harness) -> None:
    """Each attempt of a dependent gets them, though the blocker was deleted since it completed."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    job_id = await _dependent(store, blocker.id)
    other = await insert_one(store, after(job("other", delay=HOUR), blocker.id))
    await complete(store, blocker, b'{"large": 1}')
    equal(list(await store.delete([blocker.id])), [Changed.DONE], "a delete of a blocker that nobody waits for any more")
    await tend_all(store)
    for _ in range(2):
        claimed = await claim_one(store, lease_id, "waits")
        equal(told(claimed), [(blocker.id, ChainEnd.COMPLETED, b'{"large": 1}')], "what each attempt is told")
        await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))
    await tend_all(store)
    await complete(store, await claim_one(store, lease_id, "waits"))
    equal(await waits_for(store, job_id), [], "what a completed job has waited for")
    await store.run_now([other])
    equal(told(await claim_one(store, lease_id, "other")), [(blocker.id, ChainEnd.COMPLETED, b'{"large": 1}')], "the other")


@subject()
async def a_recovered_dependent(harness: Harness) -> None:
    """One whose worker died is told again how its blockers ended, at its next attempt."""
    store = harness.store
    blocker = await start_blocker(store)
    await _dependent(store, blocker.id)
    await complete(store, blocker, b"5")
    await store.release(blocker.lease_id, [], end=True)  # otherwise it might be the one lease that is found to have expired
    await claim_one(store, await store.open_lease("dies", HOUR), "waits")
    await harness.age(2 * HOUR)
    await written(store, settlement(await take_one(store), SettlementKind.RETRIED, error=failure()), orphaned=True)
    claimed = await claim_one(store, await store.open_lease("w", HOUR), "waits")
    equal(told(claimed), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what it's told")


@subject(Capability.LOCKS_ROWS)
async def a_locked_dependent_is_told_later(harness: Harness) -> None:
    """An end isn't held up by somebody's lock on a row that waits for it: its neighbours are told, and it is once it's free."""
    store = harness.store
    for kind, state in ((SettlementKind.COMPLETED, JobState.READY), (SettlementKind.FAILED, JobState.FAILED)):
        blocker = await start_blocker(store)
        locked, free = await _dependent(store, blocker.id), await _dependent(store, blocker.id)
        async with harness.locked(locked):
            await written(store, settlement(blocker, kind, output=b"1" if kind is SettlementKind.COMPLETED else None))
            await expect_state(store, free, state)
            await expect_state(store, locked, JobState.BLOCKED)
            await tend_all(store)
            await expect_state(store, locked, JobState.BLOCKED)
        await tend_all(store)
        await expect_state(store, locked, state)


@subject()
async def ends_at_the_same_moment(harness: Harness) -> None:
    """Blockers of the same jobs end in several stores at once: each job is ready after the last, none earlier, none stuck."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    blockers = await start(store, lease_id, *(job("blocker") for _ in range(24)))
    new = [after(job("waits"), *(each.id for each in blockers[place::4])) for place in range(4)]
    all_of_them = after(job("all"), *(each.id for each in blockers))
    await store.insert([*new, all_of_them])

    async def end(where: Store, claimed: list[ClaimedJob]) -> None:
        results = await where.settle([ends_well(each) for each in claimed])
        busy = [each for each, result in zip(claimed, results, strict=True) if result.busy]
        if busy:
            await end(where, busy)

    async with anyio.create_task_group() as group:
        for place in range(8):
            group.start_soon(end, (store, second)[place % 2], blockers[place * 3 : place * 3 + 3])
    await tend_all(store)
    for each in (*new, all_of_them):
        equal((await expect_state(store, each.id, JobState.READY)).open_blockers, 0, "open blockers")


@subject(Capability.NAMES_FINISHED)
async def listeners_hear_of_those_that_fail_with_it(harness: Harness) -> None:
    """Whoever waits for the result of a job that fails through a blocker hears of its end."""
    store = harness.store
    blocker = await start_blocker(store)
    job_id = await _dependent(store, blocker.id)
    with listening(store, finished=True) as heard:
        await fail(store, blocker)
        await tend_all(store)
        await heard.wait_for_end(job_id)
