"""Rows with values that somebody wrote with SQL, and settlements that make no sense: each fails alone."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.testing.conformance._case import Fault, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    lease_thread,
    raises,
    settle_halving,
    settle_one,
    settlement,
    snapshot,
    start,
    start_one,
    written,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState, Settlement, SettlementKind
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("odd_rows")

FAULTS = tuple(fault for fault in Fault if fault not in (Fault.DUE, Fault.STATE))
"""Those of jobs that are due, and are nobody's but their own affair."""
ROUNDS = 10
"""How many calls a store may need to put odd rows aside."""


async def _told(store: Store, job_id: UUID, fault: Fault) -> None:
    # Either the row could be read all the same, or it has failed with a reason.
    found = await snapshot(store, job_id)
    if found.state is JobState.FAILED:
        check(found.last_error is not None and found.last_error.message, f"a failed row says why ({fault}): {found!r}")
    else:
        equal(found.state, JobState.RUNNING, f"the state of a job with an odd {fault} that was claimed")


@subject()
async def claims_go_on(harness: Harness) -> None:
    """A row that can't be claimed, counted or read fails visibly, and its neighbours are claimed."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for fault in FAULTS:
        odd = await insert_one(store, job(priority=1))
        if not await harness.spoil(odd, fault):
            await store.delete([odd])
            continue
        neighbours = {await insert_one(store, job()), await insert_one(store, job(priority=3))}
        claimed = {each.id: each for _ in range(ROUNDS) for each in await store.claim(lease_id, ["a"], 1)}
        equal(set(claimed) - {odd}, neighbours, f"what is claimed beside a job with an odd {fault}")
        await _told(store, odd, fault)
        for each in neighbours:
            await written(store, settlement(claimed[each], SettlementKind.COMPLETED, output=b"1"))


@subject()
async def looking_goes_on(harness: Harness) -> None:
    """Odd rows are shown, counted and deleted beside others."""
    store = harness.store
    ids = [await insert_one(store, job()) for _ in FAULTS]
    spoilt = [await harness.spoil(job_id, fault) for job_id, fault in zip(ids, FAULTS, strict=True)]
    neighbour = await insert_one(store, job())
    found = [each and each.id for each in await store.fetch([*ids, neighbour])]
    equal(found, [*ids, neighbour], "what is fetched")
    shown: list[UUID] = []
    page = await store.list(JobFilter(), 2)
    shown += [each.id for each in page.jobs]
    while page.cursor is not None:
        page = await store.list(JobFilter(), 2, page.cursor)
        shown += [each.id for each in page.jobs]
    equal(shown, sorted([*ids, neighbour], reverse=True), "what a listing shows")
    equal((await store.stats()).types["a"].counts, {JobState.READY: len(ids) + 1}, "the counts")
    check((await store.next_due(["a"])).job == 0, f"what is due beside odd rows ({spoilt})")
    equal(list(await store.run_now([*ids, neighbour])), [Changed.DONE] * (len(ids) + 1), "bringing forward")
    equal(list(await store.delete([*ids, neighbour])), [Changed.DONE] * (len(ids) + 1), "deleting")


@subject()
async def an_unknown_state_waits(harness: Harness) -> None:
    """A live row whose state this code doesn't know is blocked, and not finished; workers leave it, and it can be deleted."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    odd = await insert_one(store, job(priority=1))
    if not await harness.spoil(odd, Fault.STATE):
        return
    neighbour = await insert_one(store, job())
    for _ in range(ROUNDS):
        for claimed in await store.claim(lease_id, ["a"], 10):
            equal(claimed.id, neighbour, "what is claimed beside a job in an unknown state")
    equal(await store.take_expired(10), [], "what is recovered beside a job in an unknown state")
    found = await expect_state(store, odd, JobState.BLOCKED)
    equal(found.finished_at, None, "the end of a job in an unknown state")
    page = await store.list(JobFilter(), 10)
    equal({each.id: each.state for each in page.jobs}[odd], JobState.BLOCKED, "the state that a listing shows")
    equal(list(await store.run_now([odd])), [Changed.WRONG_STATE], "bringing forward a job in an unknown state")
    equal(list(await store.delete([odd])), [Changed.DONE], "deleting a job in an unknown state")


@subject()
async def retries_go_on(harness: Harness) -> None:
    """A row that failed because it's odd can be retried beside others; then it fails again, or runs."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    odd: list[UUID] = []
    for fault in FAULTS:
        odd.append(await insert_one(store, job()))
        if not await harness.spoil(odd[-1], fault):
            await store.delete([odd.pop()])
    claimed = [each for _ in range(ROUNDS) for each in await store.claim(lease_id, ["a"], 100)]
    for each in claimed:
        await store.settle([settlement(each, SettlementKind.FAILED, error=failure())])
    failed = await start_one(store, lease_id)
    await written(store, settlement(failed, SettlementKind.FAILED, error=failure()))
    changed = list(await store.retry([*odd, failed.id]))
    equal(changed[-1], Changed.DONE, "the retry of a sound job beside odd ones")
    again = {each.id for _ in range(ROUNDS) for each in await store.claim(lease_id, ["a"], 100)}
    check(failed.id in again, "a sound job that was retried beside odd ones must be claimed")


@subject()
async def recovery_goes_on(harness: Harness) -> None:
    """An orphan that can't be read fails visibly, and the others are recovered."""
    store = harness.store
    for fault in FAULTS:
        lease_id = await store.open_lease("dead", HOUR)
        odd = await start_one(store, lease_id)
        neighbour = await start_one(store, lease_id)
        if not await harness.spoil(odd.id, fault):
            await store.release(lease_id, [], end=True)
            await store.delete([odd.id, neighbour.id])
            continue
        await harness.age(2 * HOUR)
        taken = {each.id: each for _ in range(3) for each in await store.take_expired(10)}
        check(neighbour.id in taken, f"the neighbour of an orphan with an odd {fault} must be recovered")
        await _told(store, odd.id, fault)
        orphans = [settlement(each, SettlementKind.FAILED, error=failure()) for each in taken.values()]
        results = dict(zip(taken, await store.settle(orphans, orphaned=True), strict=True))
        equal(results[neighbour.id].lost, None, f"the settlement of an orphan beside one with an odd {fault}")
        await expect_state(store, neighbour.id, JobState.FAILED)


@subject()
async def workers_go_on(harness: Harness) -> None:
    """What runs is renewed, settled and given back beside a row that has become odd since."""
    store = harness.store
    async with lease_thread(store) as thread:
        for fault in FAULTS:
            lease_id = await store.open_lease("w", HOUR)
            odd, settled, released, left = await start(store, lease_id, job(), job(), job(), job())
            if await harness.spoil(odd.id, fault):
                for _ in range(3):
                    renewal = await thread.renew(lease_id, HOUR, [odd.claim, settled.claim, released.claim, left.claim])
                    check(renewal.valid, f"a lease is renewed beside a job with an odd {fault}")
                    gone = set(renewal.lost) - {odd.claim}
                    equal(sorted(map(str, gone)), [], f"what else is lost beside a job with an odd {fault}")
                batch = [settlement(each, SettlementKind.COMPLETED, output=b"1") for each in (odd, settled)]
                equal((await store.settle(batch))[1].lost, None, f"a settlement beside a job with an odd {fault}")
                await store.release(lease_id, [odd.claim, released.claim])
                equal((await snapshot(store, released.id)).state, JobState.READY, "the state of what was given back")
            await store.release(lease_id, [], end=True)
            equal((await snapshot(store, left.id)).state, JobState.READY, "the state of what a lease held at its end")
            await store.delete([each.id for each in (odd, settled, released, left)])


@subject()
async def nonsense_in_settlements(harness: Harness) -> None:
    """A delay or a time that makes no sense is refused, alone; the job still runs, and can be settled sensibly."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for delay in (math.nan, math.inf, -math.inf, 1e300):
        bad, good = await start(store, lease_id, job(), job())
        batch = [
            settlement(bad, SettlementKind.RETRIED, delay=delay, error=failure()),
            settlement(good, SettlementKind.RETRIED, delay=HOUR, error=failure()),
        ]
        await settle_halving(store, batch)
        await expect_state(store, good.id, JobState.SCHEDULED)
        found = await snapshot(store, bad.id)
        if delay == -math.inf and found.state is JobState.READY:
            continue  # before all times, which is now
        equal(found.state, JobState.RUNNING, f"the state of a job whose delay was {delay}")
        await written(store, settlement(bad, SettlementKind.FAILED, error=failure()))


@subject()
async def nonsense_in_inserts(harness: Harness) -> None:
    """A job whose times make no sense is refused, and nothing of its batch is stored."""
    store = harness.store
    good = job()
    for bad in (
        job(delay=math.nan),
        job(delay=math.inf),
        job(delay=1e300),
        job(expires=math.nan),
        job(expires=math.inf),
        job(timeout=math.nan),
        job(timeout=math.inf),
        job(run_at=datetime(2030, 1, 1)),  # noqa: DTZ001 - without a zone
    ):
        await raises(RowRejected, store.insert([good, bad]), f"an insert of {bad!r}")
    equal(list(await store.fetch([good.id])), [None], "the job beside them")
    await insert_one(store, good)
    lease_id = await store.open_lease("w", HOUR)
    await claim_one(store, lease_id)


@subject()
async def an_unknown_state(harness: Harness) -> None:
    """A live row whose state this code doesn't know is shown as blocked, is nobody's to run, and can only be deleted."""
    store = harness.store
    odd, neighbour = await insert_one(store, job(priority=1)), await insert_one(store, job())
    if not await harness.spoil(odd, Fault.STATE):
        return
    await expect_state(store, odd, JobState.BLOCKED)
    shown = {each.id: each.state for each in (await store.list(JobFilter(), 10)).jobs}
    equal(shown, {odd: JobState.BLOCKED, neighbour: JobState.READY}, "what a listing shows")
    for state in set(JobState) - {JobState.READY}:
        equal((await store.list(JobFilter(states=frozenset({state})), 10)).jobs, (), f"what a listing of {state} jobs shows")
    equal(dict((await store.stats()).types["a"].counts), {JobState.READY: 1}, "what is counted beside one of an unknown state")
    lease_id = await store.open_lease("w", HOUR)
    claimed = await store.claim(lease_id, ["a"], 10)
    equal([each.id for each in claimed], [neighbour], "what is claimed beside a job of an unknown state")
    equal((await store.next_due(["a"])).job, None, "when a job is due beside one of an unknown state")
    equal(list(await store.take_expired(10)), [], "what is recovered beside a job of an unknown state")
    stale = Settlement(id=odd, claims=0, lease_id=lease_id, kind=SettlementKind.COMPLETED, output=b"1")
    check((await settle_one(store, stale)).lost is not None, "a settlement of a job of an unknown state must be lost")
    equal(list(await store.run_now([odd])), [Changed.WRONG_STATE], "bringing forward")
    equal(list(await store.retry([odd])), [Changed.WRONG_STATE], "a retry")
    await expect_state(store, odd, JobState.BLOCKED)
    equal(list(await store.delete([odd])), [Changed.DONE], "deleting")
    equal(list(await store.fetch([odd])), [None], "what was deleted")
