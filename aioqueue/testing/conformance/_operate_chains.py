"""The cases of `Store.retry`, `Store.run_now` and `Store.delete` by the ids of a chain's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    next_step,
    refused,
    settlement,
    start_chain,
    start_one,
    written,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import Inserted, JobState, LostReason, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["subject"]

subject = Subject("chains")


async def _ended(store: Store, kind: SettlementKind) -> list[ClaimedJob]:
    """A chain of three steps that has ended."""
    steps = await start_chain(store, await store.open_lease("w", HOUR), 3)
    await written(store, settlement(steps[-1], kind, error=failure()))
    return steps


@subject()
async def retry_means_the_last_step(harness: Harness) -> None:
    """Any step's id has the last step of a failed or cancelled chain run again, at its place."""
    store = harness.store
    for kind in (SettlementKind.FAILED, SettlementKind.CANCELLED):
        for place in range(3):
            steps = await _ended(store, kind)
            equal(list(await store.retry([steps[place].id])), [Changed.DONE], f"a retry by step {place}")
            states = [each and each.state for each in await store.fetch([each.id for each in steps])]
            equal(states, [JobState.CONTINUED, JobState.CONTINUED, JobState.READY], "the states")
            again = await claim_one(store, await store.open_lease("other", HOUR))
            equal((again.id, again.chain_id, again.position), (steps[2].id, steps[0].id, 2), "what is claimed")
            equal(again.attempt, 1, "its attempt")
            following = await next_step(store, again)
            equal((following.chain_id, following.position), (steps[0].id, 3), "chain and position of the next one")
            await written(store, settlement(following, SettlementKind.COMPLETED, output=b"1"))


@subject()
async def retry_in_every_state_of_a_chain(harness: Harness) -> None:
    """Only a chain that failed or was cancelled begins again, whatever its first step is."""
    store = harness.store
    completed = await _ended(store, SettlementKind.COMPLETED)
    running = await start_chain(store, await store.open_lease("w", HOUR), 2)
    waiting = await start_one(store, await store.open_lease("w", HOUR))
    await written(store, settlement(waiting, SettlementKind.CONTINUED))
    results = await store.retry([completed[0].id, running[0].id, waiting.id])
    equal(list(results), [Changed.WRONG_STATE, Changed.RUNNING, Changed.WRONG_STATE], "the results")
    (again,) = await store.fetch_ends([completed[0].id])
    equal(again and again.state, JobState.COMPLETED, "the end of the completed one")


@subject()
async def a_retried_chain_and_its_unique_key(harness: Harness) -> None:
    """It takes its key again, though its last step is of another type; while another has the key it stays."""
    store = harness.store
    first = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=Unique()))
    last = await next_step(store, first, job("b"))
    await written(store, settlement(last, SettlementKind.FAILED, error=failure()))
    holder = await insert_one(store, job(key="k", unique=Unique()))
    equal(list(await store.retry([first.id])), [Changed.KEY_HELD], "while another has the key")
    await expect_state(store, last.id, JobState.FAILED)
    await store.delete([holder])
    equal(list(await store.retry([first.id])), [Changed.DONE], "when the key is free")
    equal(
        list(await store.insert([job(key="k", unique=Unique())])), [Inserted(first.id, created=False)], "who has the key then"
    )


@subject()
async def run_now_means_the_live_step(harness: Harness) -> None:
    """Any step's id brings the one that waits forward; a chain that has ended is in the wrong state."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, second = await start_chain(store, lease_id, 2)
    equal(list(await store.run_now([first.id])), [Changed.RUNNING], "while the last is running")
    new = job("b", delay=HOUR)
    await written(store, settlement(second, SettlementKind.CONTINUED, next=new))
    for each in (first.id, second.id, new.id):
        equal(list(await store.run_now([each])), [Changed.DONE], "while the last is waiting")
    claimed = await claim_one(store, lease_id, "b")
    equal((claimed.id, claimed.position), (new.id, 2), "what is due")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    equal(list(await store.run_now([first.id])), [Changed.WRONG_STATE], "when it has ended")


@subject()
async def delete_means_the_whole_chain(harness: Harness) -> None:
    """Any step's id removes all steps, whether the last is waiting or finished; nobody else's; the unique key is free."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    stays = await start_chain(store, lease_id, 2, job("stays"))
    for last in (None, SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        for place in range(3):
            steps = await start_chain(store, lease_id, 3, job(key="k", unique=Unique()))
            kind = SettlementKind.RETRIED if last is None else last
            await written(store, settlement(steps[-1], kind, delay=HOUR if last is None else None))
            ids = [each.id for each in steps]
            equal(list(await store.delete([ids[place]])), [Changed.DONE], f"a delete by step {place}")
            equal(list(await store.fetch(ids)), [None] * 3, "the steps that are left")
            equal(list(await store.fetch_ends(ids)), [None] * 3, "the ends that are left")
            equal(list(await store.delete(ids)), [Changed.NOT_FOUND] * 3, "another delete")
    found = await store.fetch([each.id for each in stays])
    equal([each and each.id for each in found], [each.id for each in stays], "the steps of another chain")


@subject()
async def delete_takes_a_running_chain(harness: Harness) -> None:
    """While its last step is running all of a chain is removed; its unique key is free, and its worker is told so."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    steps = await start_chain(store, lease_id, 3, job(key="k", unique=Unique()))
    ids = [each.id for each in steps]
    equal(list(await store.delete(ids)), [Changed.DONE] * 3, "the results")
    equal(list(await store.fetch(ids)), [None] * 3, "the steps that are left")
    await insert_one(store, job(key="k", unique=Unique()))
    new = job("late")
    await refused(store, settlement(steps[-1], SettlementKind.CONTINUED, next=new), LostReason.NOT_FOUND)
    equal(list(await store.fetch([new.id])), [None], "the next step of a chain that is gone")


@subject()
async def several_ids_of_one_chain_in_one_call(harness: Harness) -> None:
    """The chain is changed once, and each of the ids is told so."""
    store = harness.store
    ids = [each.id for each in await _ended(store, SettlementKind.FAILED)]
    equal(list(await store.retry(ids)), [Changed.DONE] * 3, "the results of a retry")
    equal(list(await store.run_now(ids)), [Changed.DONE] * 3, "the results of run_now")
    equal(list(await store.delete([*ids, ids[1]])), [Changed.DONE] * 4, "the results of a delete")
    equal(list(await store.fetch(ids)), [None] * 3, "the steps that are left")


@subject()
async def what_is_written_about_a_deleted_chain(harness: Harness) -> None:
    """A worker that had a step of a chain that is gone is told so, and its continuation isn't stored."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, second = await start_chain(store, lease_id, 2)
    await store.release(lease_id, [second.claim])
    equal(list(await store.delete([first.id])), [Changed.DONE], "the result")
    new = job("late")
    late = settlement(second, SettlementKind.CONTINUED, next=new)
    await refused(store, late, LostReason.NOT_FOUND)
    equal(list(await store.fetch([new.id])), [None], "the next step of a chain that is gone")
