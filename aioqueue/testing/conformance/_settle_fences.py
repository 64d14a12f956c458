"""The cases of `Store.settle` about claims that are no longer the worker's, and about settlements that come again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    job,
    refused,
    settle_one,
    settlement,
    snapshot,
    start,
    start_one,
    written,
)
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("settle")

_LOST = (LostReason.TAKEN, LostReason.NOT_FOUND)


@subject()
async def is_fenced_by_claims_and_lease(harness: Harness) -> None:
    """A settlement with another number of claims, or of another lease, changes nothing, whatever its kind."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    claimed = await start_one(store, lease_id)
    for kind in SettlementKind:
        right = settlement(claimed, kind, output=b"1" if kind is SettlementKind.COMPLETED else None, error=failure())
        await refused(store, replace(right, claims=0), *_LOST)
        await refused(store, replace(right, claims=2), *_LOST)
        await refused(store, replace(right, lease_id=other), *_LOST)
        await refused(store, replace(right, lease_id=lease_id + 1000), *_LOST)
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@subject()
async def is_fenced_after_a_new_claim(harness: Harness) -> None:
    """The owner of an earlier claim is told that another has the job, even if the lease is the same."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    await store.release(lease_id, [first.claim])
    second = await claim_one(store, lease_id)
    for kind in SettlementKind:
        await refused(store, settlement(first, kind), LostReason.TAKEN)
    await written(store, settlement(second, SettlementKind.COMPLETED, output=b"2"))
    await refused(store, settlement(first, SettlementKind.COMPLETED, output=b"1"), LostReason.COMPLETED)
    equal((await snapshot(store, first.id)).output, 2, "the output of the valid claim")


@subject()
async def is_fenced_after_a_release(harness: Harness) -> None:
    """A claim that was given back is no longer the worker's."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await store.release(lease_id, [claimed.claim])
    for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
        await refused(store, settlement(claimed, kind), *_LOST)


@subject()
async def tells_why_a_claim_is_lost(harness: Harness) -> None:
    """Jobs that others have finished, cancelled or deleted are told apart."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    claimed = await start(store, lease_id, job(), job(), job(), job())
    await store.release(lease_id, [each.claim for each in claimed])
    again = {each.id: each for each in await store.claim(other, ["a"], 4)}
    await store.settle(
        [
            settlement(again[claimed[0].id], SettlementKind.COMPLETED, output=b"1"),
            settlement(again[claimed[1].id], SettlementKind.CANCELLED),
        ]
    )
    await store.release(other, [again[claimed[2].id].claim])
    await store.delete([claimed[2].id])
    results = await store.settle([settlement(each, SettlementKind.COMPLETED, output=b"0") for each in claimed])
    expected = [LostReason.COMPLETED, LostReason.CANCELLED, LostReason.NOT_FOUND, LostReason.TAKEN]
    equal([each.lost for each in results], expected, "the reasons")


@subject()
async def counts_while_the_lease_exists_though_expired(harness: Harness) -> None:
    """As long as nobody has taken the lease, a late outcome is still right."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(3 * HOUR)
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
    await expect_state(store, claimed.id, JobState.COMPLETED)


@subject()
async def is_fenced_when_the_lease_row_is_deleted(harness: Harness) -> None:
    """Without its lease's row a worker writes nothing, whoever deleted it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.delete_lease(lease_id)
    for kind in SettlementKind:
        await refused(store, settlement(claimed, kind), LostReason.TAKEN)


@subject()
async def repeating_answers_as_the_first_time(harness: Harness) -> None:
    """The answer to a settlement may have been lost: repeating each kind says that it's written, and writes nothing."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for kind in SettlementKind:
        claimed = await start_one(store, lease_id)
        what = settlement(claimed, kind, error=failure())
        if kind is SettlementKind.COMPLETED:
            what = replace(what, output=b"1", error=None)
        if kind in (SettlementKind.RETRIED, SettlementKind.RESCHEDULED):
            what = replace(what, delay=HOUR)
        await written(store, what)
        first = await snapshot(store, claimed.id)
        await written(store, what)
        equal(await snapshot(store, claimed.id), first, f"the job after {kind.name} was repeated")


@subject()
async def another_kind_isnt_a_repetition(harness: Harness) -> None:
    """Only what was written is answered as written: another outcome of the same claim is refused with the reason."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    back = (SettlementKind.RETRIED, SettlementKind.RESCHEDULED)
    for first in SettlementKind:
        for second in SettlementKind:
            if first is second or (first in back and second in back):
                continue
            claimed = await start_one(store, lease_id)
            await written(store, settlement(claimed, first, delay=HOUR if first in back else None))
            before = await snapshot(store, claimed.id)
            ended = LostReason.CANCELLED if first is SettlementKind.CANCELLED else LostReason.COMPLETED
            reason = LostReason.TAKEN if first in back else ended
            other = settlement(claimed, second, delay=HOUR if second in back else None)
            if Capability.KNOWS_GIVEN not in harness.capabilities and first is SettlementKind.CANCELLED and second in back:
                # It keeps no more than how the job ended, and can't tell it from one that gave way to a request.
                result = await settle_one(store, other)
                check(result.lost is reason or result.cancelled, f"{second.name} behind {first.name}, not {result!r}")
            else:
                await refused(store, other, reason)
            equal(await snapshot(store, claimed.id), before, f"the job after {second.name} came behind {first.name}")


@subject()
async def repeating_a_batch_of_which_some_is_new(harness: Harness) -> None:
    """After an unclear commit a batch may be sent again with others."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two, three = await start(store, lease_id, job(), job(), job())
    first = [settlement(one, SettlementKind.COMPLETED, output=b"1"), settlement(two, SettlementKind.RETRIED, delay=HOUR)]
    await store.settle(first)
    results = await store.settle([settlement(three, SettlementKind.FAILED, error=failure()), *first])
    equal([each.lost for each in results], [None, None, None], "the results")
    equal((await snapshot(store, two.id)).attempt, 1, "attempts of the retried one")


@subject()
async def the_same_settlement_twice_in_one_batch(harness: Harness) -> None:
    """A repetition within a batch is written once, and answered twice."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    what = settlement(claimed, SettlementKind.COMPLETED, output=b"1")
    equal([each.lost for each in await store.settle([what, what])], [None, None], "the results")
    await expect_state(store, claimed.id, JobState.COMPLETED)
