"""The cases of `Store.tend`: what no worker's claim leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    settlement,
    snapshot,
    start_chain,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    fail,
    settled_after,
    start_blocker,
    tend_all,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._blockers import ChainEnd, Tended
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("tend")


@subject()
async def with_nothing_to_do(harness: Harness) -> None:
    """It changes nothing, and says that there is nothing more to do, whatever waits rightly."""
    store = harness.store
    blocker = await start_blocker(store)
    blocked = await insert_one(store, after(job("waits", expires=HOUR), blocker.id))
    ready, later = await insert_one(store, job(expires=HOUR)), await insert_one(store, job(delay=HOUR, expires=1.0))
    before = await store.fetch([blocked, ready, later, blocker.id])
    equal(await store.tend(100), Tended(), "what was done")
    equal(await store.fetch([blocked, ready, later, blocker.id]), before, "the jobs")


@subject()
async def goes_on_telling_one_level_and_portion_at_a_time(harness: Harness) -> None:
    """Small portions get all the way down as well, and say how much there was."""
    store = harness.store
    blocker = await start_blocker(store)
    levels = [[after(job("0"), blocker.id) for _ in range(4)]]
    while len(levels) < 4:
        levels.append([after(job(str(len(levels))), each.id) for each in levels[-1]])
    await store.insert([each for level in levels for each in level])
    await fail(store, blocker, "the first cause")
    at_once = [each for level in levels for each in level if (await snapshot(store, each.id)).state is JobState.FAILED]
    done = await tend_all(store, limit=3)
    equal(done.failed, 16 - len(at_once), "how many failed by it")
    for each in (each for level in levels for each in level):
        caused(await expect_state(store, each.id, JobState.FAILED), blocker.id, "the first cause")
    equal(await store.tend(3), Tended(), "what is left to do")


@subject()
async def a_cascade_whose_worker_died(harness: Harness) -> None:
    """Whoever comes next goes on from where it was: another process does the rest."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    needs = [after(job("needs"), blocker.id) for _ in range(3)]
    takes = [settled_after(job("takes"), each.id) for each in needs]
    behind = [after(job("behind"), each.id) for each in needs]
    await store.insert([*needs, *takes, *behind])
    await fail(store, blocker, "the first cause")
    await store.tend(1)
    await tend_all(second)
    for each in (*needs, *behind):
        caused(await expect_state(second, each.id, JobState.FAILED), "the first cause")
    claimed = await second.claim(lease_id, ["takes"], 10)
    equal(sorted(each.id for each in claimed), sorted(each.id for each in takes), "those that take it either way")


@subject()
async def a_blocker_that_was_deleted_by_hand(harness: Harness) -> None:
    """A chain that is gone is found: those that need its output fail, those that take its end run, and see that."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    gone = await insert_one(store, job("blocker"))
    needs, takes = (
        await insert_one(store, after(job("needs"), gone)),
        await insert_one(store, settled_after(job("takes"), gone)),
    )
    behind = await insert_one(store, after(job("behind"), needs))
    await harness.erase(gone)
    await tend_all(store)
    for each in (needs, behind):
        caused(await expect_state(store, each, JobState.FAILED), gone, "deleted")
    claimed = await claim_one(store, lease_id, "takes")
    equal((claimed.id, told(claimed)), (takes, [(gone, ChainEnd.DELETED, None)]), "what it's told")


@subject()
async def a_dependent_that_was_deleted_by_hand(harness: Harness) -> None:
    """Nothing of it holds anything up, and its blocker can be deleted."""
    store = harness.store
    blocker = await start_blocker(store)
    gone, stays = (
        await insert_one(store, after(job("waits"), blocker.id)),
        await insert_one(store, after(job("waits"), blocker.id)),
    )
    behind = await insert_one(store, after(job("behind"), gone))
    await harness.erase(gone)
    await tend_all(store)
    caused(await expect_state(store, behind, JobState.FAILED), gone, "deleted")
    equal(await waiting_for(store, blocker.id), [stays], "who waits")
    await complete(store, blocker)
    await expect_state(store, stays, JobState.READY)


@subject()
async def a_chain_whose_last_step_was_deleted_by_hand(harness: Harness) -> None:
    """A continued step that is left isn't the end of its chain: it's gone."""
    store = harness.store
    first, last = await start_chain(store, await store.open_lease("w", HOUR), 2, job("step"))
    waits = await insert_one(store, after(job("waits"), first.id))
    await harness.erase(last.id)
    await tend_all(store)
    caused(await expect_state(store, waits, JobState.FAILED), first.id, "deleted")


@subject()
async def pruned_steps_of_a_living_chain(harness: Harness) -> None:
    """A chain whose first steps are gone goes on: those that wait for it wait on."""
    store = harness.store
    steps = await start_chain(store, await store.open_lease("w", HOUR), 3, job("step"))
    waits = await insert_one(store, after(job("waits"), steps[0].id))
    for each in steps[:2]:
        await harness.erase(each.id)
    await tend_all(store)
    await expect_state(store, waits, JobState.BLOCKED)
    await complete(store, steps[2])
    await expect_state(store, waits, JobState.READY)


@subject()
async def discards_what_was_never_started_in_time(harness: Harness) -> None:
    """Blocked, scheduled or ready, of any type: cancelled, with the reason, and those that wait for it are told."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    blocker = await start_one(store, lease_id, job("blocker"))
    late = {
        "blocked": await insert_one(store, after(job("a", expires=HOUR), blocker.id)),
        "ready": await insert_one(store, job("b", expires=HOUR)),
        "unblocked": await insert_one(store, job("c", delay=1.0, expires=HOUR)),
    }
    fine = {
        "no expiry": await insert_one(store, job()),
        "expires later": await insert_one(store, job(expires=10 * HOUR)),
        "due later": await insert_one(store, job(delay=5 * HOUR, expires=HOUR)),
        "blocked": await insert_one(store, after(job(), blocker.id)),
    }
    waits = await insert_one(store, after(job("waits"), late["ready"]))
    takes = await insert_one(store, settled_after(job("takes"), late["blocked"]))
    before = [each and each.state for each in await store.fetch(list(fine.values()))]
    await harness.age(2 * HOUR)
    done = await tend_all(store)
    equal(done.expired, len(late), "how many were discarded")
    for name, job_id in late.items():
        found = await expect_state(store, job_id, JobState.CANCELLED)
        equal((found.last_error and found.last_error.type, found.attempt), ("Expired", 0), f"why a {name} one was discarded")
        check(found.finished_at is not None, f"a {name} one must have its end")
    equal([each and each.state for each in await store.fetch(list(fine.values()))], before, "the states of the others")
    caused(await expect_state(store, waits, JobState.FAILED), late["ready"], "cancelled", "Expired")
    claimed = await claim_one(store, lease_id, "takes")
    equal((claimed.id, told(claimed)), (takes, [(late["blocked"], ChainEnd.CANCELLED, None)]), "what the other is told")
    equal(await waiting_for(store, blocker.id), [fine["blocked"]], "who waits for the blocker")


@subject()
async def never_discards_what_was_started(harness: Harness) -> None:
    """A job that runs, or has run once and waits for another attempt, doesn't expire."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    runs = await start_one(store, lease_id, job("runs", expires=HOUR))
    again = await start_one(store, lease_id, job("again", expires=HOUR))
    await written(store, settlement(again, SettlementKind.RETRIED, error=failure(), delay=0.0))
    later = await start_one(store, lease_id, job("later", expires=HOUR))
    await written(store, settlement(later, SettlementKind.RESCHEDULED, delay=0.0))
    await harness.age(3 * HOUR)
    equal(await tend_all(store), Tended(), "what was done")
    await expect_state(store, runs.id, JobState.RUNNING)
    for each in (again, later):
        await expect_state(store, each.id, JobState.READY)


@subject()
async def what_was_unblocked_has_its_time_from_there(harness: Harness) -> None:
    """A job that waited for long isn't discarded as soon as it can run."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    blocker = await start_one(store, lease_id, job("blocker"))
    waits = await insert_one(store, after(job("waits", expires=3 * HOUR), blocker.id))
    await harness.age(2 * HOUR)
    await complete(store, blocker)
    await harness.age(2 * HOUR)
    equal(await tend_all(store), Tended(), "what was done after two more hours")
    await expect_state(store, waits, JobState.READY)
    await harness.age(2 * HOUR)
    equal((await tend_all(store)).expired, 1, "how many were discarded after four hours")
    await expect_state(store, waits, JobState.CANCELLED)


@subject()
async def discards_in_portions(harness: Harness) -> None:
    """No more than it was asked for at once, and it says whether there are more."""
    store = harness.store
    await store.insert([job(expires=1.0) for _ in range(7)])
    await harness.age(HOUR)
    done = await store.tend(3)
    equal((done.expired, done.more), (3, True), "the first portion")
    equal((await tend_all(store, limit=3)).expired, 4, "the rest")


@subject()
async def forgets_ends_that_nobody_needs(harness: Harness) -> None:
    """After all is over nothing changes any more; what a dependent still needs is kept, however often it's tended."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    await insert_one(store, after(job("waits"), blocker.id))
    await complete(store, blocker, b"5")
    await tend_all(store)
    claimed = await claim_one(store, lease_id, "waits")
    equal(told(claimed), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what it's told")
    await tend_all(store)
    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))
    claimed = await claim_one(store, lease_id, "waits")
    equal(told(claimed), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what it's told at another attempt")
    await complete(store, claimed)
    await tend_all(store)
    equal(await waits_for(store, claimed.id), [], "what it has waited for")
    equal(await store.tend(100), Tended(), "what is left to do")
    late = await insert_one(store, after(job("late"), blocker.id))
    await expect_state(store, late, JobState.READY)
    equal(told(await claim_one(store, lease_id, "late")), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what a late one is told")


@subject()
async def failed_ones_keep_what_they_waited_for(harness: Harness) -> None:
    """A retry needs it, however often it's tended meanwhile."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    await insert_one(store, after(job("waits"), blocker.id))
    await complete(store, blocker, b"5")
    claimed = await claim_one(store, lease_id, "waits")
    await fail(store, claimed)
    await tend_all(store)
    await store.retry([claimed.id])
    equal(told(await claim_one(store, lease_id, "waits")), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what it's told again")


@subject(Capability.NAMES_TYPES)
async def what_it_makes_pending_is_told(harness: Harness) -> None:
    """Listeners hear of the type of a job that can run."""
    store = harness.store
    gone = await end_as(store, job(), SettlementKind.COMPLETED)
    blocker = await start_blocker(store)
    await insert_one(store, settled_after(job("takes"), gone, blocker.id))
    await harness.erase(blocker.id)
    with listening(store) as heard:
        await tend_all(store)
        await heard.wait_for_type("takes")


@subject(Capability.NAMES_FINISHED)
async def what_it_ends_is_told(harness: Harness) -> None:
    """Whoever waits for the result of a job that it fails or discards hears of its end."""
    store = harness.store
    blocker = await start_blocker(store)
    needs, late = await insert_one(store, after(job("needs"), blocker.id)), await insert_one(store, job(expires=1.0))
    await harness.erase(blocker.id)
    await harness.age(HOUR)
    with listening(store, finished=True) as heard:
        await tend_all(store)
        await heard.wait_for_end(needs)
        await heard.wait_for_end(late)


@subject(Capability.LOCKS_ROWS)
async def leaves_out_what_is_locked(harness: Harness) -> None:
    """A row that somebody has locked holds up nothing else, and it doesn't go on and on about it."""
    store = harness.store
    blocker = await start_blocker(store)
    locked, free = (
        await insert_one(store, after(job("waits"), blocker.id)),
        await insert_one(store, after(job("waits"), blocker.id)),
    )
    late = await insert_one(store, job(expires=1.0))
    await harness.erase(blocker.id)
    await harness.age(HOUR)
    async with harness.locked(locked), harness.locked(late):
        await tend_all(store)
        await expect_state(store, free, JobState.FAILED)
        await expect_state(store, locked, JobState.BLOCKED)
        await expect_state(store, late, JobState.READY)
    await tend_all(store)
    await expect_state(store, locked, JobState.FAILED)
    await expect_state(store, late, JobState.CANCELLED)
