"""The cases of `Store.end`: jobs that somebody other than a worker ends."""

from __future__ import annotations

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
    failure,
    insert_one,
    job,
    lease_thread,
    listening,
    raises,
    refused,
    settlement,
    snapshot,
    start_chain,
    start_one,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    completed,
    ending,
    start_blocker,
    tend_all,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, LostReason, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("end")

COMPLETED, CONTINUED, FAILED = SettlementKind.COMPLETED, SettlementKind.CONTINUED, SettlementKind.FAILED


async def _one_of_each(store: Store) -> dict[str, UUID]:
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    return {
        "blocked": await insert_one(store, after(job("blocked"), blocker.id)),
        "scheduled": await insert_one(store, job("scheduled", delay=HOUR)),
        "ready": await insert_one(store, job("ready")),
        "running": (await start_one(store, lease_id, job("running"))).id,
    }


@subject()
async def completes_in_every_state(harness: Harness) -> None:
    """Blocked, scheduled, ready or running: it's archived with its output and outcome, and nobody can claim it."""
    store = harness.store
    jobs = await _one_of_each(store)
    results = await store.end([ending(each, output=b'"yes"', outcome="approved") for each in jobs.values()])
    equal(list(results), [True] * 4, "the results")
    for name, job_id in jobs.items():
        found = await expect_state(store, job_id, JobState.COMPLETED)
        equal((found.output_json, found.outcome, found.worker), (b'"yes"', "approved", None), f"what becomes of a {name} one")
        equal(found.open_blockers, 0, f"open blockers of a {name} one")
        check(found.finished_at is not None, f"a {name} one must have its end")
        equal(await waits_for(store, job_id), [], f"what a {name} one has waited for")
    equal(list(await store.claim(await store.open_lease("w", HOUR), list(jobs), 10)), [], "what may be claimed")


@subject()
async def fails_for_good_in_every_state(harness: Harness) -> None:
    """With an entry in its history, whatever attempts were left."""
    store = harness.store
    jobs = await _one_of_each(store)
    equal(list(await store.end([ending(each, FAILED) for each in jobs.values()])), [True] * 4, "the results")
    for name, job_id in jobs.items():
        found = await expect_state(store, job_id, JobState.FAILED)
        equal(found.last_error, failure(attempt=0, message="refused by the boss"), f"the last entry of a {name} one")
        equal((found.output_json, found.open_blockers), (None, 0), f"output, open blockers of a {name} one")


@subject()
async def continues_in_every_state(harness: Harness) -> None:
    """Its chain goes on with another job, which has its place and key."""
    store = harness.store
    for job_id in (await _one_of_each(store)).values():
        new = job("next", payload=b'{"n": 1}')
        equal(list(await store.end([ending(job_id, CONTINUED, next=new)])), [True], "the result")
        await expect_state(store, job_id, JobState.CONTINUED)
        found = await expect_state(store, new.id, JobState.READY)
        equal((found.chain_id, found.position, found.payload), (job_id, 1, b'{"n": 1}'), "chain, position, payload")


@subject()
async def what_isnt_live_isnt_ended(harness: Harness) -> None:
    """Finished jobs, continued steps and unknown ids are left as they are, and their neighbours are ended."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    kinds = (COMPLETED, FAILED, SettlementKind.CANCELLED)
    finished = [await end_as(store, job(), kind) for kind in kinds]
    first, last = await start_chain(store, lease_id, 2, job("step"))
    before = await store.fetch([*finished, first.id])
    endings = [ending(each, output=b"9") for each in (*finished, first.id, new_id(), last.id)]
    equal(list(await store.end(endings)), [False] * 5 + [True], "the results")
    equal(await store.fetch([*finished, first.id]), before, "the finished ones")
    await expect_state(store, last.id, JobState.COMPLETED)


@subject()
async def a_repetition_says_that_its_over(harness: Harness) -> None:
    """After an unclear commit a second one changes nothing, and says that no such job is live."""
    store = harness.store
    job_id = await insert_one(store, job())
    equal(list(await store.end([ending(job_id, output=b"1")])), [True], "the first")
    found = await snapshot(store, job_id)
    equal(list(await store.end([ending(job_id, output=b"2")])), [False], "the second")
    equal(await snapshot(store, job_id), found, "the job")


@subject()
async def the_same_job_twice_in_one_call(harness: Harness) -> None:
    """The first counts."""
    store = harness.store
    job_id = await insert_one(store, job())
    equal(list(await store.end([ending(job_id, output=b"1"), ending(job_id, FAILED)])), [True, False], "the results")
    equal((await expect_state(store, job_id, JobState.COMPLETED)).output_json, b"1", "the output")


@subject()
async def a_late_write_of_the_worker_is_lost(harness: Harness) -> None:
    """Whatever it writes about its attempt, as a repetition of this ending too, and its renewal, says `already_completed`."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    equal(list(await store.end([ending(claimed.id, output=b'"outside"')])), [True], "the result")
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, held=[claimed.claim])
    equal((renewal.valid, dict(renewal.lost)), (True, {claimed.claim: LostReason.COMPLETED}), "the renewal")
    for kind in (COMPLETED, FAILED, SettlementKind.RETRIED, CONTINUED):
        await refused(store, settlement(claimed, kind, output=b'"late"' if kind is COMPLETED else None), LostReason.COMPLETED)
    equal((await snapshot(store, claimed.id)).output_json, b'"outside"', "the output")
    failed_one = await start_one(store, lease_id)
    await store.end([ending(failed_one.id, FAILED)])
    await refused(store, settlement(failed_one, FAILED, error=failure()), LostReason.COMPLETED)
    continued = await start_one(store, lease_id)
    await store.end([ending(continued.id, CONTINUED, next=job("next"))])
    late = job("late")
    await refused(store, settlement(continued, CONTINUED, next=late), LostReason.COMPLETED)
    equal(list(await store.fetch([late.id])), [None], "what a late one would have gone on with")


@subject(Capability.TELLS_LEASES)
async def the_lease_of_a_running_one_is_told_of(harness: Harness) -> None:
    """Its worker hears at once that something of its lease is lost."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    with listening(store) as heard:
        await second.end([ending(claimed.id)])
        await heard.wait(lambda told: lease_id in told.leases, f"the lease {lease_id}")


@subject(Capability.NAMES_FINISHED)
async def ends_are_told_by_the_chains_id(harness: Harness) -> None:
    """Whoever waits for a result hears of it; of a chain that goes on nobody does, but of its next job's type."""
    store = harness.store
    first, last = await start_chain(store, await store.open_lease("w", HOUR), 2)
    goes_on = await insert_one(store, job("goes on"))
    with listening(store, finished=True) as heard:
        await store.end([ending(goes_on, CONTINUED, next=job("next"))])
        await heard.wait_for_type("next")
        await store.end([ending(last.id)])
        await heard.wait_for_end(first.id)
        check(heard.find(lambda told: goes_on in (told.finished or ())) is None, "a continued job isn't an end")


@subject()
async def those_that_wait_are_told(harness: Harness) -> None:
    """A good end lets those run that wait for it, a bad one fails those that need its output."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    good, bad = await insert_one(store, job("approval")), await insert_one(store, job("approval"))
    runs, stops = after(job("waits"), good), after(job("waits"), bad)
    behind = after(job("behind"), stops.id)
    await store.insert([runs, stops, behind])
    await store.end([ending(good, output=b'"yes"'), ending(bad, FAILED)])
    await tend_all(store)
    equal(told(await claim_one(store, lease_id, "waits")), [(good, ChainEnd.COMPLETED, b'"yes"')], "what it's told")
    for each in (stops, behind):
        caused(await expect_state(store, each.id, JobState.FAILED), bad, "approval", "refused by the boss")


@subject()
async def a_chain_that_goes_on_passes_on_who_waits(harness: Harness) -> None:
    """Continued from outside, its last step tells them."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await insert_one(store, job("approval"))
    waits = await insert_one(store, after(job("waits"), first))
    await store.end([ending(first, CONTINUED, next=job("next"))])
    await expect_state(store, waits, JobState.BLOCKED)
    await complete(store, await claim_one(store, lease_id, "next"))
    await expect_state(store, waits, JobState.READY)


@subject()
async def a_blocked_one_waits_for_nothing_any_more(harness: Harness) -> None:
    """What it has waited for may end as it likes: it isn't counted, and its next job hasn't waited for it."""
    store = harness.store
    blocker, other = await start_blocker(store), await start_blocker(store)
    done, goes_on = after(job("waits"), blocker.id), after(job("waits"), blocker.id, other.id)
    await store.insert([done, goes_on])
    new = job("next")
    await store.end([ending(done.id), ending(goes_on.id, CONTINUED, next=new)])
    equal(await waiting_for(store, blocker.id), [], "who waits for the one")
    found = await snapshot(store, done.id)
    await complete(store, blocker)
    await tend_all(store)
    equal(await snapshot(store, done.id), found, "the ended one after its blocker's end")
    equal(told(await claim_one(store, await store.open_lease("w", HOUR), "next")), [], "what the next one is told")
    await complete(store, other)


@subject()
async def the_unique_key(harness: Harness) -> None:
    """It's free at the end of a chain, and not while it goes on."""
    store = harness.store
    first = await insert_one(store, job(key="k", unique=Unique()))
    new = job("next")
    await store.end([ending(first, CONTINUED, next=new)])
    equal(list(await store.insert([job(key="k", unique=Unique())])), [Inserted(first, created=False)], "while it goes on")
    await store.end([ending(new.id)])
    await insert_one(store, job(key="k", unique=Unique()))


@subject()
async def with_children_and_a_next_that_waits(harness: Harness) -> None:
    """Children are stored with it, and the next job may wait for them and for others, some of which have ended."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, done = await insert_one(store, job()), await completed(store, b"5")
    child = job("child")
    new = after(job("next"), child.id, done)
    await store.end([ending(first, CONTINUED, next=new, children=(child,))])
    equal((await expect_state(store, new.id, JobState.BLOCKED)).open_blockers, 1, "open blockers")
    await complete(store, await claim_one(store, lease_id, "child"), b"6")
    ends = [(child.id, ChainEnd.COMPLETED, b"6"), (done, ChainEnd.COMPLETED, b"5")]
    equal(told(await claim_one(store, lease_id, "next")), ends, "what it's told")


@subject()
async def what_cant_be_stored_with_it_refuses_all(harness: Harness) -> None:
    """BlockerNotFound or BlockerCycle for a next job or a child: nothing of the call is written."""
    store = harness.store
    first, neighbour = await insert_one(store, job()), await insert_one(store, job())
    waits = await insert_one(store, after(job("waits"), first))
    child, unknown = job("child"), new_id()
    nothing = ending(first, CONTINUED, next=after(job("next"), unknown), children=(child,))
    no_child = ending(first, children=(child, after(job("child"), unknown)))
    ring = ending(first, CONTINUED, next=after(job("next"), waits), children=(child,))
    itself = ending(first, CONTINUED, next=after(job("next"), first))
    errors = ((nothing, BlockerNotFound), (no_child, BlockerNotFound), (ring, BlockerCycle), (itself, BlockerCycle))
    for what, error in errors:
        await raises(error, store.end([ending(neighbour), what]), "what can't be stored")
        for job_id in (first, neighbour):
            await expect_state(store, job_id, JobState.READY)
    equal(list(await store.fetch([child.id])), [None], "the child")
