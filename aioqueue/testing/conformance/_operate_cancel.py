"""The cases of `Store.cancel`: what becomes of chains that are asked to end."""

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
    lease_thread,
    listening,
    next_step,
    refused,
    settlement,
    snapshot,
    start,
    start_chain,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import after, caused, complete, ends_well, settled_after, start_blocker, told
from aioqueue.vocabulary._answers import Cancellation
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, LostReason, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Job

__all__ = ["subject"]

subject = Subject("cancel")

CANCELLED, CANCELLING = Cancellation.CANCELLED, Cancellation.CANCELLING


def _says_why(found: Job, reason: str) -> None:
    error = found.last_error
    if error is None:
        raise AssertionError(f"a job that was cancelled must say why: {found!r}")
    equal((error.type, error.message, error.attempt), ("Cancelled", reason, 0), "the newest entry in the history")


@subject()
async def what_waits_never_starts(harness: Harness) -> None:
    """Jobs that are due, scheduled, blocked, or wait for their retry are archived at once, and say why."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    retried = await start_one(store, lease_id, job("a", max_attempts=5))
    await written(store, settlement(retried, SettlementKind.RETRIED, delay=0, error=failure()))
    blocker = await start_blocker(store)
    due, later = await insert_one(store, job()), await insert_one(store, job(delay=HOUR))
    blocked = await insert_one(store, after(job(), blocker.id))
    ids = [retried.id, due, later, blocked]
    equal(list(await store.cancel(ids, "no use")), [CANCELLED] * 4, "the answers")
    equal(list(await store.claim(lease_id, ["a"], 10)), [], "what can be claimed")
    for each in ids:
        found = await expect_state(store, each, JobState.CANCELLED)
        _says_why(found, "no use")
        check(found.finished_at is not None, "a cancelled job must have a time of its end")
        equal(found.cancel_reason, None, "the request, once the chain has ended")
        equal(found.open_blockers, 0, "open blockers")
    equal([each.type for each in (await snapshot(store, retried.id)).errors], ["ValueError", "Cancelled"], "its history")
    await complete(store, blocker)
    await store.tend(10)
    await expect_state(store, blocked, JobState.CANCELLED)
    equal((await store.stats()).types["a"].counts.get(JobState.READY, 0), 0, "the number of those that are due")


@subject()
async def what_is_running_is_asked(harness: Harness) -> None:
    """It goes on, and its worker's next renewals say why it should stop, whether or not they ask about it."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    asked, neighbour = await start(store, lease_id, job(), job())
    theirs = await start_one(store, other)
    equal(list(await store.cancel([asked.id], "enough")), [CANCELLING], "the answer")
    found = await expect_state(store, asked.id, JobState.RUNNING)
    equal((found.cancel_reason, found.errors), ("enough", ()), "reason and history while it's running")
    equal((await snapshot(store, neighbour.id)).cancel_reason, None, "the reason of its neighbour")
    async with lease_thread(store) as thread:
        for held in ([asked.claim, neighbour.claim], [neighbour.claim], []):
            renewal = await thread.renew(lease_id, HOUR, held)
            check(renewal.valid, "the lease must be valid")
            equal(dict(renewal.asked_to_stop), {asked.claim: "enough"}, "what is asked to stop")
            equal(dict(renewal.lost), {}, "what is lost: it's still the lease's")
            equal(asked.claim in renewal.unheld, asked.claim not in held, "whether it's told of as one that isn't held")
        renewal = await thread.renew(other, HOUR, [theirs.claim])
        equal(dict(renewal.asked_to_stop), {}, "what another lease is asked")
        await complete(store, asked)
        equal(dict((await thread.renew(lease_id, HOUR, [neighbour.claim])).asked_to_stop), {}, "once it has ended")


@subject()
async def the_first_reason_counts(harness: Harness) -> None:
    """Whoever asks again is told that it's under way, and changes nothing."""
    store, second = harness.store, await harness.second_store()
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    for where, reason in ((store, "first"), (second, "second"), (store, "")):
        equal(list(await where.cancel([claimed.id], reason)), [CANCELLING], f"the answer to {reason!r}")
    equal((await snapshot(store, claimed.id)).cancel_reason, "first", "the reason")
    await written(store, settlement(claimed, SettlementKind.RETRIED))
    _says_why(await expect_state(store, claimed.id, JobState.CANCELLED), "first")
    equal(list(await store.cancel([claimed.id], "late")), [Cancellation.FINISHED], "once it has ended")


@subject()
async def what_has_ended_stays(harness: Harness) -> None:
    """Whatever has ended is finished, what never was or is gone isn't found; the rest is done all the same."""
    store = harness.store
    ended = [await end_as(store, job(), kind) for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED)]
    ended.append(await end_as(store, job(), SettlementKind.CANCELLED))
    before = await store.fetch(ended)
    waits = await insert_one(store, job())
    answers = await store.cancel([*ended, new_id(), waits], "no")
    equal(list(answers), [*[Cancellation.FINISHED] * 3, Cancellation.NOT_FOUND, CANCELLED], "the answers")
    equal(await store.fetch(ended), before, "what had ended")
    equal(list(await store.cancel([], "no")), [], "answers about nothing")


@subject()
async def any_steps_id_means_the_chain(harness: Harness) -> None:
    """A running chain is asked by each of its steps' ids, one that waits ends; each of several ids is answered."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for place in range(3):
        steps = await start_chain(store, lease_id, 3)
        equal(list(await store.cancel([steps[place].id], "no")), [CANCELLING], f"the answer by step {place}")
        equal((await snapshot(store, steps[2].id)).cancel_reason, "no", "the reason of the live step")
        await complete(store, steps[2])
        steps = await start_chain(store, lease_id, 2)
        new = job("later", delay=HOUR)
        await written(store, settlement(steps[1], SettlementKind.CONTINUED, next=new))
        ids = [steps[0].id, steps[1].id, new.id]
        equal(list(await store.cancel([ids[place]], "no")), [CANCELLED], f"the answer by step {place}")
        states = [each and each.state for each in await store.fetch(ids)]
        equal(states, [JobState.CONTINUED, JobState.CONTINUED, JobState.CANCELLED], "the states")
        equal(list(await store.cancel(ids, "no")), [Cancellation.FINISHED] * 3, "the answers once it has ended")
    steps = await start_chain(store, lease_id, 2)
    waits = await insert_one(store, job())
    answers = await store.cancel([steps[0].id, waits, steps[1].id, waits], "no")
    equal(list(answers), [CANCELLING, CANCELLED, CANCELLING, CANCELLED], "the answers by several ids")
    equal(len((await expect_state(store, waits, JobState.CANCELLED)).errors), 1, "entries in the history")


@subject()
async def reasons_are_bounded(harness: Harness) -> None:
    """At most 1,000 characters are kept, of any kind; an empty one says that it was cancelled."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for reason in ("x" * 5000, "nul \0 in it", "a lone \udc80 surrogate", "'); drop table job; --"):
        claimed, waits = await start_one(store, lease_id), await insert_one(store, job("waits"))
        equal(list(await store.cancel([claimed.id, waits], reason)), [CANCELLING, CANCELLED], "the answers")
        kept = (await snapshot(store, claimed.id)).cancel_reason
        check(kept is not None and 0 < len(kept) <= 1000, f"what is kept of a reason: {kept!r}")
        check("\0" not in str(kept), "no text column holds a null character")
        _says_why(await expect_state(store, waits, JobState.CANCELLED), str(kept))
        async with lease_thread(store) as thread:
            equal(dict((await thread.renew(lease_id)).asked_to_stop), {claimed.claim: kept}, "what its worker is told")
        await complete(store, claimed)
    claimed, waits = await start_one(store, lease_id), await insert_one(store, job("waits"))
    await store.cancel([claimed.id, waits], "")
    equal((await snapshot(store, claimed.id)).cancel_reason, "", "an empty reason")
    _says_why(await expect_state(store, waits, JobState.CANCELLED), "it was cancelled")
    await store.release(lease_id, [claimed.claim])
    _says_why(await expect_state(store, claimed.id, JobState.CANCELLED), "it was cancelled")


@subject()
async def its_unique_key_is_free(harness: Harness) -> None:
    """At once, if it hadn't started; otherwise once it has ended."""
    store = harness.store
    waits = await insert_one(store, job(key="k", unique=Unique()))
    await store.cancel([waits], "no")
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=Unique()))
    await store.cancel([claimed.id], "no")
    again = job(key="k", unique=Unique())
    equal(list(await store.insert([again])), [Inserted(claimed.id, created=False)], "while it's running")
    await written(store, settlement(claimed, SettlementKind.CANCELLED, error=failure()))
    await insert_one(store, job(key="k", unique=Unique()))


@subject()
async def those_that_wait_for_it(harness: Harness) -> None:
    """Who needs its output fails and says why, level by level; who only waits for its end is run."""
    store = harness.store
    first = await insert_one(store, job("first"))
    needs, runs = (
        await insert_one(store, after(job("needs"), first)),
        await insert_one(store, settled_after(job("runs"), first)),
    )
    behind = await insert_one(store, after(job("behind"), needs))
    equal(list(await store.cancel([first], "obsolete")), [CANCELLED], "the answer")
    while (await store.tend(10)).more:
        pass
    caused(await expect_state(store, needs, JobState.FAILED), first, "obsolete")
    caused(await expect_state(store, behind, JobState.FAILED), first, "obsolete")
    claimed = await claim_one(store, await store.open_lease("w", HOUR), "runs")
    equal((claimed.id, told(claimed)), (runs, [(first, ChainEnd.CANCELLED, None)]), "what runs, and what it's told")


@subject()
async def those_that_wait_for_each_other(harness: Harness) -> None:
    """Of several that are asked to end in one call each is cancelled, in whatever order; none fails through another."""
    store = harness.store
    for turn in (1, -1):
        first = await insert_one(store, job())
        second = await insert_one(store, after(job(), first))
        third = await insert_one(store, after(job(), second))
        equal(list(await store.cancel([first, second, third][::turn], "all")), [CANCELLED] * 3, "the answers")
        await store.tend(10)
        for each in (first, second, third):
            _says_why(await expect_state(store, each, JobState.CANCELLED), "all")


@subject()
async def a_retry_forgets_it(harness: Harness) -> None:
    """A chain that was cancelled lives again without a request: it may be retried, and its worker isn't asked."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    running, waits = await start_one(store, lease_id), await insert_one(store, job(delay=HOUR))
    await store.cancel([running.id, waits], "no")
    await written(store, settlement(running, SettlementKind.CANCELLED, error=failure()))
    await store.retry([running.id, waits])
    for each in (running.id, waits):
        equal((await expect_state(store, each, JobState.READY)).cancel_reason, None, "the request")
    again = await store.claim(lease_id, ["a"], 10)
    equal(sorted(each.id for each in again), sorted([running.id, waits]), "what is claimed")
    async with lease_thread(store) as thread:
        equal(dict((await thread.renew(lease_id)).asked_to_stop), {}, "what the worker is asked")
    for claimed in again:
        await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))
        await expect_state(store, claimed.id, JobState.READY)
    equal(list(await store.cancel([running.id], "again")), [CANCELLED], "another request")


@subject()
async def a_worker_that_had_it_is_too_late(harness: Harness) -> None:
    """What was given back and cancelled since isn't written by who had it before: it's lost as cancelled."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await store.release(lease_id, [claimed.claim])
    equal(list(await store.cancel([claimed.id], "no")), [CANCELLED], "the answer")
    for what in (ends_well(claimed), settlement(claimed, SettlementKind.RETRIED, error=failure())):
        await refused(store, what, LostReason.CANCELLED)
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
        equal(dict(renewal.lost), {claimed.claim: LostReason.CANCELLED}, "what the lease has lost")
        equal(dict(renewal.asked_to_stop), {}, "what it's asked")


@subject()
async def the_end_is_told(harness: Harness) -> None:
    """Whoever waits for a result hears of what has ended, here and elsewhere."""
    store, second = harness.store, await harness.second_store()
    first = await start_one(store, await store.open_lease("w", HOUR))
    await next_step(store, first, job("b"))
    waits = await insert_one(store, job())
    with listening(store, finished=True) as own, listening(second, finished=True) as others:
        await store.cancel([waits], "no")
        await own.wait_for_end(waits)
        await others.wait_for_end(waits)


@subject(Capability.NAMES_TYPES)
async def those_that_can_run_are_told(harness: Harness) -> None:
    """Workers hear of jobs that only waited for its end."""
    store = harness.store
    first = await insert_one(store, job())
    await insert_one(store, settled_after(job("runs"), first))
    with listening(store) as heard:
        await store.cancel([first], "no")
        await heard.wait(lambda each: "runs" in (each.types or ()), "the type of what can run")


@subject(Capability.TELLS_LEASES)
async def its_lease_is_told(harness: Harness) -> None:
    """The worker that runs a job hears that there is something to ask about, instead of at its next renewal."""
    store, second = harness.store, await harness.second_store()
    with listening(store) as heard:
        lease_id = await store.open_lease("w", HOUR)
        claimed = await start_one(store, lease_id)
        await second.cancel([claimed.id], "no")
        await heard.wait(lambda each: lease_id in each.leases, "the lease whose job is asked to end")
