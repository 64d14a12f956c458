"""The cases of `Store.cancel`: what happens meanwhile, locked rows, and in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import StoreContended
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    check,
    equal,
    expect_state,
    insert_one,
    job,
    lease_thread,
    listening,
    raises,
    rolled_back,
    settle_one,
    settlement,
    snapshot,
    start_one,
    states_of,
)
from aioqueue.testing.conformance._waiting import ends_well, settled_after, tend_all
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, Settlement

__all__ = ["subject"]

subject = Subject("cancel")

CANCELLED, CANCELLING = Cancellation.CANCELLED, Cancellation.CANCELLING


@subject()
async def in_a_transaction(harness: Harness) -> None:
    """It's so once the transaction commits, for those that wait as well; a rollback leaves all as it was."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    claimed, waits = await start_one(store, lease_id), await insert_one(store, job("waits"))
    runs = await insert_one(store, settled_after(job("runs"), waits))
    ids, before = (claimed.id, waits, runs), [JobState.RUNNING, JobState.READY, JobState.BLOCKED]
    with rolled_back():
        async with store.transaction() as transaction:
            answers = await transaction.operations.cancel([claimed.id, waits], "no")
            equal(list(answers), [CANCELLING, CANCELLED], "the answers")
            equal(await states_of(transaction.operations, waits), [JobState.CANCELLED], "the state within it")
            raise OnPurposeError
    equal(await states_of(store, *ids), before, "the states after a rollback")
    equal((await snapshot(store, claimed.id)).cancel_reason, None, "the request after a rollback")
    async with store.transaction() as transaction:
        await transaction.operations.cancel([claimed.id, waits], "no")
        equal(await states_of(second, *ids), before, "the states before the commit")
    equal(await states_of(second, *ids), [JobState.RUNNING, JobState.CANCELLED, JobState.READY], "the states after it")
    async with lease_thread(store) as thread:
        equal(dict((await thread.renew(lease_id)).asked_to_stop), {claimed.claim: "no"}, "what its worker is asked")


@subject()
async def jobs_of_the_same_transaction(harness: Harness) -> None:
    """They can be cancelled before anybody else sees them; a nested block undoes what was asked in it."""
    store = harness.store
    gone, kept = job(), job()
    async with store.transaction() as transaction:
        await transaction.insert([gone, kept])
        with rolled_back():
            async with transaction.savepoint():
                equal(list(await transaction.operations.cancel([kept.id], "no")), [CANCELLED], "in a nested block")
                raise OnPurposeError
        equal(list(await transaction.operations.cancel([gone.id], "no")), [CANCELLED], "the answer")
    equal(await states_of(store, gone.id, kept.id), [JobState.CANCELLED, JobState.READY], "the states after the commit")


@subject(Capability.LOCKS_ROWS)
async def a_row_that_stays_locked(harness: Harness) -> None:
    """The request is stored beside it, its neighbours are cancelled at once, and `tend` goes on with it: it never starts."""
    store = harness.store
    locked, neighbour = await insert_one(store, job()), await insert_one(store, job())
    async with harness.locked(locked):
        equal(list(await store.cancel([locked, neighbour], "first")), [CANCELLING, CANCELLED], "the answers")
        equal(list(await store.cancel([locked], "second")), [CANCELLING], "another one's answer")
        equal(await states_of(store, locked, neighbour), [JobState.READY, JobState.CANCELLED], "while it's locked")
        await store.tend(10)
        equal(await states_of(store, locked), [JobState.READY], "tending while it's locked")
    with listening(store, finished=True) as heard:
        await tend_all(store)
        await heard.wait_for_end(locked)
    found = await expect_state(store, locked, JobState.CANCELLED)
    equal([(each.type, each.message) for each in found.errors], [("Cancelled", "first")], "its history")
    await store.retry([locked])
    await tend_all(store)
    await expect_state(store, locked, JobState.READY)


@subject(Capability.LOCKS_ROWS)
async def a_running_row_that_stays_locked(harness: Harness) -> None:
    """Its worker is told at once, and hears of the request at each renewal, before and after `tend` has gone on."""
    store, second = harness.store, await harness.second_store()
    with listening(store) as heard:
        lease_id = await store.open_lease("w", HOUR)
        claimed = await start_one(store, lease_id)
        async with lease_thread(store) as thread:
            async with harness.locked(claimed.id):
                equal(list(await second.cancel([claimed.id], "enough")), [CANCELLING], "the answer")
                if Capability.TELLS_LEASES in harness.capabilities:
                    await heard.wait(lambda each: lease_id in each.leases, "the lease whose job is asked to end")
                renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
                equal(dict(renewal.asked_to_stop), {claimed.claim: "enough"}, "what is asked while it's locked")
                equal(dict(renewal.lost), {}, "what is lost")
            await tend_all(store)
            equal((await expect_state(store, claimed.id, JobState.RUNNING)).cancel_reason, "enough", "the request")
            renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
            equal(dict(renewal.asked_to_stop), {claimed.claim: "enough"}, "what is asked later")
    result = await settle_one(store, settlement(claimed, SettlementKind.RETRIED))
    equal((result.lost, result.cancelled), (None, True), "lost and cancelled of a retry")


@subject(Capability.LOCKS_ROWS)
async def a_transaction_that_holds_it(harness: Harness) -> None:
    """Whoever has the job in a transaction hears of it meanwhile, and what it has written stands; nothing of it is left."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    async with lease_thread(store) as thread, store.transaction() as transaction:
        equal(await transaction.hold(claimed.claim, lease_id), None, "the answer for a claim that is held")
        equal(list(await store.cancel([claimed.id], "enough")), [CANCELLING], "the answer")
        renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
        equal(dict(renewal.asked_to_stop), {claimed.claim: "enough"}, "what is asked while it's held")
        await transaction.settle([ends_well(claimed)])
    await expect_state(store, claimed.id, JobState.COMPLETED)
    equal(list(await store.cancel([claimed.id], "late")), [Cancellation.FINISHED], "another request")
    await tend_all(store)
    await expect_state(store, claimed.id, JobState.COMPLETED)


@subject(Capability.LOCKS_ROWS)
async def in_a_transaction_a_locked_row_is_contended(harness: Harness) -> None:
    """There the request can't be told before the rest; nothing of the call is written, and the transaction goes on."""
    store = harness.store
    locked, neighbour = await insert_one(store, job()), await insert_one(store, job())
    async with harness.locked(locked):
        async with store.transaction() as transaction:
            with rolled_back():
                async with transaction.savepoint():
                    call = transaction.operations.cancel([neighbour, locked], "no")
                    await raises(StoreContended, call, "a locked row in a transaction")
                    raise OnPurposeError
            await transaction.insert([job("after")])
        equal(await states_of(store, locked, neighbour), [JobState.READY] * 2, "the states")
    await tend_all(store)
    equal(await states_of(store, locked, neighbour), [JobState.READY] * 2, "the states later")


@subject()
async def deleting_forgets_it(harness: Harness) -> None:
    """A chain that is deleted while it's asked to end is gone, and another one with its id isn't asked."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    new = job(chosen_id=True)
    claimed = await start_one(store, lease_id, new)
    await store.cancel([claimed.id], "no")
    equal(list(await store.delete([claimed.id])), [Changed.DONE], "the result of a delete")
    equal(list(await store.cancel([claimed.id], "no")), [Cancellation.NOT_FOUND], "the answer")
    again = await start_one(store, lease_id, new)
    equal((await expect_state(store, again.id, JobState.RUNNING)).cancel_reason, None, "the request")
    await tend_all(store)
    result = await settle_one(store, settlement(again, SettlementKind.RETRIED))
    equal((result.lost, result.cancelled), (None, False), "lost and cancelled of a retry")


@subject()
async def operators_leave_it(harness: Harness) -> None:
    """What is running and asked to end can't be retried or run now; the request stays."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    await store.cancel([claimed.id], "no")
    equal(list(await store.retry([claimed.id])), [Changed.RUNNING], "a retry")
    equal(list(await store.run_now([claimed.id])), [Changed.RUNNING], "running it now")
    equal((await snapshot(store, claimed.id)).cancel_reason, "no", "the request")


@subject()
async def one_end_of_several_at_once(harness: Harness) -> None:
    """Requests beside claims and settlements of all kinds: each job ends once, as the answers say, and none is left."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    kinds = [SettlementKind.COMPLETED, SettlementKind.RETRIED, SettlementKind.FAILED, SettlementKind.RESCHEDULED]
    jobs = [job(max_attempts=100) for _ in range(12)]
    await store.insert(jobs)
    answers: dict[UUID, Cancellation] = {}

    async def ask(where: Store, job_id: UUID) -> None:
        (answers[job_id],) = await where.cancel([job_id], "no")

    async def work(claimed: list[ClaimedJob]) -> None:
        for number, each in enumerate(claimed):
            output = b"1" if kinds[number % 4] is SettlementKind.COMPLETED else None
            await _settled(store, settlement(each, kinds[number % 4], output=output, yields=True))

    async with anyio.create_task_group() as group:
        for number, new in enumerate(jobs):
            group.start_soon(ask, (store, second)[number % 2], new.id)
            if number % 4 == 3:
                group.start_soon(work, list(await store.claim(lease_id, ["a"], 4)))
    await work(list(await store.claim(lease_id, ["a"], 100)))
    await tend_all(store)
    equal(list(await store.claim(lease_id, ["a"], 100)), [], "what can still be claimed")
    for new in jobs:
        found = (await store.fetch([new.id]))[0]
        check(found is not None and found.finished_at is not None, f"a job that was asked to end must have: {found!r}")
        if answers[new.id] is CANCELLED:
            await expect_state(store, new.id, JobState.CANCELLED)


async def _settled(store: Store, what: Settlement) -> None:
    while (await settle_one(store, what)).busy:
        await anyio.lowlevel.checkpoint()
