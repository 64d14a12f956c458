"""The cases of `Store.insert` about jobs that wait for others: what happens meanwhile, and in transactions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import BlockerNotFound, StoreContended
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    check,
    claim_one,
    equal,
    expect_state,
    insert_one,
    job,
    near,
    raises,
    rolled_back,
    settle_one,
    settlement,
    snapshot,
    start_chain,
)
from aioqueue.testing.conformance._waiting import (
    after,
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
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import NewJob, Settlement

__all__ = ["subject"]

subject = Subject("insert_blockers")


@subject()
async def in_a_transaction_a_refusal_leaves_it_as_it_was(harness: Harness) -> None:
    """After BlockerNotFound the transaction can go on, and commits what it had before."""
    store = harness.store
    before, late = job("before"), job("late")
    async with store.transaction() as transaction:
        await transaction.insert([before])
        await raises(BlockerNotFound, transaction.insert([job("no"), after(job("no"), new_id())]), "an unknown blocker")
        await transaction.insert([after(late, before.id)])
    await expect_state(store, before.id, JobState.READY)
    await expect_state(store, late.id, JobState.BLOCKED)
    check(not await store.claim(await store.open_lease("w", HOUR), ["no"], 1), "nothing of what was refused may be stored")


@subject()
async def what_is_left_of_one_that_was_deleted_by_hand(harness: Harness) -> None:
    """A job that is enqueued again waits for what it says now: what it waited for then neither refuses it nor counts."""
    store = harness.store
    then, other, now = await start_blocker(store), await start_blocker(store), await start_blocker(store)
    waits = job("waits")
    await store.insert([after(waits, then.id, other.id)])
    await harness.erase(waits.id)
    equal(await store.insert([after(waits, now.id)]), [Inserted(waits.id, created=True)], "the second insert")
    equal(await waits_for(store, waits.id), [(now.id, False)], "what it waits for")
    await complete(store, then)
    await complete(store, other)
    await expect_state(store, waits.id, JobState.BLOCKED)
    await complete(store, now)
    await expect_state(store, waits.id, JobState.READY)


@subject()
async def a_repeated_insert_changes_nothing(harness: Harness) -> None:
    """After an unclear commit it's repeated: nothing is counted twice, whether its blockers have ended meanwhile or not."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    inner = job("inner")
    new = after(job("waits"), blocker.id, inner.id)
    await store.insert([inner, new])
    again = await store.insert([inner, new], repeated=True)
    equal(list(again), [Inserted(inner.id, created=False), Inserted(new.id, created=False)], "the results of a repetition")
    equal((await snapshot(store, new.id)).open_blockers, 2, "open blockers after it")
    await complete(store, blocker)
    await store.insert([inner, new], repeated=True)
    equal((await expect_state(store, new.id, JobState.BLOCKED)).open_blockers, 1, "open blockers after another")
    await complete(store, await claim_one(store, lease_id, "inner"))
    await complete(store, await claim_one(store, lease_id, "waits"))
    again = await store.insert([inner, new], repeated=True)
    equal([each.created for each in again], [False, False], "created, after all have ended")
    await expect_state(store, new.id, JobState.COMPLETED)


@subject()
async def due_and_expiry_count_from_the_unblocking(harness: Harness) -> None:
    """It's due at the later of its due time and the unblocking, and may be started for as long after that as was given."""
    store = harness.store
    moment = datetime.now(UTC) + timedelta(hours=50)
    blocker = await start_blocker(store)
    soon = after(job("soon", expires=2 * HOUR), blocker.id)
    late = after(job("late", run_at=moment, expires=2 * HOUR), blocker.id)
    await store.insert([soon, late])
    await harness.age(HOUR)
    await complete(store, blocker)
    found = await expect_state(store, soon.id, JobState.READY)
    if found.expires_at is None:
        raise AssertionError("it must keep its expiry")
    near(found.expires_at, found.run_at + timedelta(hours=2), "expires_at of the one that was due")
    check(found.run_at >= found.created_at + timedelta(minutes=55), f"it's due when it's unblocked, not at {found.run_at}")
    found = await expect_state(store, late.id, JobState.SCHEDULED)
    if found.expires_at is None:
        raise AssertionError("it must keep its expiry")
    near(found.expires_at, found.run_at + timedelta(hours=2), "expires_at of the one that is due later")


@subject()
async def in_a_transaction(harness: Harness) -> None:
    """Nobody sees it before the commit, nor does a rollback leave anything; its blocker can still end."""
    store, second = harness.store, await harness.second_store()
    blocker = await start_blocker(second)
    new, undone = after(job("waits"), blocker.id), after(job("waits"), blocker.id)
    with rolled_back():
        async with store.transaction() as transaction:
            await transaction.insert([undone])
            raise OnPurposeError
    equal(list(await store.fetch([undone.id])), [None], "after the rollback")
    equal(await waiting_for(store, blocker.id), [], "who waits after the rollback")
    async with store.transaction() as transaction:
        await transaction.insert([new])
        equal(await waiting_for(second, blocker.id), [], "who waits before the commit")
    await expect_state(second, new.id, JobState.BLOCKED)
    await complete(second, blocker)
    await expect_state(second, new.id, JobState.READY)


@subject(Capability.LOCKS_ROWS)
async def a_blocker_that_is_waited_for_can_only_end_after_the_commit(harness: Harness) -> None:
    """Its row is locked, marked or not: its end comes before the new job, which sees it, or after, and tells it."""
    store, second = harness.store, await harness.second_store()
    for waited_for_before in (False, True):
        blocker = await start_blocker(second)
        if waited_for_before:
            await second.insert([after(job("before"), blocker.id)])
        new = after(job("waits"), blocker.id)
        ending = ends_well(blocker)
        async with store.transaction() as transaction:
            await transaction.insert([new])
            (result,) = await second.settle([ending])
            check(result.busy, f"the end of a job that is being waited for must be busy, not {result!r}")
        (result,) = await second.settle([ending])
        equal((result.lost, result.busy), (None, False), "the result after the commit")
        await expect_state(second, new.id, JobState.READY)


@subject()
async def while_its_blocker_ends(harness: Harness) -> None:
    """Jobs that are stored at the moment at which their blocker ends, or goes on, see that or are told: none is left."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    for round_number in range(6):
        blocker = (await start_chain(store, lease_id, 1, job("blocker")))[0]
        following = job("next")
        goes_on = settlement(blocker, SettlementKind.CONTINUED, next=following)
        ending = goes_on if round_number % 2 else ends_well(blocker)
        new = [after(job("waits"), blocker.id) for _ in range(4)]

        async def settle(ending: Settlement = ending) -> None:
            while (await settle_one(second, ending)).busy:
                await anyio.lowlevel.checkpoint()

        async def insert(each: NewJob) -> None:
            for _ in range(100):
                try:
                    await store.insert([each])
                except StoreContended:
                    continue
                return

        async with anyio.create_task_group() as group:
            for each in new:
                group.start_soon(insert, each)
            group.start_soon(settle)
        if ending is goes_on:
            await complete(store, await claim_one(store, lease_id, "next"))
        for each in new:
            await expect_state(store, each.id, JobState.READY)


@subject(Capability.LOCKS_ROWS)
async def a_locked_blocker_is_contended(harness: Harness) -> None:
    """Somebody's lock on the row of a blocker is waited for, briefly; then nothing was stored, and a transaction goes on."""
    store = harness.store
    blocker = await start_blocker(store)
    new, before = after(job("waits"), blocker.id), job("before")
    async with harness.locked(blocker.id):
        await raises(StoreContended, store.insert([new]), "an insert that waits for a locked job")
        async with store.transaction() as transaction:
            await transaction.insert([before])
            await raises(StoreContended, transaction.insert([new]), "the same in a transaction")
    await expect_state(store, before.id, JobState.READY)
    equal(list(await store.fetch([new.id])), [None], "the job that was refused")
    await store.insert([new])
    await expect_state(store, new.id, JobState.BLOCKED)


@subject()
async def waits_for_one_that_failed_and_was_retried(harness: Harness) -> None:
    """That somebody was told of the failure is past: the chain is open again, and its next end is the one that counts."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    await insert_one(store, after(job("told"), blocker.id))
    await fail(store, blocker)
    await tend_all(store)
    equal(list(await store.retry([blocker.id])), [Changed.DONE], "the retry")
    needs, takes = after(job("needs"), blocker.id), settled_after(job("takes"), blocker.id)
    await store.insert([needs, takes])
    await tend_all(store)
    for each in (needs, takes):
        equal((await expect_state(store, each.id, JobState.BLOCKED)).open_blockers, 1, "open blockers")
    await complete(store, await claim_one(store, lease_id, "blocker"), b"2")
    for each in (needs, takes):
        claimed = await claim_one(store, lease_id, each.type)
        equal(told(claimed), [(blocker.id, ChainEnd.COMPLETED, b"2")], "what it's told")
