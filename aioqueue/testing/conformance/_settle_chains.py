"""The cases of `Store.settle` about jobs that continue, each with the next step of its chain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
    near,
    next_step,
    settle_halving,
    settle_one,
    settlement,
    snapshot,
    start,
    start_chain,
    start_one,
    take_one,
    written,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, LostReason, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Job

__all__ = ["subject"]

subject = Subject("chains")

CONTINUED = SettlementKind.CONTINUED


async def _steps(store: Store, chain_id: UUID) -> list[Job]:
    return list((await store.list_chain(chain_id, 1000)).jobs)


@subject()
async def a_plain_job_is_the_first_of_its_chain(harness: Harness) -> None:
    """A chain's id is that of its first job, and positions count from 0."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    equal((claimed.chain_id, claimed.position), (claimed.id, 0), "chain and position as claimed")
    found = await snapshot(store, claimed.id)
    equal((found.chain_id, found.position), (claimed.id, 0), "chain and position as stored")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    found = await snapshot(store, claimed.id)
    equal((found.chain_id, found.position), (claimed.id, 0), "chain and position in the archive")


@subject()
async def the_next_step_takes_what_is_the_chains(harness: Harness) -> None:
    """It has the chain's id and key and the next position, whatever its own call says; all else is its own, and begins anew."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old = job(key="k", unique=Unique(), tags=("old",), metadata=b'{"m":0}', timeout=9.0, priority=3, max_attempts=2)
    first = await start_one(store, lease_id, old)
    new = job("b", key="other", unique=Unique(), tags=("t",), metadata=b'{"m":1}', payload=b'{"n":1}', timeout=3.0, priority=1)
    new = replace(new, max_attempts=7, retry=b'{"max_attempts":7}', trace='{"traceparent":"x"}')
    await written(store, settlement(first, CONTINUED, next=new, outcome="went on"))
    done = await expect_state(store, first.id, JobState.CONTINUED)
    equal((done.outcome, done.output_json, done.position), ("went on", None, 0), "outcome, output, position of the first")
    equal((done.key, done.tags), ("k", ("old",)), "key, tags of the first")
    if done.finished_at is None:
        raise AssertionError("a continued job must have its end")
    found = await expect_state(store, new.id, JobState.READY)
    equal((found.chain_id, found.position, found.key), (first.id, 1, "k"), "chain, position, key as stored")
    equal((found.attempt, found.reschedules, found.errors, found.started_at), (0, 0, (), None), "a new job's beginning")
    check(found.created_at >= first.started_at, f"created at {found.created_at}, before its chain's first start")
    claimed = await claim_one(store, lease_id, "b")
    equal((claimed.chain_id, claimed.position, claimed.key), (first.id, 1, "k"), "chain, position, key as claimed")
    equal((claimed.attempt, claimed.claims), (1, 1), "attempt and claims")
    for name in ("id", "type", "payload", "priority", "timeout", "tags", "metadata", "max_attempts", "retry", "trace"):
        equal(getattr(claimed, name), getattr(new, name), f"`{name}` of the next step")
    last = await next_step(store, claimed)
    equal((last.chain_id, last.position, last.key), (first.id, 2, "k"), "chain, position, key of the third")
    equal([each.id for each in await _steps(store, first.id)], [first.id, new.id, last.id], "the steps")


@subject()
async def of_a_chain_without_a_key(harness: Harness) -> None:
    """A key of the next step's own is nobody's: the chain has none."""
    store = harness.store
    first = await start_one(store, await store.open_lease("w", HOUR))
    new = job(key="k", unique=Unique())
    await written(store, settlement(first, CONTINUED, next=new))
    equal((await snapshot(store, new.id)).key, None, "the key of the next step")
    await insert_one(store, job(key="k", unique=Unique()))


@subject()
async def the_next_step_may_be_due_later(harness: Harness) -> None:
    """Its delay, or time, and the time within which it must be started count as for any new job."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    one, two, three = await start(store, lease_id, job(), job(), job())
    moment = datetime(2100, 5, 6, 7, 8, 9, tzinfo=UTC)
    delayed, timed = job("delayed", delay=HOUR, expires=HOUR), job("timed", run_at=moment)
    past = job("past", run_at=datetime(2000, 1, 1, tzinfo=UTC))
    await written(store, settlement(one, CONTINUED, next=delayed))
    await written(store, settlement(two, CONTINUED, next=timed))
    await written(store, settlement(three, CONTINUED, next=past))
    found = await expect_state(store, delayed.id, JobState.SCHEDULED)
    near(found.run_at, one.started_at + timedelta(hours=1), "run_at after a delay")
    if found.expires_at is None:
        raise AssertionError("the next step must have its time to expire")
    near(found.expires_at, one.started_at + timedelta(hours=2), "expires_at")
    equal((await expect_state(store, timed.id, JobState.SCHEDULED)).run_at, moment, "run_at at a time")
    now = await expect_state(store, past.id, JobState.READY)
    check(now.run_at >= three.started_at, f"due at {now.run_at}, before the first step was started")
    equal(list(await store.claim(lease_id, ["delayed", "timed"], 10)), [], "what is due before its time")
    due = (await store.next_due(["delayed"])).job
    check(due is not None and 0 < due <= HOUR, f"the next due in {due} s")
    await harness.age(HOUR + 600)
    check(not (await claim_one(store, lease_id, "delayed")).expired, "what is started in time hasn't expired")


@subject()
async def the_unique_key_is_the_chains_until_it_ends(harness: Harness) -> None:
    """Whoever wants it is given the chain's id, whichever step is where; the key stays one of the first step's type."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    claimed = await start_one(store, lease_id, job(key="k", unique=Unique()))
    held = [Inserted(claimed.id, created=False)]

    async def expect_held(when: str) -> None:
        equal(list(await store.insert([job(key="k", unique=Unique())])), held, f"an insert with the key {when}")
        async with store.transaction() as transaction:
            equal(list(await transaction.insert([job(key="k", unique=Unique())])), held, f"one in a transaction {when}")

    await written(store, settlement(claimed, CONTINUED, next=job("b", delay=HOUR)))
    await expect_held("while the second is scheduled")
    await insert_one(store, job("b", key="k", unique=Unique(), delay=50 * HOUR))
    await harness.age(HOUR + 600)
    await expect_held("while the second is due")
    claimed = await claim_one(store, lease_id, "b")
    await expect_held("while the second is running")
    claimed = await next_step(store, claimed, job("c"))
    await expect_held("while the third is running")
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=0))
    await expect_held("while the third waits to be tried again")
    await written(store, settlement(await claim_one(store, lease_id, "c"), SettlementKind.COMPLETED, output=b"1"))
    await insert_one(store, job(key="k", unique=Unique()))


@subject()
async def nobody_gets_the_key_between_two_steps(harness: Harness) -> None:
    """Others who want a chain's key all the while that it goes on never get it."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(key="k", unique=Unique()))
    chain_id, ended = claimed.id, False
    answers: set[Inserted] = set()

    async def want(where: Store) -> None:
        while not ended:
            answers.update(await where.insert([job(key="k", unique=Unique())]))

    async with anyio.create_task_group() as group:
        for each in (second, second, store):
            group.start_soon(want, each)
        for _ in range(40):
            claimed = await next_step(store, claimed, job("step"))
        ended = True
    equal(answers, {Inserted(chain_id, created=False)}, "what those who wanted the key were told")
    equal([each.position for each in await _steps(store, chain_id)], list(range(41)), "the positions")


@subject()
async def repeating_a_continuation(harness: Harness) -> None:
    """It answers as the first time and stores nothing again: the next step may be waiting, running or finished by then."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, neighbour = await start(store, lease_id, job(), job())
    new = job("b")
    what = settlement(first, CONTINUED, next=new)
    await written(store, what)

    async def expect_the_same(when: str) -> None:
        before = await _steps(store, first.id)
        equal([each.id for each in before], [first.id, new.id], f"the steps {when}")
        await written(store, what)
        equal(await _steps(store, first.id), before, f"the steps after a repetition {when}")

    await expect_the_same("while the next is waiting")
    claimed = await claim_one(store, lease_id, "b")
    await expect_the_same("while the next is running")
    results = await store.settle([what, settlement(neighbour, SettlementKind.COMPLETED, output=b"1"), what])
    equal([(each.lost, each.busy) for each in results], [(None, False)] * 3, "the results beside a new one")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    await expect_the_same("when the next has finished")


@subject()
async def a_continuation_twice_in_one_batch(harness: Harness) -> None:
    """A repetition within a batch is written once, and answered twice."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    what = settlement(claimed, CONTINUED, next=job("b"))
    results = await store.settle([what, what])
    equal([(each.lost, each.busy) for each in results], [(None, False)] * 2, "the results")
    equal([each.position for each in await _steps(store, claimed.id)], [0, 1], "the positions")


@subject()
async def among_all_kinds_in_one_batch(harness: Harness) -> None:
    """Continuations are written beside the other kinds; the next step of one that is lost isn't stored."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job() for _ in range(6)))
    stale = replace(settlement(claimed[5], CONTINUED), claims=99)
    missing = Settlement(id=new_id(), claims=1, lease_id=lease_id, kind=CONTINUED, next=job("next"))
    batch = [
        settlement(claimed[0], CONTINUED),
        settlement(claimed[1], SettlementKind.COMPLETED, output=b"1"),
        stale,
        settlement(claimed[2], SettlementKind.RETRIED, delay=HOUR, error=failure()),
        settlement(claimed[3], CONTINUED),
        missing,
        settlement(claimed[4], SettlementKind.FAILED, error=failure()),
    ]
    results = [each.lost for each in await store.settle(batch)]
    equal([results[place] for place in (0, 1, 3, 4, 6)], [None] * 5, "results of the valid ones")
    check(results[2] in (LostReason.TAKEN, LostReason.NOT_FOUND), f"a stale claim must be lost as taken, not {results[2]!r}")
    equal(results[5], LostReason.NOT_FOUND, "the result of a job that doesn't exist")
    expected = [
        JobState.CONTINUED,
        JobState.COMPLETED,
        JobState.SCHEDULED,
        JobState.CONTINUED,
        JobState.FAILED,
        JobState.RUNNING,
    ]
    equal([each and each.state for each in await store.fetch([each.id for each in claimed])], expected, "the states")
    following = [each.next.id for each in (batch[0], batch[4], stale, missing) if each.next is not None]
    found = await store.fetch(following)
    equal([each and each.chain_id for each in found], [claimed[0].id, claimed[3].id, None, None], "the chains of the next ones")
    equal((await store.stats()).types["a"].counts.get(JobState.CONTINUED), 2, "continued jobs as counted")


@subject()
async def large_batches_of_continuations(harness: Harness) -> None:
    """A thousand chains go on in one call."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job(key=f"k{number}", unique=Unique()) for number in range(1000)))
    batch = [settlement(each, CONTINUED) for each in claimed]
    equal({each.lost for each in await store.settle(batch)}, {None}, "the results")
    found = await store.fetch([each.next.id for each in batch if each.next is not None])
    equal([each and each.chain_id for each in found], [each.id for each in claimed], "the chains of the next ones")
    equal([each and each.key for each in found], [each.key for each in claimed], "the keys of the next ones")


@subject()
async def a_next_id_that_is_there_is_refused_alone(harness: Harness) -> None:
    """A live, a finished job's or the step's own id: nothing of that settlement is written, its neighbours are."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    live = await insert_one(store, job("live", payload=b'{"mine":1}'))
    finished = await start_one(store, lease_id)
    await written(store, settlement(finished, SettlementKind.COMPLETED, output=b"1"))
    claimed = await start(store, lease_id, *(job(key=f"k{number}", unique=Unique()) for number in range(5)))
    batch = [
        settlement(claimed[0], CONTINUED),
        settlement(claimed[1], CONTINUED, next=job("b", id=live)),
        settlement(claimed[2], CONTINUED, next=job("b", id=finished.id)),
        settlement(claimed[3], CONTINUED, next=job("b", id=claimed[3].id)),
        settlement(claimed[4], SettlementKind.COMPLETED, output=b"1"),
    ]
    results = await store.settle(batch)
    error = LostReason.ERROR
    equal([each.lost for each in results], [None, error, error, error, None], "the results")
    check(all(each.message for each in results[1:4]), f"each refusal must say why: {results!r}")
    for each in claimed[1:4]:
        await expect_state(store, each.id, JobState.RUNNING)
        (held,) = await store.insert([job(key=each.key, unique=Unique())])
        equal((held.id, held.created), (each.id, False), "who has the key of what was refused")
    await expect_state(store, claimed[0].id, JobState.CONTINUED)
    await expect_state(store, claimed[4].id, JobState.COMPLETED)
    there = await snapshot(store, live)
    equal((there.type, there.chain_id, there.payload), ("live", live, b'{"mine":1}'), "the job whose id was taken")
    await expect_state(store, finished.id, JobState.COMPLETED)
    for each in claimed[1:4]:
        await written(store, settlement(each, SettlementKind.FAILED, error=failure()))


@subject()
async def a_next_step_that_cant_be_stored(harness: Harness) -> None:
    """What the database refuses fails alone, or the batch as a whole so that it can be halved; its job is still held."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, job(), job(), job())
    broken = job("b", payload=b'{"broken"')
    await settle_halving(
        store,
        [
            settlement(claimed[0], CONTINUED),
            settlement(claimed[1], CONTINUED, next=broken),
            settlement(claimed[2], SettlementKind.COMPLETED, output=b"1"),
        ],
    )
    states = [each and each.state for each in await store.fetch([each.id for each in claimed])]
    equal(states, [JobState.CONTINUED, JobState.RUNNING, JobState.COMPLETED], "the states")
    equal(list(await store.fetch([broken.id])), [None], "the step that can't be stored")
    await written(store, settlement(claimed[1], SettlementKind.FAILED, error=failure()))


@subject(Capability.LOCKS_ROWS)
async def a_locked_step_is_busy(harness: Harness) -> None:
    """Nothing of a step that somebody else has locked is written, and its neighbours go on; later it goes on as well."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start(store, lease_id, job(), job())
    batch = [settlement(one, CONTINUED), settlement(two, CONTINUED)]
    async with harness.locked(one.id):
        equal([each.busy for each in await store.settle(batch)], [True, False], "what is busy")
        equal([each.position for each in await _steps(store, one.id)], [0], "positions in the chain that is locked")
    equal([each.position for each in await _steps(store, two.id)], [0, 1], "positions in the other one")
    await written(store, batch[0])
    equal([each.position for each in await _steps(store, one.id)], [0, 1], "positions in the end")


@subject()
async def tries_of_a_step_keep_its_place(harness: Harness) -> None:
    """Retried, rescheduled or given back: the step keeps its chain, position and key, and the attempts are its own."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, second = await start_chain(store, lease_id, 2, job(key="k", unique=Unique()))
    place = (second.id, first.id, 1, "k")
    await written(store, settlement(second, SettlementKind.RETRIED, delay=0, error=failure()))
    again = await claim_one(store, lease_id)
    equal((again.id, again.chain_id, again.position, again.key), place, "the step after a failure")
    equal(again.attempt, 2, "its attempt")
    await written(store, settlement(again, SettlementKind.RESCHEDULED, delay=0))
    again = await claim_one(store, lease_id)
    equal((again.id, again.chain_id, again.position, again.key), place, "the step after a reschedule")
    await store.release(lease_id, [again.claim])
    again = await claim_one(store, lease_id)
    equal((again.id, again.chain_id, again.position, again.key), place, "the step after a release")
    third = await next_step(store, again)
    equal((third.chain_id, third.position, third.attempt), (first.id, 2, 1), "chain, position, attempt of the next one")
    equal((await snapshot(store, first.id)).attempt, 1, "attempts of the first")


@subject()
async def a_lost_worker_in_the_middle(harness: Harness) -> None:
    """The step that its worker left is recovered with its place; the chain goes on at it, and whoever was lost is fenced."""
    store = harness.store
    dead = await store.open_lease("dead", HOUR)
    first, second = await start_chain(store, dead, 2, job(key="k", unique=Unique()))
    await harness.age(2 * HOUR)
    taken = await take_one(store)
    equal((taken.id, taken.chain_id, taken.position, taken.key), (second.id, first.id, 1, "k"), "what is recovered")
    await written(store, settlement(taken, SettlementKind.RETRIED, delay=0, error=failure()), orphaned=True)
    late = settlement(second, CONTINUED, next=job("late"))
    check((await settle_one(store, late)).lost is not None, "the continuation of a worker that was lost must be refused")
    again = await claim_one(store, await store.open_lease("other", HOUR))
    equal((again.id, again.chain_id, again.position, again.attempt), (second.id, first.id, 1, 2), "what is claimed again")
    third = await next_step(store, again)
    check((await settle_one(store, late)).lost is not None, "it must be refused also when another has continued")
    await written(store, settlement(third, SettlementKind.COMPLETED, output=b"3"))
    steps = await _steps(store, first.id)
    equal([each.id for each in steps], [first.id, second.id, third.id], "the steps")
    states = [JobState.CONTINUED, JobState.CONTINUED, JobState.COMPLETED]
    equal([each.state for each in steps], states, "their states")


@subject()
async def an_orphaned_step_can_end_its_chain(harness: Harness) -> None:
    """Where a worker dies in a step's last attempt the chain has failed, is found by its id, and its key is free."""
    store = harness.store
    lease_id = await store.open_lease("dead", HOUR)
    first = await start_one(store, lease_id, job(key="k", unique=Unique()))
    second = await next_step(store, first, job(max_attempts=1))
    await harness.age(2 * HOUR)
    what = settlement(await take_one(store), SettlementKind.FAILED, error=failure())
    await written(store, what, orphaned=True)
    await written(store, what, orphaned=True)
    late = await settle_one(store, settlement(second, CONTINUED, next=job("late")))
    check(late.lost is not None, "the continuation of a chain that has ended must be refused")
    (end,) = await store.fetch_ends([first.id])
    equal((end and end.id, end and end.state), (second.id, JobState.FAILED), "the end by the chain's id")
    await insert_one(store, job(key="k", unique=Unique()))
