"""The cases of `SupportsGates` about sequences: one at a time, in the order of the inserts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, expect_held, limit_of, member, tenant, with_gates
from aioqueue.testing.conformance._tools import (
    HOUR,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    settlement,
    snapshot,
    written,
)
from aioqueue.testing.conformance._waiting import complete, ends_well, fail
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("sequences")

S = member("s")
AT_S = "sequence=s"
BY_TYPE = {"a": GateRules(type="a", sequence_by=BY_TENANT)}


@subject()
async def they_run_in_their_order(harness: Harness) -> None:
    """One at a time, however urgent they are, whatever their type, and from however many claims."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job("a", sequence=S, priority=4), job("b", sequence=S, priority=1), job("a", sequence=S, priority=2)]
    for each in jobs:
        await insert_one(store, each)
    equal(await Worker(store, {}, ["b"]).ids(), [], "what a worker claims whose type hasn't the first one")
    await expect_held(store, AT_S, jobs[1].id)
    equal(await Worker(store, {}, ["a", "b"]).in_turn(3), [each.id for each in jobs], "the order")


@subject()
async def the_order_of_one_insert_counts(harness: Harness) -> None:
    """Of those that were inserted together, whatever their ids are."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(sequence=S) for _ in range(5)][::-1]
    await store.insert(jobs)
    equal(await Worker(store).in_turn(5), [each.id for each in jobs], "the order")


@subject()
async def the_order_of_commits_in_a_transaction_counts(harness: Harness) -> None:
    """Those of one transaction are in the order of its inserts."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(sequence=S) for _ in range(3)]
    async with store.transaction() as tx:
        for each in jobs:
            await tx.insert([each])
    equal(await Worker(store).in_turn(3), [each.id for each in jobs], "the order")


@subject()
async def others_are_not_held_up(harness: Harness) -> None:
    """Other sequences, and jobs without one, run meanwhile."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(sequence=S), job(sequence=S), job(sequence=member("t")), job()]
    await store.insert(jobs)
    worker = Worker(store)
    equal(sorted(await worker.ids()), sorted(jobs[place].id for place in (0, 2, 3)), "what runs")
    await expect_held(store, AT_S, jobs[1].id)


@subject()
async def types_say_which_one(harness: Harness) -> None:
    """An argument tells the sequences of a type apart; what the call says counts before that."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(payload=tenant("x")), job(payload=tenant("y")), job(payload=tenant("x")), job(payload=tenant("x"), sequence=S)]
    for each in jobs:
        await insert_one(store, each)
    worker = Worker(store, BY_TYPE)
    claimed = await worker.claim()
    equal(sorted(each.id for each in claimed), sorted(jobs[place].id for place in (0, 1, 3)), "what runs")
    await expect_held(store, 'sequence=a="x"', jobs[2].id)
    await complete(store, next(each for each in claimed if each.id == jobs[0].id))
    equal(await worker.ids(), [jobs[2].id], "what runs after the first of them")


@subject()
async def a_retry_lets_others_pass(harness: Harness) -> None:
    """While a member waits for its next attempt, or a future time, others run; when it's due, it's the first again."""
    if with_gates(store := harness.store) is None:
        return
    first, future, third, last = job(sequence=S), job(sequence=S, delay=HOUR), job(sequence=S), job(sequence=S)
    for each in (first, future, third, last):
        await insert_one(store, each)
    worker = Worker(store)
    claimed = await worker.one()
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR / 2, error=failure()))
    passing = await worker.one()
    equal(passing.id, third.id, "what passes")
    await harness.age(HOUR * 0.75)
    equal(await worker.ids(), [], "what runs when the first one is due again")
    await written(store, ends_well(passing))
    equal(await worker.ids(), [first.id], "what runs after the one that has passed")
    await expect_held(store, AT_S, last.id)
    await expect_state(store, future.id, JobState.SCHEDULED)


@subject()
async def a_chain_has_its_place_to_its_end(harness: Harness) -> None:
    """The next member runs when the chain has ended, and not between its steps."""
    if with_gates(store := harness.store) is None:
        return
    first, second = job(sequence=S), job(sequence=S)
    await store.insert([first, second])
    worker = Worker(store, {}, ["a", "step"])
    claimed = await worker.one()
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=(step := job("step"))))
    going_on = await worker.one()
    equal(going_on.id, step.id, "what runs after the first step")
    await complete(store, going_on)
    equal(await worker.ids(), [second.id], "what runs after the chain")


@subject()
async def each_end_lets_the_next_come(harness: Harness) -> None:
    """Failed, cancelled, deleted, erased, ended from outside: the next one's turn has come."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(sequence=S) for _ in range(6)]
    await store.insert(jobs)
    worker = Worker(store)
    claimed = await worker.one()
    await fail(store, claimed)
    claimed = await worker.one()
    equal(claimed.id, jobs[1].id, "after one that has failed")
    await store.cancel([claimed.id], "no")
    await written(store, settlement(claimed, SettlementKind.CANCELLED, error=failure()))
    claimed = await worker.one()
    equal(claimed.id, jobs[2].id, "after one that was cancelled")
    await store.delete([claimed.id])
    claimed = await worker.one()
    equal(claimed.id, jobs[3].id, "after one that was deleted")
    await harness.erase(claimed.id)
    claimed = await worker.one()
    equal(claimed.id, jobs[4].id, "after one whose row was deleted")
    await store.cancel([jobs[5].id], "no")
    await complete(store, claimed)
    last = await insert_one(store, job(sequence=S))
    equal(await worker.ids(), [last], "after one that was cancelled while it was held")


@subject()
async def one_that_waits_and_goes_lets_the_next_come(harness: Harness) -> None:
    """The first one is held at a limit, which keeps the others; when it's cancelled there, the next one runs."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 0)])
    first, second = job("a", sequence=S), job("b", sequence=S)
    await store.insert([first, second])
    worker = Worker(store, {"a": GateRules(type="a", limit=True)}, ["a", "b"])
    equal(await worker.ids(), [], "what runs")
    await expect_held(store, "job:a", first.id)
    await expect_held(store, AT_S, second.id)
    await store.cancel([first.id], "no")
    equal(await worker.ids(), [second.id], "what runs after that")


@subject()
async def a_retried_one_is_in_it_again(harness: Harness) -> None:
    """One that has failed, or was cancelled, and that somebody retries is in its sequence: it waits for what runs there."""
    if with_gates(store := harness.store) is None:
        return
    failed, cancelled, third = job(sequence=S), job(sequence=S), job(sequence=S)
    await store.insert([failed, cancelled, third])
    worker = Worker(store)
    await fail(store, await worker.one())
    await store.cancel([cancelled.id], "no")
    running = await worker.one()
    equal(running.id, third.id, "what runs after those")
    equal(list(await store.retry([failed.id, cancelled.id])), [Changed.DONE] * 2, "what became of the retries")
    equal(await worker.ids(), [], "what runs beside the third one")
    await expect_held(store, AT_S, failed.id, cancelled.id)
    await complete(store, running)
    equal(await worker.in_turn(2), [failed.id, cancelled.id], "the order after that")


@subject()
async def a_dead_worker_keeps_its_place(harness: Harness) -> None:
    """Until its job is recovered: nobody else runs beside it."""
    if with_gates(store := harness.store) is None:
        return
    first, second = job(sequence=S), job(sequence=S)
    await store.insert([first, second])
    equal(await Worker(store).ids(), [first.id], "what runs")
    await harness.age(2 * HOUR)
    worker = Worker(store)
    equal(await worker.ids(), [], "what runs before it's recovered")
    (taken,) = await store.take_expired(10)
    await written(store, settlement(taken, SettlementKind.RETRIED, delay=0.0, error=failure()), orphaned=True)
    equal(await worker.in_turn(2), [first.id, second.id], "the order")


@subject()
async def a_release_keeps_the_order(harness: Harness) -> None:
    """A member that was given back unstarted is the next again."""
    if with_gates(store := harness.store) is None:
        return
    first, second = job(sequence=S), job(sequence=S)
    await store.insert([first, second])
    worker = Worker(store)
    claimed = await worker.one()
    equal(await worker.ids(), [], "what runs beside it")
    await store.release(claimed.lease_id, [claimed.claim])
    equal(await worker.in_turn(2), [first.id, second.id], "the order")
    equal((await snapshot(store, first.id)).attempt, 1, "its attempts")
