"""The cases of `Store.take_expired`, the settling of what it gives, and `Store.next_due`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Fault, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    refused,
    settlement,
    start,
    start_one,
    take_one,
    written,
)
from aioqueue.testing.conformance._waiting import after, completed, told
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["due", "expired"]

expired = Subject("take_expired")
due = Subject("next_due")


@expired()
async def valid_leases_are_left_alone(harness: Harness) -> None:
    """Nothing is taken from a worker whose lease is valid."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(HOUR / 2)
    equal(list(await store.take_expired(10)), [], "jobs of dead workers")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@expired()
async def gives_the_jobs_of_an_expired_lease(harness: Harness) -> None:
    """They come as they were claimed, with the name of the worker, and stay running until they're settled as orphans."""
    store = harness.store
    lease_id = await store.open_lease("dead", HOUR)
    claimed = await start(store, lease_id, job(payload=b'{"n":1}', tags=("t",)), job("b", priority=1))
    await harness.age(2 * HOUR)
    taken = await store.take_expired(10)
    equal({each.claim for each in taken}, {each.claim for each in claimed}, "the claims taken")
    by_id = {each.id: each for each in taken}
    for each in claimed:
        got = by_id[each.id]
        for name in ("type", "payload", "priority", "attempt", "claims", "lease_id", "max_attempts", "tags"):
            equal(getattr(got, name), getattr(each, name), f"`{name}` of a recovered job")
        equal(got.worker, "dead", "the worker that has lost it")
        await expect_state(store, each.id, JobState.RUNNING)


@expired()
async def gives_no_ends_of_what_they_have_waited_for(harness: Harness) -> None:
    """Outputs are looked up for what is to be run; a recovered job gets them with its next claim."""
    store = harness.store
    blocker = await completed(store, b'"out"')
    new = after(job("waits"), blocker)
    await store.insert([new])
    lease_id = await store.open_lease("dead", HOUR)
    claimed = await claim_one(store, lease_id, "waits")
    equal(told(claimed), [(blocker, ChainEnd.COMPLETED, b'"out"')], "what it's told")
    await harness.age(2 * HOUR)
    (taken,) = [*await store.take_expired(10)] or await store.take_expired(10)  # one lease each
    equal((taken.id, taken.blockers), (new.id, ()), "the recovered job, and what it's told")
    await written(store, settlement(taken, SettlementKind.RETRIED, error=failure()), orphaned=True)
    again = await claim_one(store, await store.open_lease("w", HOUR), "waits")
    equal(told(again), [(blocker, ChainEnd.COMPLETED, b'"out"')], "what it's told by the next claim")


@expired()
async def fences_the_old_owner_at_once(harness: Harness) -> None:
    """From then on the old owner can write nothing, before and after the recovery."""
    store = harness.store
    lease_id = await store.open_lease("dead", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    await store.take_expired(10)
    for kind in SettlementKind:
        await refused(store, settlement(claimed, kind), LostReason.TAKEN)
    await store.release(lease_id, [claimed.claim])
    await expect_state(store, claimed.id, JobState.RUNNING)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure()), orphaned=True)
    for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        await refused(store, settlement(claimed, kind), LostReason.TAKEN)


@expired()
async def the_crash_counts_as_an_attempt(harness: Harness) -> None:
    """A recovered job goes on with the next attempt, its history and its delay."""
    store = harness.store
    lease_id = await store.open_lease("dead", HOUR)
    await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    taken = await take_one(store)
    lost = replace(failure(taken.attempt), type="WorkerLost")
    await written(store, settlement(taken, SettlementKind.RETRIED, delay=HOUR, error=lost), orphaned=True)
    found = await expect_state(store, taken.id, JobState.SCHEDULED)
    equal((found.attempt, found.errors, found.worker), (1, (lost,), None), "attempt, errors, worker")
    await harness.age(2 * HOUR)
    other = await store.open_lease("other", HOUR)
    again = await claim_one(store, other)
    equal((again.attempt, again.claims), (2, 2), "attempt and claims")


@expired()
async def two_recoverers_of_which_one_wins(harness: Harness) -> None:
    """Two workers may get the same jobs: the first to write wins, the second is told and changes nothing."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("dead", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    mine = await take_one(store)
    theirs = await take_one(second)
    equal((mine.claim, theirs.claim), (claimed.claim, claimed.claim), "what both got")
    await written(store, settlement(mine, SettlementKind.RETRIED, delay=0, error=failure()), orphaned=True)
    other = await store.open_lease("other", HOUR)
    again = await claim_one(store, other)
    late = settlement(theirs, SettlementKind.FAILED, error=failure())
    await refused(second, late, LostReason.TAKEN, orphaned=True)
    await written(store, settlement(again, SettlementKind.COMPLETED, output=b"1"))


@expired()
async def orphans_can_fail_for_good(harness: Harness) -> None:
    """A job whose worker died on the last attempt is failed by whoever recovers it; repeating that is safe."""
    store = harness.store
    lease_id = await store.open_lease("dead", HOUR)
    await start_one(store, lease_id, job(max_attempts=1))
    await harness.age(2 * HOUR)
    taken = await take_one(store)
    equal((taken.attempt, taken.max_attempts), (1, 1), "attempt and max_attempts")
    what = settlement(taken, SettlementKind.FAILED, error=failure())
    await written(store, what, orphaned=True)
    await written(store, what, orphaned=True)
    found = await expect_state(store, taken.id, JobState.FAILED)
    equal(len(found.errors), 1, "errors")


@expired()
async def living_owners_cant_be_settled_as_orphans(harness: Harness) -> None:
    """`orphaned` writes nothing about a job whose lease is valid."""
    store = harness.store
    lease_id = await store.open_lease("alive", HOUR)
    claimed = await start_one(store, lease_id)
    for kind in SettlementKind:
        what = settlement(claimed, kind, error=failure())
        result = (await store.settle([what], orphaned=True))[0]
        check(result.lost is not None, f"{kind.name} as an orphan of a living worker must be refused")
    await expect_state(store, claimed.id, JobState.RUNNING)
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@expired()
async def jobs_whose_lease_row_was_deleted_are_found(harness: Harness) -> None:
    """Whatever became of the lease's row, its jobs aren't lost."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.delete_lease(lease_id)
    taken = await take_one(store)
    equal(taken.claim, claimed.claim, "the claim taken")
    await written(store, settlement(taken, SettlementKind.RETRIED, delay=0, error=failure()), orphaned=True)
    await expect_state(store, claimed.id, JobState.READY)


@expired()
async def in_bounded_portions_until_all_are_found(harness: Harness) -> None:
    """At most `limit` jobs come at once; after they're settled the next ones do."""
    store = harness.store
    for number in range(3):
        lease_id = await store.open_lease(f"dead{number}", HOUR)
        await start(store, lease_id, *(job() for _ in range(5)))
    await harness.age(2 * HOUR)
    recovered = 0
    for _ in range(100):
        taken = await store.take_expired(4)
        check(len(taken) <= 4, f"limit 4 gave {len(taken)}")
        results = await store.settle(
            [settlement(each, SettlementKind.RETRIED, delay=HOUR, error=failure()) for each in taken], orphaned=True
        )
        equal([each.lost for each in results], [None] * len(taken), "the results")
        recovered += len(taken)
        if recovered == 15:
            break
    equal(recovered, 15, "jobs recovered")
    equal((await store.stats()).workers, (), "workers with a valid lease")


@expired()
async def own_leases_are_never_taken(harness: Harness) -> None:
    """A worker that is late with its own lease takes neither it nor its jobs, and takes those of others."""
    store = harness.store
    mine, second = await store.open_lease("mine", HOUR), await store.open_lease("mine", HOUR)
    deleted, theirs = await store.open_lease("mine", HOUR), await store.open_lease("theirs", HOUR)
    held = await start_one(store, mine)
    also_held = await start_one(store, second)
    without_row = await start_one(store, deleted)
    lost = await start_one(store, theirs)
    await harness.age(2 * HOUR)
    await harness.delete_lease(deleted)
    own = {mine, second, deleted}
    for _ in range(3):
        taken = await store.take_expired(10, own=own)
        equal([each.id for each in taken], [lost.id], "what is taken beside the own leases")
    for claimed in (held, also_held):
        await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    await written(store, settlement(lost, SettlementKind.FAILED, error=failure()), orphaned=True)
    equal((await take_one(store)).id, without_row.id, "what is taken by another worker")


@expired()
async def recovered_jobs_are_not_expired(harness: Harness) -> None:
    """A job that was started in time doesn't expire any more: not when its worker dies, and not when it's retried."""
    store = harness.store
    lease_id = await store.open_lease("dead", HOUR)
    claimed = await start_one(store, lease_id, job(expires=HOUR))
    check(not claimed.expired, "a job that starts in time hasn't expired")
    await harness.age(5 * HOUR)
    taken = await take_one(store)
    check(not taken.expired, "a job that was started in time hasn't expired when it's recovered later")
    await written(store, settlement(taken, SettlementKind.RETRIED, delay=0, error=failure()), orphaned=True)
    again = await claim_one(store, await store.open_lease("other", HOUR))
    equal((again.expired, again.attempt), (False, 2), "expired and attempt at its second start")


@expired()
async def beside_a_job_that_is_never_due(harness: Harness) -> None:
    """A pending job with an infinite due time keeps nobody from being recovered."""
    store = harness.store
    odd = await insert_one(store, job())
    if not await harness.spoil(odd, Fault.DUE):
        return
    lease_id = await store.open_lease("dead", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    equal((await take_one(store)).claim, claimed.claim, "the claim taken")


@due()
async def of_nothing(harness: Harness) -> None:
    """None without a pending job of the types."""
    store = harness.store
    equal((await store.next_due(["a"])).job, None, "the next due of an empty queue")
    await insert_one(store, job("b"))
    equal((await store.next_due(["a"])).job, None, "the next due of other types")
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job("a"))
    equal((await store.next_due(["a"])).job, None, "the next due while all are running")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    equal((await store.next_due(["a"])).job, None, "the next due when all are finished")


@due()
async def of_the_first(harness: Harness) -> None:
    """Seconds until the first is due, whatever its priority; 0 when one is."""
    store = harness.store
    await store.insert([job("a", delay=3 * HOUR, priority=1), job("b", delay=2 * HOUR, priority=4), job("c", delay=HOUR)])
    about((await store.next_due(["a", "b"])).job, 2 * HOUR, "the next due")
    about((await store.next_due(["a"])).job, 3 * HOUR, "the next due")
    await harness.age(HOUR)
    about((await store.next_due(["a", "b"])).job, HOUR, "the next due an hour later")
    await harness.age(5 * HOUR)
    equal((await store.next_due(["a", "b"])).job, 0, "the next due when it's over")


@due()
async def of_the_far_future(harness: Harness) -> None:
    """Year 9999 is only a large number."""
    store = harness.store
    await insert_one(store, job(run_at=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)))
    seconds = (await store.next_due(["a"])).job
    check(seconds is not None and seconds > 365 * 24 * HOUR, f"the next due in seconds: {seconds!r}")


@due()
async def after_a_retry(harness: Harness) -> None:
    """A job that waits to be tried again counts."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=2 * HOUR))
    about((await store.next_due(["a"])).job, 2 * HOUR, "the next due")


@due()
async def of_what_is_never_due(harness: Harness) -> None:
    """A job whose due time is infinite never counts, and hides none that is due some day."""
    store = harness.store
    odd = await insert_one(store, job())
    if not await harness.spoil(odd, Fault.DUE):
        return
    equal((await store.next_due(["a"])).job, None, "the next due beside one that is never due")
    await insert_one(store, job(delay=2 * HOUR))
    about((await store.next_due(["a"])).job, 2 * HOUR, "the next due beside one that is never due")


@due()
async def of_leases(harness: Harness) -> None:
    """Seconds until the first lease of somebody else runs out; 0 once it has, until it's taken."""
    store = harness.store
    equal((await store.next_due(["a"])).lease, None, "the first end without leases")
    mine = await store.open_lease("mine", HOUR)
    equal((await store.next_due(["a"], own=[mine])).lease, None, "the first end of the leases of others")
    about((await store.next_due(["a"])).lease, HOUR, "the first end")
    await store.open_lease("longer", 5 * HOUR)
    theirs = await store.open_lease("theirs", 3 * HOUR)
    about((await store.next_due([], own={mine})).lease, 3 * HOUR, "the first end of the leases of others")
    await harness.age(4 * HOUR)
    equal((await store.next_due(["a"], own=[mine])).lease, 0, "the first end when it's over")
    equal((await store.next_due(["a"], own=[])).lease, 0, "the first end, the own included")
    await store.take_expired(10, own=[mine])
    about((await store.next_due(["a"], own=[mine])).lease, HOUR, "the first end when one was taken")
    check(theirs != mine, "ids of two leases must differ")


@due()
async def of_jobs_without_a_lease(harness: Harness) -> None:
    """0 while jobs run without any lease, whatever became of its row; their own worker's don't count."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    claimed = await start_one(store, lease_id)
    await start_one(store, other)
    await harness.delete_lease(lease_id)
    equal((await store.next_due(["b"])).lease, 0, "the first end while a job has no lease")
    own = (await store.next_due(["b"], own=[lease_id])).lease
    about(own, HOUR, "the first end for the worker whose job it is")
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure()), orphaned=True)
    about((await store.next_due(["b"])).lease, HOUR, "the first end once it's settled")
