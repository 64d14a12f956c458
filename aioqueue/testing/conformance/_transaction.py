"""The cases of `Store.transaction`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    check,
    equal,
    expect_state,
    insert_one,
    job,
    listening,
    rolled_back,
)
from aioqueue.vocabulary._job import Inserted, JobState
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("transaction")


@subject()
async def nothing_is_visible_before_the_commit(harness: Harness) -> None:
    """Jobs of an open transaction can't be seen; after it they can."""
    store, second = harness.store, await harness.second_store()
    new = [job(), job()]
    async with store.transaction() as transaction:
        results = await transaction.insert(new)
        equal(list(results), [Inserted(each.id, created=True) for each in new], "the results")
        for other in (store, second):
            equal(list(await other.fetch([new[0].id, new[1].id])), [None, None], "what others see before the commit")
            equal((await other.next_due(["a"])).job, None, "the next due before the commit")
    for new_job in new:
        await expect_state(second, new_job.id, JobState.READY)


@subject()
async def a_rollback_leaves_nothing(harness: Harness) -> None:
    """An error in the block undoes it and comes out as it is; the store goes on."""
    store = harness.store
    new = job(key="k", unique=Unique())
    with rolled_back():
        async with store.transaction() as transaction:
            await transaction.insert([new])
            raise OnPurposeError
    equal(list(await store.fetch([new.id])), [None], "the job after the rollback")
    equal(list(await store.insert([new])), [Inserted(new.id, created=True)], "an insert after the rollback")


@subject()
async def a_cancellation_leaves_nothing(harness: Harness) -> None:
    """Cancelled inside the block, it is rolled back, and its locks and connection are free again."""
    store = harness.store
    new = job(key="k", unique=Unique())
    for _ in range(5):
        with anyio.CancelScope() as scope:
            async with store.transaction() as transaction:
                await transaction.insert([new])
                scope.cancel()
                await anyio.sleep_forever()
        check(scope.cancelled_caught, "the cancellation must come out of the block")
    equal(list(await store.fetch([new.id])), [None], "the job after the cancellation")
    equal(list(await store.insert([new])), [Inserted(new.id, created=True)], "an insert after the cancellation")


@subject()
async def notifies_after_the_commit_only(harness: Harness) -> None:
    """Listeners hear of a transaction's jobs after the commit, and never of what was rolled back."""
    store = harness.store
    with listening(store) as heard:
        with rolled_back():
            async with store.transaction() as transaction:
                await transaction.insert([job("undone")])
                raise OnPurposeError
        async with store.transaction() as transaction:
            await transaction.insert([job("done")])
            await anyio.lowlevel.checkpoint()
            check("done" not in heard.named(), "nothing may be told before the commit")
        await heard.wait_for_type("done")
        check("undone" not in heard.named(), "nothing may be told of what was rolled back")


@subject()
async def runs_statements(harness: Harness) -> None:
    """The user's own statements are part of it; rows can be read by position."""
    store = harness.store
    with rolled_back():
        async with store.transaction() as transaction:
            await transaction.execute("create table mine (a integer)")
            equal(await transaction.execute("insert into mine values (1), (2)"), 2, "rows changed")
            rows = await transaction.fetch("select a from mine order by a")
            equal([row[0] for row in rows], [1, 2], "rows read by position")
            equal([row["a"] for row in rows], [1, 2], "rows read by name")
            await transaction.insert([job()])
            check(transaction.connection is not None, "the driver's connection must be there")
            raise OnPurposeError
    async with store.transaction() as transaction:
        await transaction.execute("create table mine (a integer)")
    equal((await store.next_due(["a"])).job, None, "the next due after the rollback")


@subject()
async def unique_keys(harness: Harness) -> None:
    """A key that is held by a committed job gives its id; one that the transaction took is free after a rollback."""
    store = harness.store
    held = await insert_one(store, job(key="k", unique=Unique()))
    free = job(key="free", unique=Unique())
    with rolled_back():
        async with store.transaction() as transaction:
            results = await transaction.insert([job(key="k", unique=Unique()), free])
            equal(list(results), [Inserted(held, created=False), Inserted(free.id, created=True)], "the results")
            again = await transaction.insert([job(key="free", unique=Unique())])
            equal(list(again), [Inserted(free.id, created=False)], "the key of an earlier insert of the transaction")
            raise OnPurposeError
    after = job(key="free", unique=Unique())
    equal(list(await store.insert([after])), [Inserted(after.id, created=True)], "the key after the rollback")


@subject()
async def several_at_once(harness: Harness) -> None:
    """Transactions of several tasks wait for each other or run beside each other; none is lost."""
    store = harness.store
    new = [job() for _ in range(8)]

    async def one(place: int) -> None:
        async with store.transaction() as transaction:
            await transaction.insert([new[place]])
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for place in range(len(new)):
            group.start_soon(one, place)
    lease_id = await store.open_lease("w", HOUR)
    claimed = await store.claim(lease_id, ["a"], 100)
    equal(sorted(each.id for each in claimed), sorted(each.id for each in new), "the jobs")
