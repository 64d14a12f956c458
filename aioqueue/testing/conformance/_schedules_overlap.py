"""The cases of `SupportsSchedules.tick` about the chain of the tick before, and about unique keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.store_rules._schedules import OVERLAPPED
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._keys import FINISHED, RAISE, REPLACE
from aioqueue.testing.conformance._schedules_ticks import MINUTE, jobs_of_ticks
from aioqueue.testing.conformance._schedules_tools import (
    expect_schedule,
    now_of,
    put_one,
    schedule,
    scheduled_job,
    tick_of,
    tick_one,
)
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    next_step,
    raises,
    settlement,
    snapshot,
    states_of,
    written,
)
from aioqueue.testing.conformance._waiting import after, start_blocker
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._schedules import TickOutcome

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._schedules import DecidedTick

__all__ = ["subject"]

subject = Subject("ticks")


async def _alone(store: SupportsSchedules, number: int, new: NewJob | None = None, name: str = "s") -> DecidedTick:
    """Decide the schedule's tick of this number, which isn't to be enqueued while the chain of the one before lives."""
    stored, at = await expect_schedule(store, name), (await expect_schedule(store, name)).since + number * MINUTE
    result = await tick_one(store, tick_of(stored, at + MINUTE, new or scheduled_job(name, at), alone=True))
    equal((result.decided, len(result.ticks)), (True, 1), "whether it was decided")
    return result.ticks[0]


def _overlaps(decided: DecidedTick, when: str) -> None:
    equal((decided.outcome, decided.reason, decided.chain_id), (TickOutcome.SKIPPED, OVERLAPPED, None), f"a tick {when}")


@subject()
async def the_one_before_goes_on(harness: Harness) -> None:
    """While any step of the last tick's chain is ready, running, to be retried or scheduled, a tick that must be alone is
    skipped, and it's kept why; after the chain's end it's enqueued, and that's the last one by then.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    first = await _alone(store, 1)
    equal(first.outcome, TickOutcome.ENQUEUED, "what becomes of the first")
    _overlaps(await _alone(store, 2), "while the chain is ready")
    lease_id = await harness.store.open_lease("w", HOUR)
    claimed = await claim_one(harness.store, lease_id, "tick")
    _overlaps(await _alone(store, 3), "while it's running")
    await written(harness.store, settlement(claimed, SettlementKind.RETRIED, error=failure(), delay=0.0))
    _overlaps(await _alone(store, 4), "while it's to be retried")
    second = await next_step(harness.store, await claim_one(harness.store, lease_id, "tick"), job("step"))
    _overlaps(await _alone(store, 5), "while its second step is running")
    await written(harness.store, settlement(second, SettlementKind.CONTINUED, next=job("step", delay=HOUR)))
    _overlaps(await _alone(store, 6), "while its third step is scheduled")
    assert first.chain_id is not None
    await harness.store.cancel([first.chain_id], "enough")
    seventh = await _alone(store, 7)
    equal(seventh.outcome, TickOutcome.ENQUEUED, "what becomes of one after the chain's end")
    stored = await expect_schedule(store, "s")
    equal((stored.last_chain, stored.last_at), (seventh.chain_id, seventh.nominal_time), "the last chain, and the newest tick")
    reasons = [each.reason for each in stored.ticks]
    equal(reasons, ["", OVERLAPPED, OVERLAPPED, OVERLAPPED, OVERLAPPED, OVERLAPPED, ""], "what is kept")


@subject()
async def one_that_waits_goes_on(harness: Harness) -> None:
    """So does a chain that waits for others; one that has failed, or was deleted, doesn't."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    blocker = await start_blocker(harness.store)
    now = await now_of(store)
    first = await _alone(store, 1, after(scheduled_job("s", now), blocker.id))
    equal(first.outcome, TickOutcome.ENQUEUED, "what becomes of the first")
    assert first.chain_id is not None
    equal(await states_of(harness.store, first.chain_id), [JobState.BLOCKED], "the state of its job")
    _overlaps(await _alone(store, 2), "while the chain waits")
    await written(harness.store, settlement(blocker, SettlementKind.FAILED, error=failure()))
    await expect_state(harness.store, first.chain_id, JobState.FAILED)
    third = await _alone(store, 3)
    equal(third.outcome, TickOutcome.ENQUEUED, "what becomes of one after a failure")
    assert third.chain_id is not None
    await harness.store.delete([third.chain_id])
    equal((await _alone(store, 4)).outcome, TickOutcome.ENQUEUED, "what becomes of one whose last chain is gone")


@subject()
async def several_of_one_call(harness: Harness) -> None:
    """Of several ticks of one call that must be alone the first is enqueued, and the others overlap with it. Where they may
    overlap all are, and another schedule's chain is of no concern.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("s"), schedule("other")])
    now = await now_of(store)
    times = [now + number * MINUTE for number in range(3)]
    ticks = [
        tick_of(await expect_schedule(store, name), now + HOUR * MINUTE, *jobs, alone=name == "s")
        for name in ("other", "s")
        for jobs in [[scheduled_job(name, at) for at in times]]
    ]
    other, own = await store.tick(ticks)
    equal([each.outcome for each in other.ticks], [TickOutcome.ENQUEUED] * 3, "what becomes of those that may overlap")
    expected = [TickOutcome.ENQUEUED, TickOutcome.SKIPPED, TickOutcome.SKIPPED]
    equal([each.outcome for each in own.ticks], expected, "what becomes of those that must be alone")
    equal(await jobs_of_ticks(harness.store), [new.id for new in (*ticks[0].jobs, ticks[1].jobs[0])], "the jobs")


@subject()
async def what_was_run_by_hand_counts(harness: Harness) -> None:
    """A tick that must be alone is skipped while what an operator has run of the schedule goes on."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    stored, now = await put_one(store, schedule("s")), await now_of(store)
    await tick_one(store, replace(tick_of(stored, None, scheduled_job("s", now)), by_hand=True))
    _overlaps(await _alone(store, 5), "beside one by hand")
    alone = replace(tick_of(stored, None, scheduled_job("s", now + HOUR * MINUTE), alone=True), by_hand=True)
    _overlaps((await tick_one(store, alone)).ticks[0], "by hand that must be alone, beside another")


@subject()
async def a_unique_key_that_is_held(harness: Harness) -> None:
    """The chain that holds it counts as that of the tick, also where the call would raise; the next one may overlap with it."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    holder = await insert_one(harness.store, job("tick", key="k", unique=FINISHED, delay=HOUR))
    for number, unique in enumerate((FINISHED, RAISE)):
        name = f"s{number}"
        await put_one(store, schedule(name))
        new = scheduled_job(name, await now_of(store), key="k", unique=unique)
        decided = await _alone(store, 1, new, name)
        equal((decided.outcome, decided.chain_id), (TickOutcome.DUPLICATE, holder), "what became of it")
        stored = await expect_schedule(store, name)
        equal((stored.last_chain, stored.ticks), (holder, (decided,)), "the last chain, and what is kept")
        _overlaps(await _alone(store, 2, None, name), "while the chain goes on that it has found")
    equal(await jobs_of_ticks(harness.store), [holder], "the jobs")


@subject()
async def who_takes_a_place(harness: Harness) -> None:
    """A tick whose job takes the place of one that waits has enqueued that one, which is of this tick by then."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    holder = await insert_one(harness.store, job("tick", key="k", unique=REPLACE, delay=HOUR))
    at = await now_of(store)
    decided = await _alone(store, 1, scheduled_job("s", at, key="k", unique=REPLACE, payload=b'{"n":1}'))
    equal((decided.outcome, decided.chain_id), (TickOutcome.ENQUEUED, holder), "what became of it")
    found = await snapshot(harness.store, holder)
    equal((found.payload, found.nominal_time, found.state), (b'{"n":1}', at, JobState.READY), "the job in its place")


@subject()
async def a_key_of_another_tick(harness: Harness) -> None:
    """Of two schedules that are decided together, and have jobs with one unique key, one has enqueued what the other finds."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("a"), schedule("b")])
    now = await now_of(store)
    ticks = [
        tick_of(await expect_schedule(store, name), now + MINUTE, scheduled_job(name, now, key="k", unique=FINISHED))
        for name in ("a", "b")
    ]
    outcomes = [each.ticks[0] for each in await store.tick(ticks)]
    equal({each.outcome for each in outcomes}, {TickOutcome.ENQUEUED, TickOutcome.DUPLICATE}, "what became of them")
    equal([each.chain_id for each in outcomes], (await jobs_of_ticks(harness.store)) * 2, "the chain of both")


@subject(Capability.LOCKS_ROWS)
async def what_somebody_holds_is_contended(harness: Harness) -> None:
    """Where somebody's open transaction has the unique key of one of the jobs nothing is decided, and it isn't waited for long:
    whoever decides leaves that schedule out for a while.
    """
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsSchedules) or not isinstance(second, SupportsSchedules):
        return
    await store.put_schedules([schedule("a"), schedule("b")])
    now, before = await now_of(store), await store.fetch_schedules(["a", "b"])
    jobs = [scheduled_job("a", now), scheduled_job("b", now, key="k", unique=FINISHED)]
    ticks = [tick_of(each, now + timedelta(hours=1), new) for each, new in zip(before, jobs, strict=True) if each]
    async with harness.store.transaction() as transaction:
        await transaction.insert([job("tick", key="k", unique=FINISHED)])
        await raises(StoreContended, second.tick(ticks), "a tick whose unique key somebody is about to store")
        equal(list(await second.fetch_schedules(["a", "b"])), list(before), "the schedules after that")
        check((await tick_one(second, ticks[0])).decided, "the other one must be decided")
    equal((await tick_one(store, ticks[1])).ticks[0].outcome, TickOutcome.DUPLICATE, "what becomes of it after the commit")
