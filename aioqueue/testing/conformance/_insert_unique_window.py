"""The cases of `Store.insert` about unique keys that are kept for a while, though their chain completes sooner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import (
    FINISHED,
    REPLACE,
    WINDOW,
    duplicate,
    expect_created,
    expect_held,
    expect_replaced,
)
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    claim_one,
    end_as,
    equal,
    insert_one,
    job,
    next_step,
    rolled_back,
    settlement,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Inserted

__all__ = ["subject"]

subject = Subject("unique_window")

COMPLETED = SettlementKind.COMPLETED
REPLACE_WITHIN = Unique(window=HOUR, on_conflict="replace")
RAISE_WITHIN = Unique(window=HOUR, on_conflict="raise")


@subject()
async def what_has_completed_counts(harness: Harness) -> None:
    """For calls with a window, whatever they'd do with a holder, until the holder's own window ends; for no others."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=WINDOW))
    await complete(store, await next_step(store, claimed, job("next")))
    await expect_held(store, job(key="k", unique=Unique(window=10 * HOUR)), claimed.id, "within its window")
    await expect_held(store, job(key="k", unique=REPLACE_WITHIN), claimed.id, "that would replace a waiting one")
    equal((await duplicate(store, job(key="k", unique=RAISE_WITHIN), job())).chain_id, claimed.id, "the chain that has the key")
    many = await store.insert([job(key=key, unique=WINDOW, aliases=("a",)) for key in ("l", "k", "k")])
    equal([each.id == claimed.id for each in many], [False, True, True], "several at once")
    plain = await expect_created(store, job(key="k", unique=FINISHED), "without a window")
    await store.delete([plain])
    await harness.age(HOUR + 600)
    await expect_created(store, job(key="k", unique=WINDOW), "after its window")


@subject()
async def no_other_end_counts(harness: Harness) -> None:
    """What has failed, was cancelled or deleted frees its key at once, and so does what was inserted without a window."""
    store = harness.store
    for kind in (SettlementKind.FAILED, SettlementKind.CANCELLED):
        await end_as(store, job(key="k", unique=WINDOW), kind)
    await store.delete([await end_as(store, job(key="k", unique=WINDOW), COMPLETED)])
    await harness.erase(await end_as(store, job(key="k", unique=WINDOW), COMPLETED))
    await end_as(store, job(key="k", unique=FINISHED), COMPLETED)
    await expect_created(store, job(key="k", unique=WINDOW), "after all of them")


@subject()
async def it_counts_from_the_insert(harness: Harness) -> None:
    """Or from the last time that it was replaced; a chain that takes longer than its window frees its key with its end."""
    store = harness.store
    long, debounced = [await insert_one(store, job(key=key, unique=WINDOW)) for key in ("long", "debounced")]
    await harness.age(HOUR - 600)
    await expect_replaced(store, job(key="debounced", unique=REPLACE_WITHIN), debounced, "near its end")
    await harness.age(1200)
    await expect_held(store, job(key="long", unique=WINDOW), long, "while it's unfinished, though its window is over")
    lease_id = await store.open_lease("w", HOUR)
    for _ in range(2):
        await complete(store, await claim_one(store, lease_id))
    await expect_created(store, job(key="long", unique=WINDOW), "after its end")
    await expect_held(store, job(key="debounced", unique=WINDOW), debounced, "after the end of the one that was replaced")


@subject()
async def a_replacement_without_one_leaves_it(harness: Harness) -> None:
    """In place it's still the chain's; where the key was taken over it's that of the one before, if that completes."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await insert_one(store, job(key="k", unique=WINDOW))
    await expect_replaced(store, job(key="k", unique=REPLACE), first, "without a window")
    await complete(store, await claim_one(store, lease_id))
    await expect_held(store, job(key="k", unique=WINDOW), first, "within the window of the one that was replaced")
    old = await start_one(store, lease_id, job(key="l", unique=WINDOW))
    new = await expect_created(store, job(key="l", unique=REPLACE), "while the holder is running")
    await complete(store, old)
    await expect_held(store, job(key="l", unique=WINDOW), new, "while the one that took the key over waits")
    await complete(store, await claim_one(store, lease_id))
    await expect_held(store, job(key="l", unique=WINDOW), old.id, "within the window of the one before it")
    await harness.age(HOUR + 600)
    for key in ("k", "l"):
        await expect_created(store, job(key=key, unique=WINDOW), "after the window")


@subject()
async def of_one_that_took_the_key_over(harness: Harness) -> None:
    """The window is the new chain's then, and whether the old one completes is of no concern."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old = await start_one(store, lease_id, job(key="k", unique=WINDOW))
    new = await expect_created(store, job(key="k", unique=REPLACE_WITHIN), "while the holder is running")
    await complete(store, old)
    await written(store, settlement(await claim_one(store, lease_id), SettlementKind.FAILED))
    equal(list(await store.retry([new])), [Changed.DONE], "a retry")
    await complete(store, await claim_one(store, lease_id))
    await expect_held(store, job(key="k", unique=WINDOW), new, "after it has completed")


@subject()
async def a_retry_looks_at_none(harness: Harness) -> None:
    """An operator's retry takes a key that only a window keeps, and what's retried holds it as any."""
    store = harness.store
    failed = await end_as(store, job(key="k", unique=WINDOW), SettlementKind.FAILED)
    await end_as(store, job(key="k", unique=WINDOW), COMPLETED)
    equal(list(await store.retry([failed])), [Changed.DONE], "a retry within the window of another")
    await expect_held(store, job(key="k", unique=FINISHED), failed, "after the retry")


@subject()
async def of_a_job_and_its_child(harness: Harness) -> None:
    """A job that completes keeps its key from its own child, if both have a window."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=WINDOW))
    within, without = job(key="k", unique=WINDOW), job(key="k", unique=REPLACE)
    await written(store, settlement(claimed, COMPLETED, output=b"1", children=(within, without)))
    found = await store.fetch([within.id, without.id])
    equal([each and each.id for each in found], [None, without.id], "the children that were stored")


@subject()
async def a_rollback_leaves_none(harness: Harness) -> None:
    """A window that wasn't committed keeps nothing; one of a transaction counts in it."""
    store = harness.store
    first = await end_as(store, job(key="k", unique=WINDOW), COMPLETED)
    await harness.age(HOUR + 600)
    with rolled_back():
        async with store.transaction() as transaction:
            new = job(key="k", unique=WINDOW)
            results = await transaction.insert([new, job(key="k", unique=WINDOW)])
            equal([each.id for each in results], [new.id, new.id], "the ids")
            raise OnPurposeError
    again = await end_as(store, job(key="k", unique=WINDOW), COMPLETED)
    await store.delete([first])
    await expect_held(store, job(key="k", unique=WINDOW), again, "within the window of the second")


@subject()
async def one_job_for_many_while_it_runs(harness: Harness) -> None:
    """Producers on several connections, while a worker claims and completes: one job for each key, and no error."""
    stores: Sequence[Store] = [harness.store, await harness.second_store()]
    lease_id = await harness.store.open_lease("w", HOUR)
    keys = [f"k{number}" for number in range(4)]
    results: dict[str, list[Inserted]] = {key: [] for key in keys}
    done: list[UUID] = []

    async def produce(number: int) -> None:
        for key in keys if number % 2 else keys[::-1]:
            results[key].extend(await stores[number % 2].insert([job(key=key, unique=WINDOW)]))

    async def work() -> None:
        while len(done) < len(keys):
            for claimed in await harness.store.claim(lease_id, ["a"], 1):
                await complete(harness.store, claimed)
                done.append(claimed.id)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        for number in range(6):
            group.start_soon(produce, number)
    for key, given in results.items():
        equal((len({each.id for each in given}), sum(each.created for each in given)), (1, 1), f"ids and jobs of {key!r}")
    equal(list(await harness.store.claim(lease_id, ["a"], 10)), [], "what is left to do")
