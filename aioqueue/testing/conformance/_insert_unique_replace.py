"""The cases of `Store.insert` about jobs that take the place of a waiting one with the same unique key."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import BlockerCycle, StoreContended
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._keys import FINISHED, REPLACE, expect_created, expect_held, expect_replaced
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
    near,
    raises,
    refused,
    settlement,
    snapshot,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    completed,
    ends_well,
    failed,
    start_blocker,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, LostReason, NewJob, SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("unique_replace")


@subject()
async def it_gets_all_that_was_given(harness: Harness) -> None:
    """The waiting job begins anew as the other one: nothing stays of it but its id, creation, claims and errors."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old = job("old name", key="k", unique=REPLACE, max_attempts=2, expires=60.0, tags=("old",), timeout=9.0, keep=9 * HOUR)
    claimed = await start_one(store, lease_id, replace(old, retry=b'{"max_attempts":2}', trace='{"traceparent":"x"}'))
    await written(store, settlement(claimed, SettlementKind.RESCHEDULED, delay=0))
    claimed = await claim_one(store, lease_id, old.type)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure(), outcome="old"))
    before = await snapshot(store, old.id)
    new = NewJob(
        id=new_id(),
        type="new name",
        payload=b'{"a":1}',
        priority=3,
        delay=60.0,
        expires=HOUR,
        max_attempts=7,
        retry=b'{"max_attempts":7}',
        timeout=1.5,
        key="k",
        unique=REPLACE,
        aliases=("old name",),
        tags=("t",),
        metadata=b'{"m":1}',
        trace='{"traceparent":"y"}',
        keep=HOUR,
        webhook="https://example.org/new",
    )
    await expect_replaced(store, new, old.id, "while it waits for its second attempt")
    found = await expect_state(store, old.id, JobState.SCHEDULED)
    for name in {each.name for each in fields(new)} & {each.name for each in fields(found)} - {"id", "run_at"}:
        equal(getattr(found, name), getattr(new, name), f"`{name}` of the job")
    lived = (found.attempt, found.reschedules, found.started_at, found.outcome, found.worker)
    equal(lived, (0, 0, None, None, None), "what came of the one before")
    equal((found.created_at, found.errors), (before.created_at, before.errors), "creation and history")
    near(found.run_at, found.created_at + timedelta(seconds=60), "run_at", within=30)
    equal(found.expires_at, found.run_at + timedelta(hours=1), "the end of its time")
    await store.run_now([old.id])
    again = await claim_one(store, lease_id, "new name")
    equal((again.id, again.payload, again.attempt, again.claims), (old.id, b'{"a":1}', 1, claimed.claims + 1), "the next claim")
    equal((again.retry, again.max_attempts), (new.retry, 7), "what its worker is told")
    await refused(store, ends_well(claimed), LostReason.TAKEN)
    await complete(store, again)
    done = await snapshot(store, old.id)
    if done.finished_at is None or done.purge_at is None:
        raise AssertionError(f"it must have ended, and be kept for an hour: {done!r}")
    near(done.purge_at, done.finished_at + timedelta(hours=1), "until when it's kept", within=1.0)


@subject()
async def between_attempts_by_one_that_keeps_its_key_until_a_start(harness: Harness) -> None:
    """It has been started before, so it has no key from then on: not in the same batch, nor after a retry by hand."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    until_started = replace(REPLACE, until="started")
    holders: list[UUID] = []
    for key in ("one", "batch"):
        claimed = await start_one(store, lease_id, job(key=key, unique=FINISHED))
        await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure(), delay=HOUR))
        holders.append(claimed.id)
    await expect_replaced(store, job(key="one", unique=until_started), holders[0], "between attempts")
    others = [await expect_created(store, job(key="one", unique=FINISHED, delay=HOUR), "after that")]
    replaces, returned, last = job(key="batch", unique=until_started), job(key="batch", unique=FINISHED), job(key="batch")
    results = await store.insert([replaces, replace(returned, delay=HOUR), replace(last, unique=REPLACE, delay=HOUR)])
    said = [(each.id, each.created, each.replaced) for each in results]
    equal(said, [(holders[1], False, True), (returned.id, True, False), (returned.id, False, True)], "in one batch")
    others.append(returned.id)
    for key, other in zip(("one", "batch"), others, strict=True):
        claimed = await claim_one(store, lease_id)
        await written(store, settlement(claimed, SettlementKind.FAILED, error=failure()))
        equal(list(await store.retry([claimed.id])), [Changed.DONE], "a retry, though another has the key")
        await complete(store, await claim_one(store, lease_id))
        await expect_held(store, job(key=key, unique=FINISHED), other, "after the end of the one that was replaced")


@subject()
async def its_delay_moves_the_start(harness: Harness) -> None:
    """With each call, but not beyond `max_delay` from its creation; the time to expire is counted from then."""
    store = harness.store
    held = await insert_one(store, job(key="k", unique=REPLACE, delay=HOUR))
    for passed, due_in in ((0.0, HOUR), (HOUR / 2, HOUR), (HOUR, HOUR / 2), (HOUR, 0.0)):  # created 0, 0.5, 1.5, 2.5 h ago
        await harness.age(passed)
        new = job(key="k", unique=REPLACE, delay=HOUR, max_delay=2 * HOUR, expires=60.0)
        await expect_replaced(store, new, held, f"{passed:.0f} s later")
        found = await snapshot(store, held)
        now = (await snapshot(store, await insert_one(store, job("clock")))).created_at
        near(found.run_at, now + timedelta(seconds=due_in), "run_at")
        equal(found.expires_at, found.run_at + timedelta(seconds=60), "the end of its time")
    await expect_replaced(store, job(key="k", unique=REPLACE, delay=HOUR), held, "without a limit")
    check((await snapshot(store, held)).state is JobState.SCHEDULED, "without `max_delay` its start moves on")
    with listening(store) as heard:
        await expect_replaced(store, job(key="k", unique=REPLACE), held, "that is due at once")
        await heard.wait_for_type("a")
    equal((await claim_one(store, await store.open_lease("w", HOUR))).id, held, "what is claimed then")


@subject()
async def it_waits_for_what_the_new_one_waits_for(harness: Harness) -> None:
    """And for nothing else; those that wait for it go on to do so. What has ended counts at once."""
    store = harness.store
    old, other = await start_blocker(store, "old"), await start_blocker(store, "other")
    held = await insert_one(store, after(job(key="k", unique=REPLACE), old.id))
    waiting = await insert_one(store, after(job("waits"), held))
    done, lost = await completed(store), await failed(store)
    await expect_replaced(store, after(job(key="k", unique=REPLACE), other.id, done), held, "with other blockers")
    found = await expect_state(store, held, JobState.BLOCKED)
    equal((found.open_blockers, await waits_for(store, held)), (1, [(other.id, False), (done, True)]), "what it waits for")
    equal(await waiting_for(store, old.id), [], "who waits for the first one")
    await complete(store, old)
    await expect_state(store, held, JobState.BLOCKED)
    await expect_replaced(store, after(job(key="k", unique=REPLACE), done), held, "with one that has ended")
    lease_id = await store.open_lease("w", HOUR)
    claimed = await claim_one(store, lease_id)
    equal((claimed.id, told(claimed)), (held, [(done, ChainEnd.COMPLETED, b"1")]), "what it is told")
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR))
    await expect_replaced(store, job(key="k", unique=REPLACE), held, "without any blockers")
    await expect_state(store, held, JobState.READY)
    equal(await waits_for(store, held), [], "what it waits for")
    await expect_replaced(store, after(job(key="k", unique=REPLACE), lost), held, "with one that has failed")
    caused(await expect_state(store, held, JobState.FAILED), lost)
    await store.tend(100)
    await expect_state(store, waiting, JobState.FAILED)


@subject()
async def it_may_not_wait_for_itself(harness: Harness) -> None:
    """Something that waits for the holder can't be waited for: nothing is stored or changed."""
    store = harness.store
    held = await insert_one(store, job(key="k", unique=REPLACE, delay=HOUR))
    waiting = await insert_one(store, after(job("waits"), await insert_one(store, after(job("between"), held))))
    before, other = await snapshot(store, held), job("other")
    for blocker in (waiting, held):
        new = after(job(key="k", unique=REPLACE, payload=b'{"n":2}'), blocker)
        await raises(BlockerCycle, store.insert([other, new]), "a job that would wait for itself")
    between = after(other, held, await failed(store))
    with_it = [between, after(job(key="k", unique=REPLACE), between.id)]
    await raises(BlockerCycle, store.insert(with_it), "a job that would wait for itself, through one that fails at once")
    fresh = job(key="l", unique=REPLACE)
    between = after(other, fresh.id)
    for before_it in (fresh, between):
        batch = [fresh, between, after(job(key="l", unique=REPLACE), before_it.id)]
        await raises(BlockerCycle, store.insert(batch), "a new job that would wait for itself")
    equal(list(await store.fetch([held, other.id])), [before, None], "the holder, and the rest of the batch")
    equal(list(await store.fetch([fresh.id])), [None], "the new one")


@subject()
async def several_in_one_batch(harness: Harness) -> None:
    """The last of them counts, for one that is stored with them, too."""
    store = harness.store
    held = await insert_one(store, job(key="k", unique=REPLACE, delay=HOUR))
    jobs = [job(key=key, unique=REPLACE, payload=b'{"n":%d}' % number) for number, key in enumerate(("k", "l", "k", "l", "l"))]
    first = jobs[1].id
    results = [(each.id, each.created, each.replaced) for each in await store.insert(jobs)]
    expected = [(held, False, True), (first, True, False), (held, False, True), (first, False, True), (first, False, True)]
    equal(results, expected, "the results")
    found = await store.fetch([held, first])
    equal([each and each.payload for each in found], [b'{"n":2}', b'{"n":4}'], "the arguments")
    async with store.transaction() as transaction:
        for number in (5, 6):
            (result,) = await transaction.insert([job(key="l", unique=REPLACE, payload=b'{"n":%d}' % number)])
            equal(result, Inserted(first, created=False, replaced=True), "one in a transaction")
    equal((await snapshot(store, first)).payload, b'{"n":6}', "the arguments after the commit")


@subject(Capability.LOCKS_ROWS)
async def a_locked_holder_is_contended(harness: Harness) -> None:
    """One whose row somebody has locked isn't waited for long; who only wants to know who has the key is told at once."""
    store = harness.store
    held = await insert_one(store, job(key="k", unique=REPLACE))
    async with harness.locked(held):
        await raises(StoreContended, store.insert([job(key="k", unique=REPLACE)]), "taking the place of a locked one")
        await expect_held(store, job(key="k", unique=replace(REPLACE, on_conflict="return")), held, "while it's locked")
    await expect_replaced(store, job(key="k", unique=REPLACE), held, "once it's free")


@subject()
async def while_it_is_claimed(harness: Harness) -> None:
    """At the same moment: either the worker gets the new job, or the new one waits for what the worker has got."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    olds = {number: job(key=f"k{number}", unique=REPLACE, payload=b'{"n":0}') for number in range(8)}
    await store.insert(list(olds.values()))
    payloads: dict[object, bytes] = {}
    results: dict[int, Inserted] = {}

    async def claim() -> None:
        while len(payloads) < len(olds):
            payloads.update({each.id: each.payload for each in await store.claim(lease_id, ["a"], 1)})

    async def take_its_place(number: int) -> None:
        (results[number],) = await second.insert([job(key=f"k{number}", unique=REPLACE, payload=b'{"n":1}')])

    async with anyio.create_task_group() as group:
        group.start_soon(claim)
        for number in olds:
            group.start_soon(take_its_place, number)
    for number, old in olds.items():
        result = results[number]
        check(result.created is not result.replaced, f"it must be one of both: {result!r}")
        equal(payloads[old.id], b'{"n":1}' if result.replaced else b'{"n":0}', "what the worker has got")
        if result.created:
            equal(await waits_for(store, result.id), [(old.id, False)], "what the new one waits for")
