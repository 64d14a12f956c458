"""The cases of `Store.settle`, `release`, `end` and `take_expired` where a chain was asked to end meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    settle_one,
    settlement,
    snapshot,
    start,
    start_chain,
    start_one,
    take_one,
    written,
)
from aioqueue.testing.conformance._waiting import after, caused, ending, ends_well, settled_after, start_blocker, told
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import Inserted, JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, NewJob, Settlement

__all__ = ["subject"]

subject = Subject("settle_cancelled")

COMPLETED, CONTINUED, FAILED = SettlementKind.COMPLETED, SettlementKind.CONTINUED, SettlementKind.FAILED
CANCELLED, RETRIED, RESCHEDULED = SettlementKind.CANCELLED, SettlementKind.RETRIED, SettlementKind.RESCHEDULED


async def _asked(store: Store, new: NewJob | None = None) -> ClaimedJob:
    """A running job whose chain was asked to end."""
    claimed = await start_one(store, await store.open_lease("w", HOUR), new)
    equal(list(await store.cancel([claimed.id], "enough")), [Cancellation.CANCELLING], "the answer")
    return claimed


async def _cancelled(store: Store, what: Settlement, *, orphaned: bool = False) -> None:
    """Write a settlement, which must be written as cancelled, or its `next`."""
    result = await settle_one(store, what, orphaned=orphaned)
    equal((result.lost, result.busy, result.cancelled), (None, False, True), f"lost, busy, cancelled of {what.kind.name}")


async def _stands(store: Store, what: Settlement, state: JobState) -> None:
    """Write a settlement, which must be written as it is."""
    result = await settle_one(store, what)
    equal((result.lost, result.busy, result.cancelled), (None, False, False), f"lost, busy, cancelled of {what.kind.name}")
    equal((await expect_state(store, what.id, state)).cancel_reason, None, "the request, once the chain has ended")


@subject()
async def what_is_chosen_stands(harness: Harness) -> None:
    """What is completed, failed on purpose, or cancelled by its worker is written as it is."""
    store = harness.store
    claimed = await _asked(store)
    await _stands(store, ends_well(claimed, b"7"), JobState.COMPLETED)
    equal((await snapshot(store, claimed.id)).output_json, b"7", "the output")
    claimed = await _asked(store)
    await _stands(store, settlement(claimed, FAILED, error=failure(message="my own")), JobState.FAILED)
    equal([each.message for each in (await snapshot(store, claimed.id)).errors], ["my own"], "the history")
    claimed = await _asked(store)
    await written(store, settlement(claimed, CANCELLED, error=failure(message="my own")))
    found = await expect_state(store, claimed.id, JobState.CANCELLED)
    equal([each.message for each in found.errors], ["my own"], "the history")


@subject()
async def what_would_be_pending_is_cancelled(harness: Harness) -> None:
    """Retried, rescheduled, and failed by nobody's choice: the job is cancelled, with its error, or with the reason."""
    store = harness.store
    for kind, yields in ((RETRIED, False), (RETRIED, True), (RESCHEDULED, False), (FAILED, True)):
        for error in (failure(message="boom"), None):
            claimed = await _asked(store)
            delay = None if kind is FAILED else HOUR
            await _cancelled(store, settlement(claimed, kind, delay=delay, error=error, outcome="o", yields=yields))
            found = await expect_state(store, claimed.id, JobState.CANCELLED)
            expected = ("ValueError", "boom") if error else ("Cancelled", "enough")
            equal([(each.type, each.message) for each in found.errors], [expected], f"the history after {kind.name}")
            equal((found.cancel_reason, found.outcome, found.output_json), (None, "o", None), "reason, outcome, output")
            equal(found.attempt, 1, "attempts")
    equal(list(await store.claim(await store.open_lease("w", HOUR), ["a"], 10)), [], "what can be claimed")
    equal((await store.next_due(["a"])).job, None, "the next due time")


@subject()
async def without_a_request_all_is_as_ever(harness: Harness) -> None:
    """What yields fails, retries wait, and no result says that it was cancelled."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    asked, *others = await start(store, lease_id, *(job() for _ in range(5)))
    await store.cancel([asked.id], "enough")
    retried, rescheduled, failed, completed = others
    what = [
        settlement(retried, RETRIED, error=failure()),
        settlement(asked, RETRIED, error=failure()),
        settlement(rescheduled, RESCHEDULED),
        settlement(failed, FAILED, error=failure(), yields=True),
        ends_well(completed),
    ]
    results = await store.settle(what)
    equal([each.lost for each in results], [None] * 5, "what is lost")
    equal([each.cancelled for each in results], [False, True, False, False, False], "what is said to be cancelled")
    states = [JobState.READY, JobState.CANCELLED, JobState.READY, JobState.FAILED, JobState.COMPLETED]
    equal([each and each.state for each in await store.fetch([each.id for each in what])], states, "the states")


@subject()
async def repeating_answers_as_the_first_time(harness: Harness) -> None:
    """A settlement whose answer was lost says again that it was written, and as what."""
    store = harness.store
    for kind in (RETRIED, RESCHEDULED, FAILED, CONTINUED, COMPLETED):
        claimed = await _asked(store)
        what = settlement(claimed, kind, error=failure(), yields=kind is FAILED)
        first = await settle_one(store, what)
        before = await store.fetch([claimed.id])
        for _ in range(2):
            equal(await settle_one(store, what), first, f"the answer to a repeated {kind.name}")
        equal(await store.fetch([claimed.id]), before, "the job after the repetitions")


@subject()
async def the_next_is_cancelled_unstarted(harness: Harness) -> None:
    """A chain that goes on is archived as continued, and its next job as cancelled; with it the chain has ended."""
    store = harness.store
    steps = await start_chain(store, await store.open_lease("w", HOUR), 2, job(key="k", unique=Unique()))
    needs = await insert_one(store, after(job("needs"), steps[0].id))
    runs = await insert_one(store, settled_after(job("runs"), steps[0].id))
    await store.cancel([steps[0].id], "enough")
    new, child = job("next"), job("child")
    with listening(store, finished=True) as heard:
        await _cancelled(store, settlement(steps[1], CONTINUED, next=new, children=(child,)))
        await heard.wait_for_end(steps[0].id)
    await expect_state(store, steps[1].id, JobState.CONTINUED)
    found = await expect_state(store, new.id, JobState.CANCELLED)
    equal((found.chain_id, found.position, found.attempt, found.started_at), (steps[0].id, 2, 0, None), "the next job")
    equal([(each.type, each.message) for each in found.errors], [("Cancelled", "enough")], "its history")
    equal(found.cancel_reason, None, "the request, once the chain has ended")
    await expect_state(store, child.id, JobState.READY)
    await store.tend(10)
    caused(await expect_state(store, needs, JobState.FAILED), "enough")
    claimed = await claim_one(store, await store.open_lease("w", HOUR), "runs")
    equal((claimed.id, told(claimed)), (runs, [(steps[0].id, ChainEnd.CANCELLED, None)]), "what runs, and what it's told")
    await insert_one(store, job(key="k", unique=Unique()))
    equal(list(await store.retry([steps[0].id])), [Changed.KEY_HELD], "a retry while another has the key")


@subject()
async def the_next_behind_a_blocker(harness: Harness) -> None:
    """It's cancelled though it would have waited; nobody runs it when what it waited for has ended."""
    store = harness.store
    blocker, claimed = await start_blocker(store), await _asked(store)
    new = after(job("next"), blocker.id)
    await _cancelled(store, settlement(claimed, CONTINUED, next=new))
    await expect_state(store, new.id, JobState.CANCELLED)
    await store.settle([ends_well(blocker)])
    await store.tend(10)
    await expect_state(store, new.id, JobState.CANCELLED)
    equal(list(await store.claim(await store.open_lease("w", HOUR), ["next"], 1)), [], "what can be claimed")


@subject()
async def those_that_wait_are_told(harness: Harness) -> None:
    """Whoever needs the output of what is cancelled in place of a retry fails, and who waits for its end is run."""
    store = harness.store
    claimed = await _asked(store)
    needs = await insert_one(store, after(job("needs"), claimed.id))
    runs = await insert_one(store, settled_after(job("runs"), claimed.id))
    with listening(store, finished=True) as heard:
        await _cancelled(store, settlement(claimed, RETRIED, delay=HOUR))
        await heard.wait_for_end(claimed.id)
    await store.tend(10)
    caused(await expect_state(store, needs, JobState.FAILED), claimed.id, "enough")
    equal(told(await claim_one(store, claimed.lease_id, "runs")), [(claimed.id, ChainEnd.CANCELLED, None)], "what it's told")
    await expect_state(store, runs, JobState.RUNNING)


@subject()
async def giving_back_ends_it(harness: Harness) -> None:
    """A claim that is given back, named or with the end of its lease, is archived as cancelled; its neighbours are pending."""
    store = harness.store
    for end in (False, True):
        lease_id = await store.open_lease("w", HOUR)
        asked, neighbour = await start(store, lease_id, job(key="k", unique=Unique()), job())
        runs = await insert_one(store, settled_after(job("runs"), asked.id))
        await store.cancel([asked.id], "enough")
        with listening(store, finished=True) as heard:
            await store.release(lease_id, [] if end else [asked.claim, neighbour.claim], end=end)
            await heard.wait_for_end(asked.id)
        found = await expect_state(store, asked.id, JobState.CANCELLED)
        equal([(each.type, each.message) for each in found.errors], [("Cancelled", "enough")], "its history")
        equal((found.cancel_reason, found.attempt), (None, 0), "the request, once the chain has ended, and its attempts")
        await expect_state(store, neighbour.id, JobState.READY)
        await store.tend(10)
        await expect_state(store, runs, JobState.READY)
        equal((await store.insert([new := job(key="k", unique=Unique())]))[0], Inserted(new.id, created=True), "the key")
        await store.release(lease_id, [asked.claim])
        await expect_state(store, asked.id, JobState.CANCELLED)
        await store.delete([neighbour.id, new.id])


@subject()
async def the_job_of_a_lost_worker(harness: Harness) -> None:
    """Whoever recovers it writes that it's to be retried, and it's cancelled; asked before or after it was taken."""
    store, second = harness.store, await harness.second_store()
    for ask_first in (True, False):
        claimed = await start_one(store, await store.open_lease("dies", HOUR))
        if ask_first:
            await store.cancel([claimed.id], "enough")
        await harness.age(2 * HOUR)
        taken = await take_one(second)
        if not ask_first:
            equal(list(await store.cancel([claimed.id], "enough")), [Cancellation.CANCELLING], "the answer")
        await _cancelled(second, settlement(taken, RETRIED, delay=0, error=failure(message="lost")), orphaned=True)
        found = await expect_state(store, claimed.id, JobState.CANCELLED)
        equal([each.message for each in found.errors], ["lost"], "the history")


@subject()
async def ending_it_from_outside(harness: Harness) -> None:
    """What somebody else ends stands as well; of what goes on the next job is cancelled."""
    store = harness.store
    for kind, state in ((COMPLETED, JobState.COMPLETED), (FAILED, JobState.FAILED), (CANCELLED, JobState.CANCELLED)):
        claimed = await _asked(store)
        error = None if kind is COMPLETED else failure(attempt=0, message="outside")
        equal(list(await store.end([ending(claimed.id, kind, error=error)])), [True], "the result")
        equal((await expect_state(store, claimed.id, state)).cancel_reason, None, "the request, once the chain has ended")
    claimed, new = await _asked(store), job("next")
    equal(list(await store.end([ending(claimed.id, CONTINUED, next=new)])), [True], "the result")
    await expect_state(store, claimed.id, JobState.CONTINUED)
    await expect_state(store, new.id, JobState.CANCELLED)
