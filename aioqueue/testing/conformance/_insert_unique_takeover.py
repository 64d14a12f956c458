"""The cases of `Store.insert` about jobs that take a unique key over from a chain that can't be replaced any more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import FINISHED, REPLACE, WINDOW, expect_created, expect_held, expect_replaced
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
    settle_one,
    settlement,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import (
    after,
    complete,
    ends_well,
    settled_after,
    start_blocker,
    tend_all,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Inserted

__all__ = ["subject"]

subject = Subject("unique_takeover")

CONTINUED = SettlementKind.CONTINUED


@subject()
async def it_waits_however_the_other_ends(harness: Harness) -> None:
    """It's stored behind the running chain, and has the key for good; no end of that one fails it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        old = await start_one(store, lease_id, job(key=kind.name, unique=FINISHED))
        new = await expect_created(store, job(key=kind.name, unique=REPLACE), "while the holder is running")
        equal((await expect_state(store, new, JobState.BLOCKED)).open_blockers, 1, "the chains that it waits for")
        equal((await waits_for(store, new), await waiting_for(store, old.id)), ([(old.id, False)], [new]), "who waits for whom")
        (found,) = await store.list_blockers(new, 10)
        check(found.settled, "it waits however the other one ends")
        await expect_held(store, job(key=kind.name, unique=FINISHED), new, "once the key was taken over")
        await written(store, settlement(old, kind, output=b"1" if kind is SettlementKind.COMPLETED else None, error=None))
        await expect_state(store, new, JobState.READY)
        if kind is SettlementKind.FAILED:
            equal(list(await store.retry([old.id])), [Changed.DONE], "a retry of the one that has no key any more")
            await expect_held(store, job(key=kind.name, unique=FINISHED), new, "after a retry of the other")
            await store.delete([old.id])
        equal((await claim_one(store, lease_id)).id, new, "what is claimed then")


@subject()
async def from_a_later_step(harness: Harness) -> None:
    """A chain that has gone on isn't replaced, though its step is waiting; the new one waits for the end of the chain."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    for following in (job("next", delay=HOUR), after(job("next"), blocker.id)):
        old = await start_one(store, lease_id, job(key="k", unique=FINISHED))
        await written(store, settlement(old, CONTINUED, next=following))
        new = await expect_created(store, job(key="k", unique=REPLACE), "while a later step waits")
        equal(await waits_for(store, new), [(old.id, False)], "what it waits for")
        if following.blockers:
            await complete(store, blocker)
        await store.run_now([old.id])
        last = await next_step(store, await claim_one(store, lease_id, "next"), job("last"))
        await expect_state(store, new, JobState.BLOCKED)
        await complete(store, last)
        claimed = await claim_one(store, lease_id)
        equal(claimed.id, new, "what is claimed when the chain has ended")
        await complete(store, claimed)


@subject()
async def what_took_a_key_over_can_be_replaced(harness: Harness) -> None:
    """By the next one, in its batch or later: it waits for what that one waits for, and still for the chain before it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old, one, other = await start_one(store, lease_id, job(key="k", unique=FINISHED)), await start_blocker(store), job("other")
    first, second = after(job(key="k", unique=REPLACE), one.id), job(key="k", unique=REPLACE, payload=b'{"n":2}')
    results = await store.insert([other, first, second])
    said = [(each.id, each.created, each.replaced) for each in results[1:]]
    equal(said, [(first.id, True, False), (first.id, False, True)], "the results")
    equal(await waits_for(store, first.id), [(old.id, False)], "what it waits for, without the blocker of the one before")
    third = settled_after(job(key="k", unique=REPLACE, payload=b'{"n":3}'), other.id)
    await expect_replaced(store, third, first.id, "once more")
    equal(await waits_for(store, first.id), [(other.id, False), (old.id, False)], "what it waits for")
    await complete(store, await claim_one(store, lease_id, "other"))
    equal((await expect_state(store, first.id, JobState.BLOCKED)).open_blockers, 1, "chains that it still waits for")
    await written(store, settlement(old, SettlementKind.FAILED, error=failure()))
    equal((await claim_one(store, lease_id)).payload, b'{"n":3}', "what is claimed in the end")


@subject()
async def it_waits_for_its_own_blockers_too(harness: Harness) -> None:
    """And fails if one of those does; those that wait for it, and for the chain before it, are told by each."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old, blocker = await start_one(store, lease_id, job(key="k", unique=FINISHED)), await start_blocker(store)
    new, waiting = after(job(key="k", unique=REPLACE), blocker.id), await insert_one(store, after(job("waits"), old.id))
    await expect_created(store, new, "while the holder is running")
    equal(await waits_for(store, new.id), [(blocker.id, False), (old.id, False)], "what it waits for")
    await complete(store, old)
    await expect_state(store, waiting, JobState.READY)
    await expect_state(store, new.id, JobState.BLOCKED)
    await written(store, settlement(blocker, SettlementKind.FAILED, error=failure()))
    await expect_state(store, new.id, JobState.FAILED)
    await expect_created(store, job(key="k", unique=FINISHED), "after the end of the one that had the key")


@subject()
async def a_chain_that_is_deleted_has_ended(harness: Harness) -> None:
    """Running or waiting, also with all that wait for it: the new one goes on at once, and has the key."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for cascade, runs in ((False, True), (False, False), (True, True), (True, False)):
        key = f"{cascade=} {runs=}"
        old = await start_one(store, lease_id, job(key=key, unique=FINISHED))
        if not runs:
            await written(store, settlement(old, CONTINUED, next=job("next", delay=HOUR)))
        new = await expect_created(store, job(key=key, unique=REPLACE), key)
        behind = await insert_one(store, after(job("behind"), new))
        equal(list(await store.delete([old.id], cascade=cascade)), [Changed.DONE], f"a delete, {key}")
        await expect_held(store, job(key=key, unique=FINISHED), new, "after it")
        equal(await store.fetch([old.id]), [None], "what is deleted")
        await expect_state(store, behind, JobState.BLOCKED)
        claimed = await claim_one(store, lease_id)
        equal(claimed.id, new, "what is claimed then")
        await complete(store, claimed)
        await expect_state(store, behind, JobState.READY)


@subject()
async def only_what_was_to_be_waited_for_keeps_a_chain(harness: Harness) -> None:
    """Others keep it from being deleted, or go with it, and the new one where it waits for it for its own sake, too."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old = await start_one(store, lease_id, job(key="k", unique=FINISHED))
    new = await expect_created(store, job(key="k", unique=REPLACE), "while the holder is running")
    waits = await insert_one(store, after(job("waits"), old.id))
    equal(list(await store.delete([old.id])), [Changed.BLOCKS], "while another waits for it")
    await expect_state(store, new, JobState.BLOCKED)
    equal(list(await store.delete([old.id], cascade=True)), [Changed.DONE], "with that one")
    await tend_all(store)
    equal([each is not None for each in await store.fetch([old.id, waits, new])], [False, False, True], "what is left")
    old = await claim_one(store, lease_id)
    equal(old.id, new, "what is claimed then")
    both = settled_after(job(key="k", unique=REPLACE), old.id)
    await expect_created(store, both, "that waits for the holder, too")
    equal(list(await store.delete([old.id])), [Changed.BLOCKS], "while the new one waits for it for its own sake")
    equal(list(await store.delete([old.id], cascade=True)), [Changed.DONE], "with the new one")
    await tend_all(store)
    equal(list(await store.fetch([both.id])), [None], "what went with it")
    old = await start_one(store, lease_id, job(key="k", unique=FINISHED))
    new = await expect_created(store, job(key="k", unique=REPLACE), "while the holder is running")
    await insert_one(store, after(job("behind"), new))
    equal(list(await store.delete([old.id, new])), [Changed.DONE, Changed.BLOCKS], "with the new one, which others wait for")
    await expect_state(store, new, JobState.READY)


@subject()
async def in_a_transaction(harness: Harness) -> None:
    """What is rolled back leaves the key where it was; what is committed has taken it."""
    store = harness.store
    old = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=FINISHED))
    new = job(key="k", unique=replace(WINDOW, on_conflict="replace"))
    for keep in (False, True):
        async with store.transaction() as transaction:
            try:
                async with transaction.savepoint():
                    (result,) = await transaction.insert([new])
                    check(result.created, f"the new one must be created: {result!r}")
                    if not keep:
                        raise TimeoutError
            except TimeoutError:
                equal(list(await transaction.operations.fetch([new.id])), [None], "what is rolled back")
        await expect_held(store, job(key="k", unique=FINISHED), new.id if keep else old.id, f"after {keep=}")
    equal(await waits_for(store, new.id), [(old.id, False)], "what it waits for")
    async with store.transaction() as transaction:
        equal(list(await transaction.operations.delete([old.id])), [Changed.DONE], "a delete of the other in a transaction")
    await expect_state(store, new.id, JobState.READY)


@subject()
async def while_the_holder_ends(harness: Harness) -> None:
    """At the same moment: it waits for the end, or has found the key free; in either case it runs afterwards."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    olds = [await start_one(store, lease_id, job(key=f"k{number}", unique=FINISHED)) for number in range(8)]
    results: list[Inserted] = []

    async def take(number: int) -> None:
        results.extend(await second.insert([job(key=f"k{number}", unique=REPLACE)]))

    async with anyio.create_task_group() as group:
        for number, old in enumerate(olds):
            group.start_soon(take, number)
            group.start_soon(settle_one, store, ends_well(old) if number % 2 else settlement(old, CONTINUED, next=job("next")))
    check(all(each.created for each in results), f"each of them must be created: {results!r}")
    for claimed in await store.claim(lease_id, ["next"], 10):
        await complete(store, claimed)
    await tend_all(store)
    equal({each.id for each in await store.claim(lease_id, ["a"], 10)}, {each.id for each in results}, "what is claimed then")


@subject()
async def a_child_of_its_own_parent(harness: Harness) -> None:
    """A job that goes on may be followed by one that takes its chain's key: that waits for the end of the chain."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    parent = await start_one(store, lease_id, job(key="k", unique=FINISHED))
    child = job(key="k", unique=REPLACE)
    await written(store, settlement(parent, CONTINUED, next=job("next"), children=(child,)))
    equal(await waits_for(store, child.id), [(parent.id, False)], "what the child waits for")
    await expect_held(store, job(key="k", unique=FINISHED), child.id, "once the child has it")
    await complete(store, await claim_one(store, lease_id, "next"))
    await complete(store, await claim_one(store, lease_id))
    await expect_created(store, job(key="k", unique=FINISHED), "when all have ended")
