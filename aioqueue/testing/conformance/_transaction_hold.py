"""The cases of `StoreTransaction.hold`, `settle` and `savepoint`: what a handler does in a transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import BlockerCycle, BlockerNotFound, StoreContended, WrongJobType
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    lease_thread,
    listening,
    raises,
    refused,
    rolled_back,
    settle_one,
    settlement,
    start,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import after, complete, ends_well, start_blocker, told, waiting_for
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim, Ending, Inserted, JobState, LostReason, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, Settlement
    from aioqueue.vocabulary._store_parts import StoreTransaction

__all__ = ["holding", "savepoints"]

holding = Subject("hold")
savepoints = Subject("savepoint")


async def _hold(transaction: StoreTransaction, claimed: ClaimedJob) -> None:
    equal(await transaction.hold(claimed.claim, claimed.lease_id), None, "the answer for a claim that is held")


async def _write(transaction: StoreTransaction, what: Settlement) -> None:
    (result,) = await transaction.settle([what])
    equal((result.lost, result.busy, result.refused), (None, False, None), f"the result of {what.kind.name}")


@holding()
async def all_of_it_is_so_after_the_commit(harness: Harness) -> None:
    """The user's writes, jobs, the outcome and what it means for others: nothing is seen before, and all of it after."""
    store, second = harness.store, await harness.second_store()
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    waits, new = await insert_one(store, after(job("waits"), claimed.id)), job("new")
    async with store.transaction() as transaction:
        await transaction.execute("create table mine (a integer)")
        await _hold(transaction, claimed)
        await transaction.insert([new])
        await _write(transaction, ends_well(claimed, b"7"))
        await expect_state(second, claimed.id, JobState.RUNNING)
        await expect_state(second, waits, JobState.BLOCKED)
    equal((await expect_state(second, claimed.id, JobState.COMPLETED)).output_json, b"7", "the output")
    await expect_state(second, new.id, JobState.READY)
    claimed_one = await claim_one(second, await store.open_lease("w", HOUR), "waits")
    equal(told(claimed_one), [(claimed.id, ChainEnd.COMPLETED, b"7")], "what the one that waited is told")
    async with store.transaction() as transaction:
        equal(list(await transaction.fetch("select a from mine")), [], "the user's table")


@holding()
async def a_rollback_leaves_the_claim_as_it_was(harness: Harness) -> None:
    """Nothing of it happened: the job is running, its claim is good, and those that wait for it wait."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    waits, new, child = await insert_one(store, after(job("waits"), claimed.id)), job("next"), job("child")
    kinds = (
        ends_well(claimed),
        settlement(claimed, SettlementKind.FAILED, error=failure()),
        settlement(claimed, SettlementKind.CONTINUED, next=after(new, child.id), children=(child,)),
    )
    for what in kinds:
        with rolled_back():
            async with store.transaction() as transaction:
                await _hold(transaction, claimed)
                await _write(transaction, what)
                raise OnPurposeError
        await expect_state(store, claimed.id, JobState.RUNNING)
        await expect_state(store, waits, JobState.BLOCKED)
    equal(list(await store.fetch([new.id, child.id])), [None, None], "what belonged to it")
    equal(await waiting_for(store, child.id), [], "who waits for what never was")
    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))


@holding()
async def says_why_a_claim_isnt_held(harness: Harness) -> None:
    """Given back, deleted, ended, another claim or lease, a lease that is gone: each has its reason, and locks nothing."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    back, gone, ended, cancelled, outside, other = await start(store, lease_id, *(job() for _ in range(6)))
    await store.release(lease_id, [back.claim])
    await store.delete([gone.id])
    await complete(store, ended)
    await written(store, settlement(cancelled, SettlementKind.CANCELLED))
    await store.end([Ending(id=outside.id, kind=SettlementKind.COMPLETED, output=b"1")])
    ghost = await store.open_lease("ghost", HOUR)
    haunted = await start_one(store, ghost)
    await harness.delete_lease(ghost)
    async with store.transaction() as transaction:
        expected = {
            back: LostReason.TAKEN,
            gone: LostReason.NOT_FOUND,
            ended: LostReason.COMPLETED,
            cancelled: LostReason.CANCELLED,
            outside: LostReason.COMPLETED,
            haunted: LostReason.TAKEN,
        }
        for claimed, reason in expected.items():
            equal(await transaction.hold(claimed.claim, claimed.lease_id), reason, "why it isn't held")
        equal(await transaction.hold(other.claim, lease_id + 1), LostReason.TAKEN, "by another lease")
        equal(await transaction.hold(Claim(other.id, other.claims + 1), lease_id), LostReason.TAKEN, "by another claim")
        equal(await transaction.hold(Claim(new_id(), 1), lease_id), LostReason.NOT_FOUND, "of an unknown job")
        await _hold(transaction, other)
        await _write(transaction, ends_well(other))
    await expect_state(store, other.id, JobState.COMPLETED)


@holding()
async def a_lease_that_has_run_out_but_is_there(harness: Harness) -> None:
    """As long as nobody has taken it, its jobs can be held and written."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    await harness.age(2 * HOUR)
    async with store.transaction() as transaction:
        await _hold(transaction, claimed)
        await _write(transaction, ends_well(claimed))
    await expect_state(store, claimed.id, JobState.COMPLETED)


@holding(Capability.LOCKS_ROWS)
async def from_then_on_the_lock_is_the_fence(harness: Harness) -> None:
    """Though the lease is taken meanwhile nobody else writes the job, or gives it away; its own transaction does."""
    store, second = harness.store, await harness.second_store()
    claimed, neighbour = await start(store, await store.open_lease("w", HOUR), job(), job())
    async with store.transaction() as transaction:
        await _hold(transaction, claimed)
        await harness.delete_lease(claimed.lease_id)
        taken = await second.take_expired(10)
        check(neighbour.id in [each.id for each in taken], "the lease's other jobs must be recovered")
        late = settlement(claimed, SettlementKind.RETRIED, error=failure())
        check((await settle_one(second, late, orphaned=True)).busy, "an orphan that is held must be busy")
        await _write(transaction, ends_well(claimed, b"7"))
    equal((await expect_state(second, claimed.id, JobState.COMPLETED)).output_json, b"7", "the output")
    await refused(second, late, LostReason.COMPLETED, orphaned=True)


@holding(Capability.LOCKS_ROWS)
async def its_lease_isnt_locked(harness: Harness) -> None:
    """The lease can be renewed, and others can recover what they find, while jobs of it are held."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    async with store.transaction() as transaction, lease_thread(store) as thread:
        await _hold(transaction, claimed)
        renewal = await thread.renew(lease_id, held=[claimed.claim])
        equal((renewal.valid, len(renewal.lost)), (True, 0), "a renewal meanwhile")
        await _write(transaction, ends_well(claimed))


@holding(Capability.LOCKS_ROWS)
async def others_wait_briefly(harness: Harness) -> None:
    """Who ends a job that is held, or holds it too, is told that it's contended; its worker's own write is busy."""
    store, second = harness.store, await harness.second_store()
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    ending = Ending(id=claimed.id, kind=SettlementKind.COMPLETED, output=b"8")
    async with store.transaction() as transaction:
        await _hold(transaction, claimed)
        await raises(StoreContended, second.end([ending]), "an ending from outside")
        check((await settle_one(second, ends_well(claimed))).busy, "a settlement beside the transaction must be busy")
        await _write(transaction, ends_well(claimed, b"7"))
    equal(list(await second.end([ending])), [False], "an ending after the commit")
    locked = await start_one(store, claimed.lease_id)
    async with harness.locked(locked.id), store.transaction() as transaction:
        await raises(StoreContended, transaction.hold(locked.claim, locked.lease_id), "a hold of a locked row")


@holding()
async def the_outcome_may_go_on_and_have_children(harness: Harness) -> None:
    """A chain that goes on behind others, with children, in the transaction that has written something."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(key="k", unique=Unique()))
    child, mine = job("child"), job("mine")
    new = after(job("next"), child.id, mine.id)
    async with store.transaction() as transaction:
        await _hold(transaction, claimed)
        await transaction.insert([mine])
        await _write(transaction, settlement(claimed, SettlementKind.CONTINUED, next=new, children=(child,)))
    found = await expect_state(store, new.id, JobState.BLOCKED)
    equal((found.open_blockers, found.key, found.chain_id), (2, "k", claimed.id), "open blockers, key, chain")
    equal(list(await store.insert([job(key="k", unique=Unique())])), [Inserted(claimed.id, created=False)], "who has the key")
    await complete(store, await claim_one(store, lease_id, "child"))
    await complete(store, await claim_one(store, lease_id, "mine"))
    await expect_state(store, new.id, JobState.READY)


@holding()
async def what_is_refused_leaves_the_transaction_as_it_was(harness: Harness) -> None:
    """BlockerNotFound, BlockerCycle and WrongJobType: nothing of that settlement is written, and another one can be."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    before, child = job("before"), job("child")
    async with store.transaction() as transaction:
        await transaction.insert([before])
        await _hold(transaction, claimed)
        for chain_id, error in ((new_id(), BlockerNotFound), (claimed.id, BlockerCycle)):
            what = settlement(claimed, SettlementKind.CONTINUED, next=after(job("next"), chain_id), children=(child,))
            (result,) = await transaction.settle([what])
            check(isinstance(result.refused, error), f"the result must say {error.__name__}: {result!r}")
        wrong = job("child", id=before.id, chosen_id=True)
        (result,) = await transaction.settle([settlement(claimed, SettlementKind.FAILED, children=(child, wrong))])
        check(isinstance(result.refused, WrongJobType), f"the result must say WrongJobType: {result!r}")
        await _write(transaction, settlement(claimed, SettlementKind.FAILED, error=failure()))
    await expect_state(store, claimed.id, JobState.FAILED)
    await expect_state(store, before.id, JobState.READY)
    equal(list(await store.fetch([child.id])), [None], "a child of what was refused")


@holding()
async def repeating_it_beside_the_transaction(harness: Harness) -> None:
    """After an unclear commit the settlement is repeated without the transaction: it answers as it did, if it was written."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    child = job("child")
    what = settlement(claimed, SettlementKind.COMPLETED, output=b"7", children=(child,))
    async with store.transaction() as transaction:
        await _hold(transaction, claimed)
        await _write(transaction, what)
    await written(store, what)
    await expect_state(store, child.id, JobState.READY)


@holding(Capability.NAMES_TYPES)
async def listeners_hear_of_it_after_the_commit(harness: Harness) -> None:
    """Of those that can run now, and never of what was rolled back."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    await insert_one(store, after(job("waits"), claimed.id))
    with listening(store) as heard:
        with rolled_back():
            async with store.transaction() as transaction:
                await _hold(transaction, claimed)
                await _write(transaction, settlement(claimed, SettlementKind.CONTINUED, next=job("undone")))
                raise OnPurposeError
        async with store.transaction() as transaction:
            await _hold(transaction, claimed)
            await _write(transaction, ends_well(claimed))
            await anyio.lowlevel.checkpoint()
            check("waits" not in heard.named(), "nothing may be told before the commit")
        await heard.wait_for_type("waits")
        check("undone" not in heard.named(), "nothing may be told of what was rolled back")


# -- savepoints -----------------------------------------------------------------------------------------------------


@savepoints()
async def a_block_that_raises_is_undone_alone(harness: Harness) -> None:
    """What came before and after it is committed; its jobs can be inserted again, their keys are free."""
    store = harness.store
    before, undone, again = job("before"), job("undone", key="k", unique=Unique()), job("undone", key="k", unique=Unique())
    async with store.transaction() as transaction:
        await transaction.execute("create table mine (a integer)")
        await transaction.insert([before])
        with rolled_back():
            async with transaction.savepoint():
                await transaction.execute("insert into mine values (1)")
                equal([each.created for each in await transaction.insert([undone])], [True], "created")
                raise OnPurposeError
        equal([each.created for each in await transaction.insert([undone])], [True], "created again")
        with rolled_back():
            async with transaction.savepoint():
                raise OnPurposeError
        equal(list(await transaction.fetch("select a from mine")), [], "the user's rows of a block that was undone")
    for each in (before, undone):
        await expect_state(store, each.id, JobState.READY)
    equal(list(await store.insert([again])), [Inserted(undone.id, created=False)], "who has the key")


@savepoints()
async def a_block_that_ends_is_part_of_the_transaction(harness: Harness) -> None:
    """It's committed with it, and rolled back with it; blocks may stand in blocks."""
    store = harness.store
    kept, inner, undone = job(), job(), job()
    async with store.transaction() as transaction, transaction.savepoint():
        await transaction.insert([kept])
        with rolled_back():
            async with transaction.savepoint():
                await transaction.insert([undone])
                async with transaction.savepoint():
                    await transaction.insert([job("innermost")])
                raise OnPurposeError
        async with transaction.savepoint():
            await transaction.insert([inner])
    equal([each and each.id for each in await store.fetch([kept.id, inner.id, undone.id])], [kept.id, inner.id, None], "stored")
    equal(list(await store.claim(await store.open_lease("w", HOUR), ["innermost"], 1)), [], "what was in an undone block")
    late = job()
    with rolled_back():
        async with store.transaction() as transaction:
            async with transaction.savepoint():
                await transaction.insert([late])
            raise OnPurposeError
    equal(list(await store.fetch([late.id])), [None], "after the rollback of the transaction")


@savepoints()
async def a_block_that_is_cancelled(harness: Harness) -> None:
    """It's undone, and the transaction goes on."""
    store = harness.store
    before, undone, behind = job(), job(), job()
    async with store.transaction() as transaction:
        await transaction.insert([before])
        with anyio.CancelScope() as scope:
            async with transaction.savepoint():
                await transaction.insert([undone])
                scope.cancel()
                await anyio.sleep_forever()
        check(scope.cancelled_caught, "the cancellation must come out of the block")
        await transaction.insert([behind])
    found = await store.fetch([before.id, undone.id, behind.id])
    equal([each and each.id for each in found], [before.id, None, behind.id], "what was stored")


@savepoints()
async def after_a_statement_that_fails(harness: Harness) -> None:
    """An error of the user's own in a block doesn't take the transaction with it."""
    store = harness.store
    new = job()
    said: list[Exception] = []
    async with store.transaction() as transaction:
        try:
            async with transaction.savepoint():
                try:
                    await transaction.execute("insert into there_is_no_such_table values (1)")
                except Exception as error:
                    said.append(error)
                    raise
        except Exception as error:  # noqa: BLE001 - the driver's own, of which the cases know nothing
            check([error] == said, f"what comes out of the block must be the statement's error: {error!r}, {said!r}")
        check(len(said) == 1, "the statement must fail")
        await transaction.insert([new])
    await expect_state(store, new.id, JobState.READY)


@savepoints()
async def an_outcome_in_a_block_that_is_undone(harness: Harness) -> None:
    """The job is as it was for the rest of the transaction, still held; those that wait for it weren't told."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), claimed.id))
    async with store.transaction() as transaction:
        await _hold(transaction, claimed)
        with rolled_back():
            async with transaction.savepoint():
                new = after(job("next"), blocker.id)
                await _write(transaction, settlement(claimed, SettlementKind.CONTINUED, next=new))
                await transaction.end([Ending(id=blocker.id, kind=SettlementKind.FAILED, error=failure())])
                raise OnPurposeError
        await _write(transaction, ends_well(claimed))
    await expect_state(store, claimed.id, JobState.COMPLETED)
    await expect_state(store, waits, JobState.READY)
    await expect_state(store, blocker.id, JobState.RUNNING)
    equal(await waiting_for(store, blocker.id), [], "who waits for the one that wasn't ended")
