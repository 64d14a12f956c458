"""The cases of `Store.retry`, `Store.run_now` and `Store.delete`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    lease_thread,
    listening,
    refused,
    settlement,
    start_one,
    written,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness

__all__ = ["deleting", "named", "one_of_each", "retrying", "running"]

retrying = Subject("retry")
running = Subject("run_now")
deleting = Subject("delete")


async def one_of_each(harness: Harness) -> dict[str, UUID]:
    """A job in each state, by the state's name, and an id that nothing has."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    return {
        "completed": await end_as(store, job(), SettlementKind.COMPLETED),
        "failed": await end_as(store, job(), SettlementKind.FAILED),
        "cancelled": await end_as(store, job(), SettlementKind.CANCELLED),
        "running": (await start_one(store, lease_id)).id,
        "scheduled": await insert_one(store, job(delay=HOUR)),
        "ready": await insert_one(store, job()),
        "unknown": new_id(),
    }


def named(jobs: dict[str, UUID], results: list[Changed]) -> dict[str, Changed]:
    """What became of each of those jobs."""
    return dict(zip(jobs, results, strict=True))


@retrying()
async def retry_in_every_state(harness: Harness) -> None:
    """Only failed and cancelled jobs are made pending."""
    store = harness.store
    jobs = await one_of_each(harness)
    expected = {
        "completed": Changed.WRONG_STATE,
        "failed": Changed.DONE,
        "cancelled": Changed.DONE,
        "running": Changed.RUNNING,
        "scheduled": Changed.WRONG_STATE,
        "ready": Changed.WRONG_STATE,
        "unknown": Changed.NOT_FOUND,
    }
    equal(named(jobs, list(await store.retry(list(jobs.values())))), expected, "the results of retry")
    states = [JobState.COMPLETED, JobState.READY, JobState.READY, JobState.RUNNING, JobState.SCHEDULED, JobState.READY, None]
    found = await store.fetch(list(jobs.values()))
    equal([each and each.state for each in found], states, "the states")


@retrying()
async def with_all_attempts_and_the_history(harness: Harness) -> None:
    """A retried job begins anew, due now, as one that was never started, with its history; older claims stay fenced."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    new = job(payload=b'{"n":1}', max_attempts=1, priority=1, key="k", tags=("t",), metadata=b'{"m":1}', timeout=9.0)
    put_off = await start_one(store, lease_id, new)
    await written(store, settlement(put_off, SettlementKind.RESCHEDULED))
    first = await claim_one(store, lease_id)
    equal(first.reschedules, 1, "reschedules before the retry")
    await written(store, settlement(first, SettlementKind.FAILED, outcome="refused", output=b"0", error=failure()))
    await harness.age(HOUR)
    equal(list(await store.retry([first.id])), [Changed.DONE], "the result")
    found = await expect_state(store, first.id, JobState.READY)
    equal((found.attempt, found.reschedules, found.errors), (0, 0, (failure(),)), "attempt, reschedules, errors")
    equal((found.started_at, found.finished_at, found.expires_at), (None, None, None), "start, end, time to expire")
    equal((found.outcome, found.output_json), (None, None), "outcome and output")
    check(found.run_at >= first.started_at, "a retried job is due now")
    again = await claim_one(store, lease_id)
    equal(again.reschedules, 0, "reschedules of the retried job")
    for name in ("id", "payload", "max_attempts", "priority", "key", "tags", "metadata", "timeout"):
        equal(getattr(again, name), getattr(new, name), f"`{name}` of the retried job")
    equal(again.attempt, 1, "the attempt")
    check(again.claims > first.claims, f"claims must go on: {again.claims} after {first.claims}")
    late = (await store.settle([settlement(first, SettlementKind.COMPLETED, output=b"0")]))[0]
    check(late.lost is not None, "the claim before the retry must stay fenced")
    await written(store, settlement(again, SettlementKind.COMPLETED, output=b"1"))
    done = await expect_state(store, first.id, JobState.COMPLETED)
    equal((done.output, done.errors), (1, (failure(),)), "output and history")


@retrying()
async def twice(harness: Harness) -> None:
    """A job in one call twice, or retried again while it's pending, is one job."""
    store = harness.store
    job_id = await end_as(store, job(), SettlementKind.FAILED)
    first, second = await store.retry([job_id, job_id])
    check(first is Changed.DONE and second in (Changed.DONE, Changed.WRONG_STATE), f"results {first!r}, {second!r}")
    equal(list(await store.retry([job_id])), [Changed.WRONG_STATE], "a retry of a pending job")
    lease_id = await store.open_lease("w", HOUR)
    equal([each.id for each in await store.claim(lease_id, ["a"], 10)], [job_id], "what is pending")


@retrying()
async def a_held_unique_key(harness: Harness) -> None:
    """A job whose unique key another unfinished one holds stays; once the key is free it takes it again."""
    store = harness.store
    old = await end_as(store, job(key="k", unique=Unique()), SettlementKind.FAILED)
    plain = await end_as(store, job(key="k"), SettlementKind.FAILED)
    holder = await insert_one(store, job(key="k", unique=Unique()))
    equal(list(await store.retry([old, plain])), [Changed.KEY_HELD, Changed.DONE], "while the key is held")
    await expect_state(store, old, JobState.FAILED)
    await store.delete([holder])
    equal(list(await store.retry([old])), [Changed.DONE], "when the key is free")
    (inserted,) = await store.insert([job(key="k", unique=Unique())])
    equal((inserted.id, inserted.created), (old, False), "an insert with the key that was taken again")


@retrying()
async def two_with_one_unique_key(harness: Harness) -> None:
    """Of two failed jobs with one unique key only one becomes pending."""
    store = harness.store
    ids = [await end_as(store, job(key="k", unique=Unique()), SettlementKind.FAILED) for _ in range(2)]
    equal(sorted(await store.retry(ids)), sorted([Changed.DONE, Changed.KEY_HELD]), "the results")


@retrying(Capability.LOCKS_ROWS)
async def a_key_in_an_open_transaction(harness: Harness) -> None:
    """A job whose unique key somebody's open transaction has is contended, and stops no other; then it's told who has it."""
    store, second = harness.store, await harness.second_store()
    old = await end_as(store, job(key="k", unique=Unique()), SettlementKind.FAILED)
    plain = await end_as(store, job(), SettlementKind.FAILED)
    async with store.transaction() as transaction:
        await transaction.insert([job(key="k", unique=Unique())])
        equal(list(await second.retry([old, plain])), [Changed.CONTENDED, Changed.DONE], "while the transaction is open")
        await expect_state(second, old, JobState.FAILED)
    equal(list(await store.retry([old])), [Changed.KEY_HELD], "after the commit")


@retrying(Capability.LOCKS_ROWS)
async def a_locked_row_stops_no_other(harness: Harness) -> None:
    """A job whose row somebody has locked stays as it is, and is contended; the others are retried."""
    store = harness.store
    ids = [await end_as(store, job(), SettlementKind.FAILED) for _ in range(3)]
    async with harness.locked(ids[1]):
        equal(list(await store.retry(ids)), [Changed.DONE, Changed.CONTENDED, Changed.DONE], "while it's locked")
    await expect_state(store, ids[1], JobState.FAILED)
    equal(list(await store.retry(ids)), [Changed.WRONG_STATE, Changed.DONE, Changed.WRONG_STATE], "once it's free")


@retrying()
async def of_an_expired_job(harness: Harness) -> None:
    """A job that was discarded because it expired isn't discarded again at once."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    job_id = await insert_one(store, job(expires=HOUR))
    await harness.age(2 * HOUR)
    claimed = await claim_one(store, lease_id)
    check(claimed.expired, "the job must be marked as expired")
    await written(store, settlement(claimed, SettlementKind.CANCELLED))
    equal(list(await store.retry([job_id])), [Changed.DONE], "the result")
    again = await claim_one(store, lease_id)
    check(not again.expired, "a retried job must not be discarded at once")


@running()
async def run_now_in_every_state(harness: Harness) -> None:
    """Only pending jobs are brought forward."""
    store = harness.store
    jobs = await one_of_each(harness)
    expected = {
        "completed": Changed.WRONG_STATE,
        "failed": Changed.WRONG_STATE,
        "cancelled": Changed.WRONG_STATE,
        "running": Changed.RUNNING,
        "scheduled": Changed.DONE,
        "ready": Changed.DONE,
        "unknown": Changed.NOT_FOUND,
    }
    equal(named(jobs, list(await store.run_now(list(jobs.values())))), expected, "the results of run_now")
    for name in ("scheduled", "ready"):
        await expect_state(store, jobs[name], JobState.READY)
    equal((await store.next_due(["a"])).job, 0, "the next due")


@running(Capability.LOCKS_ROWS)
async def a_locked_one_stops_no_other(harness: Harness) -> None:
    """A job whose row somebody has locked stays as it is, and is contended; the others are brought forward, or moved."""
    store = harness.store
    held, free, moved = [await insert_one(store, job(delay=HOUR)) for _ in range(3)]
    async with harness.locked(held):
        both = await asyncio.gather(store.run_now([held, free]), store.reschedule([held, moved], delay=0))
        equal([list(each) for each in both], [[Changed.CONTENDED, Changed.DONE]] * 2, "while it's locked")
    for job_id, state in ((held, JobState.SCHEDULED), (free, JobState.READY), (moved, JobState.READY)):
        await expect_state(store, job_id, state)


@running()
async def is_claimed_at_once(harness: Harness) -> None:
    """A job that was brought forward is claimed, and its attempts stay counted."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    equal(list(await store.claim(lease_id, ["a"], 1)), [], "what is due before")
    await store.run_now([claimed.id])
    again = await claim_one(store, lease_id)
    equal(again.attempt, 2, "the attempt")


@deleting()
async def in_every_state(harness: Harness) -> None:
    """Jobs are removed, live or archived, running ones too."""
    store = harness.store
    jobs = await one_of_each(harness)
    expected = {name: Changed.NOT_FOUND if name == "unknown" else Changed.DONE for name in jobs}
    equal(named(jobs, list(await store.delete(list(jobs.values())))), expected, "the results of delete")
    equal(list(await store.fetch(list(jobs.values()))), [None] * len(jobs), "what's left")
    again = named(jobs, list(await store.delete(list(jobs.values()))))
    equal(again, dict.fromkeys(jobs, Changed.NOT_FOUND), "the second delete")


@deleting()
async def a_running_ones_worker_is_told(harness: Harness) -> None:
    """Its next renewal says that the job isn't there any more, and what it writes is lost; its unique key is free at once."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(key="k", unique=Unique()))
    equal(list(await store.delete([claimed.id])), [Changed.DONE], "the result")
    await insert_one(store, job(key="k", unique=Unique()))
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
    equal((renewal.valid, dict(renewal.lost)), (True, {claimed.claim: LostReason.NOT_FOUND}), "the renewal")
    await refused(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"), LostReason.NOT_FOUND)


@deleting(Capability.LOCKS_ROWS)
async def what_is_locked_stops_no_other(harness: Harness) -> None:
    """A job whose row somebody has locked stays, and is contended; the others are removed."""
    store = harness.store
    held, free = await insert_one(store, job()), await end_as(store, job(), SettlementKind.FAILED)
    async with harness.locked(held):
        equal(list(await store.delete([held, free])), [Changed.CONTENDED, Changed.DONE], "while it's locked")
    equal([each and each.id for each in await store.fetch([held, free])], [held, None], "what's left")


@deleting(Capability.TELLS_LEASES)
async def a_running_ones_lease_is_told_of(harness: Harness) -> None:
    """Whoever listens hears of the lease that holds a running job which is deleted."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    with listening(store) as heard:
        await second.delete([claimed.id])
        await heard.wait(lambda told: lease_id in told.leases, f"the lease {lease_id}")
