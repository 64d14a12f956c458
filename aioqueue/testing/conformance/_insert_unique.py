"""The cases of `Store.insert` about unique keys: until when they're held, who says so, and ids that callers chose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import DuplicateJob, WrongJobType
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import FINISHED, RAISE, STARTED, duplicate, expect_created, expect_held
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    expect_state,
    insert_one,
    job,
    raises,
    settlement,
    snapshot,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import ending
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, SettlementKind

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("unique")


@subject()
async def until_started_is_free_with_the_first_claim(harness: Harness) -> None:
    """Held while it's scheduled and ready; not from the first claim on, nor between attempts, nor when it was given back."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    first = await insert_one(store, job(key="k", unique=STARTED, delay=HOUR))
    await expect_held(store, job(key="k", unique=STARTED), first, "while it's scheduled")
    await harness.age(HOUR + 600)
    await expect_held(store, job(key="k", unique=FINISHED), first, "while it's ready")
    claimed = await claim_one(store, lease_id)
    second = await expect_created(store, job(key="k", unique=STARTED, delay=10 * HOUR), "once it's claimed")
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=0))
    await expect_held(store, job(key="k", unique=STARTED), second, "while the first waits for its next attempt")
    await store.delete([second])
    third = await expect_created(store, job(key="k", unique=STARTED, delay=10 * HOUR), "between attempts")
    await store.delete([third])
    await store.release(lease_id, [(await claim_one(store, lease_id)).claim])
    await expect_created(store, job(key="k", unique=FINISHED, delay=10 * HOUR), "after it was given back")
    await written(store, settlement(await claim_one(store, lease_id), SettlementKind.FAILED))
    equal(list(await store.retry([first])), [Changed.DONE], "a retry, while another holds the key")


@subject()
async def until_started_never_comes_back(harness: Harness) -> None:
    """Not with the chain's next step, and not with a retry of one that was never started."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=STARTED))
    following = job("next")
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=following))
    equal((await snapshot(store, following.id)).key, "k", "the key of the next step, as a label")
    second = await expect_created(store, job(key="k", unique=STARTED), "while the chain goes on")
    await store.end([ending(second, SettlementKind.FAILED)])
    third = await expect_created(store, job(key="k", unique=FINISHED), "after the end of one that was never started")
    equal(list(await store.retry([second])), [Changed.DONE], "a retry of one that was never started")
    await store.end([ending(third, SettlementKind.FAILED)])
    await expect_created(store, job(key="k", unique=FINISHED), "while what was retried waits")


@subject()
async def a_conflict_that_raises(harness: Harness) -> None:
    """`DuplicateJob` names the chain, and nothing of the batch is stored; a transaction goes on as it was before the call."""
    store = harness.store
    holder = await insert_one(store, job(key="k", unique=FINISHED))
    wanted, other, before = job(key="k", unique=RAISE), job("other"), job("before")
    equal((await duplicate(store, wanted, other)).chain_id, holder, "the chain that has the key")
    async with store.transaction() as transaction:
        await transaction.insert([before])
        await raises(DuplicateJob, transaction.insert([other, wanted]), "an insert in a transaction")
        equal(list(await transaction.insert([other])), [Inserted(other.id, created=True)], "an insert after it")
    await expect_state(store, before.id, JobState.READY)
    twice = job(key="l", unique=RAISE)
    equal((await duplicate(store, job(key="l", unique=RAISE), twice)).chain_id, twice.id, "of two in one batch")
    await expect_created(store, twice, "with a key that nobody holds")


@subject()
async def each_for_itself(harness: Harness) -> None:
    """With `apart`, what is refused says so in its own result, and the others are stored."""
    store = harness.store
    holder = await insert_one(store, job(key="k", unique=FINISHED))
    chosen = await insert_one(store, job("other", chosen_id=True))
    plain, first, second = job(), job(key="l", unique=FINISHED), job(key="l", unique=RAISE)
    wanted, wrong, again = job(key="k", unique=RAISE), job(id=chosen, chosen_id=True), job(key="k", unique=FINISHED)
    results = await store.insert([wanted, plain, first, wrong, second, again], apart=True)
    equal([each.created for each in results], [False, True, True, False, False, False], "what was created")
    kinds = [None if each.refused is None else type(each.refused) for each in results]
    equal(kinds, [DuplicateJob, None, None, WrongJobType, DuplicateJob, None], "what was refused")
    chains = [each.refused.chain_id for each in results if isinstance(each.refused, DuplicateJob)]
    equal(chains, [holder, first.id], "the chains that have the keys")
    equal(results[5].id, holder, "who holds the key of the last one")
    found = await store.fetch([wanted.id, plain.id, first.id, second.id])
    equal([each is not None for each in found], [False, True, True, False], "what is stored")


@subject()
async def a_chosen_id(harness: Harness) -> None:
    """The second one is the job that is there, live or finished, whatever it's given, before anybody looks at its key."""
    store = harness.store
    live = await expect_created(store, job(chosen_id=True, key="k", unique=FINISHED, payload=b'{"n":1}'), "of a new id")
    done = await end_as(store, job(chosen_id=True), SettlementKind.COMPLETED)
    await insert_one(store, job(key="other", unique=FINISHED))
    for job_id in (live, done):
        before = await snapshot(store, job_id)
        for unique in (None, FINISHED, RAISE):
            again = job(id=job_id, chosen_id=True, key="other", unique=unique, payload=b'{"n":2}')
            equal(list(await store.insert([again])), [Inserted(job_id, created=False)], f"a second one, {unique!r}")
        equal(await snapshot(store, job_id), before, "the job that is there")
    twice = job(chosen_id=True)
    expected = [Inserted(twice.id, created=True), Inserted(twice.id, created=False)]
    equal(list(await store.insert([twice, replace(twice, payload=b'{"n":3}')])), expected, "two in one batch")
    async with store.transaction() as transaction:
        equal(list(await transaction.insert([twice])), [Inserted(twice.id, created=False)], "one in a transaction")


@subject()
async def a_chosen_id_of_a_chain(harness: Harness) -> None:
    """It's there as long as a step of its chain is, though the first was purged."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(chosen_id=True))
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=job("next")))
    again = job(id=claimed.id, chosen_id=True)
    equal(list(await store.insert([again])), [Inserted(claimed.id, created=False)], "while it goes on")
    await harness.erase(claimed.id)
    equal(list(await store.insert([again])), [Inserted(claimed.id, created=False)], "when its first step is gone")
    equal(list(await store.fetch([claimed.id])), [None], "the first step")


@subject()
async def a_chosen_id_of_another_type(harness: Harness) -> None:
    """It's refused with all of its batch, live or finished, unless the type is an older name of the same one."""
    store = harness.store
    for job_id in (await insert_one(store, job()), await end_as(store, job(), SettlementKind.COMPLETED)):
        other = job("other")
        await raises(WrongJobType, store.insert([other, job("b", id=job_id, chosen_id=True)]), "a chosen id of another type")
        equal(list(await store.fetch([other.id])), [None], "the rest of its batch")
        renamed = job("b", id=job_id, chosen_id=True, aliases=("a",))
        equal(list(await store.insert([renamed])), [Inserted(job_id, created=False)], "one of the type by an older name")
    one = job(chosen_id=True)
    await raises(WrongJobType, store.insert([one, job("b", id=one.id, chosen_id=True)]), "two types in one batch")


@subject()
async def many_choose_one_id(harness: Harness) -> None:
    """Of producers on several connections one stores it, and the others are told that it's there."""
    stores = [harness.store, await harness.second_store()]
    job_id, results = new_id(), list[Inserted]()

    async def produce(store: Store) -> None:
        results.extend(await store.insert([job(id=job_id, chosen_id=True)]))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(produce, stores[number % 2])
    equal({each.id for each in results}, {job_id}, "the ids")
    check(sum(each.created for each in results) == 1, f"one of them creates the job: {results!r}")
