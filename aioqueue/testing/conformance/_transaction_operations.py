"""The cases of `StoreTransaction.operations` and `Store.within`: looking and operating within a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    check,
    end_as,
    equal,
    insert_one,
    job,
    listening,
    raises,
    rolled_back,
    start_one,
    states_of,
)
from aioqueue.testing.conformance._waiting import after
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("transaction_operations")


@subject()
async def what_it_has_written_is_seen(harness: Harness) -> None:
    """All that looks at jobs sees those of the transaction, which nobody else does."""
    store = harness.store
    committed = await insert_one(store, job(key="k"))
    async with store.transaction() as transaction:
        operations = transaction.operations
        first, waiting = job(key="k"), job("waits")
        waiting = after(waiting, first.id)
        await transaction.insert([first, waiting])
        equal(await states_of(operations, committed, first.id), [JobState.READY] * 2, "the states")
        (end,) = await operations.fetch_ends([waiting.id])
        equal(end and end.state, JobState.BLOCKED, "the end of a chain")
        listed = [each.id for each in (await operations.list(JobFilter(types=["a"]), 10)).jobs]
        equal(listed, [first.id, committed], "the listing")
        equal((await operations.list_ids(JobFilter(), 1)).ids, (waiting.id,), "the newest id")
        found = await operations.find(["a"], "k")
        equal(found and found.id, first.id, "the job with the key")
        equal([each.id for each in (await operations.list_chain(first.id, 10)).jobs], [first.id], "the steps")
        equal([each.chain_id for each in await operations.list_blockers(waiting.id, 10)], [first.id], "the blockers")
        equal([each.job_id for each in await operations.list_dependents(first.id, 10)], [waiting.id], "the dependents")
        standing = await operations.standing(first.id, ["a"])
        check(standing is not None, "a job of the transaction must stand somewhere")
        equal((await operations.stats()).types["waits"].counts, {JobState.BLOCKED: 1}, "the numbers")
        equal(list(await operations.leases()), [], "the leases")


@subject()
async def what_it_changes_is_so_with_the_commit(harness: Harness) -> None:
    """A rollback undoes it; after the commit it's so, and listeners hear of it then, not before."""
    store = harness.store
    failed = await end_as(store, job("failed"), SettlementKind.FAILED)
    later, deleted = await insert_one(store, job("later", delay=HOUR)), await insert_one(store, job("deleted"))
    ids, before = (failed, later, deleted), [JobState.FAILED, JobState.SCHEDULED, JobState.READY]
    for keep in (False, True):
        with listening(store, finished=True) as heard:
            try:
                async with store.transaction() as transaction:
                    operations = transaction.operations
                    results = [await operations.retry([failed]), await operations.run_now([later])]
                    results.append(await operations.delete([deleted]))
                    equal([list(each) for each in results], [[Changed.DONE]] * 3, "the results")
                    changed = [JobState.READY, JobState.READY, None]
                    equal(await states_of(operations, *ids), changed, "the states within it")
                    check(not heard.named(), "nothing may be told before the commit")
                    if not keep:
                        raise OnPurposeError
            except OnPurposeError:
                equal(await states_of(store, *ids), before, "the states after a rollback")
                check(not heard.named(), "nothing may be told of what was rolled back")
                continue
            equal(await states_of(store, *ids), changed, "the states after the commit")
            for name in ("failed", "later"):
                await heard.wait_for_type(name)
            await heard.wait_for_end(deleted)
    equal(len(await store.claim(await store.open_lease("w", HOUR), ["failed", "later"], 10)), 2, "what can be claimed")


@subject()
async def its_own_jobs(harness: Harness) -> None:
    """They can be changed before anybody else sees them; a nested block undoes what was changed in it."""
    store = harness.store
    new, kept = job(delay=HOUR), job(delay=HOUR)
    async with store.transaction() as transaction:
        await transaction.insert([new, kept])
        with rolled_back():
            async with transaction.savepoint():
                equal(list(await transaction.operations.delete([kept.id])), [Changed.DONE], "a delete in a nested block")
                raise OnPurposeError
        equal(list(await transaction.operations.run_now([new.id, kept.id])), [Changed.DONE] * 2, "running them now")
        equal(list(await transaction.operations.delete([new.id])), [Changed.DONE], "a delete")
    equal(await states_of(store, new.id, kept.id), [None, JobState.READY], "the states after the commit")


@subject()
async def what_raises_leaves_it_as_it_was(harness: Harness) -> None:
    """A verb that can't be carried out undoes nothing of the transaction, which goes on."""
    store = harness.store
    running, new, later = await start_one(store, await store.open_lease("w", HOUR)), job("new"), job("later")
    async with store.transaction() as transaction:
        await transaction.insert([new])
        await raises(ValueError, transaction.operations.list(JobFilter(), 1, "x"), "what isn't a cursor")
        await raises(ValueError, transaction.operations.list_chain(new.id, 1, "x"), "what isn't a cursor")
        equal(list(await transaction.operations.retry([running.id])), [Changed.RUNNING], "a retry of what is running")
        await transaction.insert([later])
    equal(await states_of(store, new.id, later.id), [JobState.READY] * 2, "the states after the commit")


@subject()
async def on_something_that_isnt_a_connection(harness: Harness) -> None:
    """What `within` is given is looked at by the verbs, each of which refuses what it doesn't know."""
    operations = harness.store.within(object())
    job_id = await insert_one(harness.store, job())
    for name, call in (
        ("fetch", operations.fetch([job_id])),
        ("list", operations.list(JobFilter(), 1)),
        ("find", operations.find(["a"], "k")),
        ("stats", operations.stats()),
        ("delete", operations.delete([job_id])),
    ):
        await raises(TypeError, call, f"{name} within something else")
    equal(await states_of(harness.store, job_id), [JobState.READY], "the state of the job")
