"""The cases of `Store.open_lease` and the lease session."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    job,
    lease_thread,
    refused,
    settlement,
    start,
    start_one,
    written,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim, JobState, LostReason, SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._answers import Renewal

__all__ = ["subject"]

subject = Subject("lease")


def _unchanged(renewal: Renewal) -> None:
    check(renewal.valid, "the lease must be valid")
    equal((len(renewal.lost), len(renewal.unheld)), (0, 0), "claims lost and unheld")


@subject()
async def ids_are_never_used_again(harness: Harness) -> None:
    """Each lease has a new id, also after others have ended or were deleted."""
    store = harness.store
    seen: list[int] = []
    for number in range(4):
        lease_id = await store.open_lease("same name", HOUR)
        seen.append(lease_id)
        if number % 2:
            await store.release(lease_id, [], end=True)
        else:
            await harness.delete_lease(lease_id)
    equal(len(set(seen)), 4, f"different ids among {seen!r}")


@subject()
async def ids_cant_be_guessed(harness: Harness) -> None:
    """Ids are positive, have 62 bits at most, and aren't counted: a count comes again after a restore from a backup."""
    seen = sorted([await harness.store.open_lease("w", HOUR) for _ in range(8)])
    check(seen[0] > 0 and seen[-1] <= 2**62, f"ids must be from 1 to 2**62: {seen!r}")
    steps = [later - earlier for earlier, later in pairwise(seen)]
    check(min(steps) > 2**10, f"ids must have a random part, and these are close together: {seen!r}")


@subject()
async def a_renewal_extends_it(harness: Harness) -> None:
    """A renewed lease is valid from now on for the new duration."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    async with lease_thread(store) as thread:
        for _ in range(3):
            await harness.age(HOUR * 0.7)
            renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
            _unchanged(renewal)
    equal(list(await store.take_expired(10)), [], "jobs of dead workers")
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@subject()
async def a_late_renewal_is_granted(harness: Harness) -> None:
    """An expired lease that nobody has taken goes on, and may claim again."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(5 * HOUR)
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
    _unchanged(renewal)
    equal(list(await store.take_expired(10)), [], "jobs of dead workers")
    await start_one(store, lease_id)


@subject()
async def a_renewal_of_a_deleted_lease_is_refused(harness: Harness) -> None:
    """A lease whose row is gone isn't valid, and doesn't come back."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.delete_lease(lease_id)
    async with lease_thread(store) as thread:
        for _ in range(2):
            check(not (await thread.renew(lease_id, HOUR, [claimed.claim])).valid, "a deleted lease can't be renewed")
        check(not (await thread.renew(lease_id + 1000, HOUR)).valid, "an unknown lease can't be renewed")
    equal([each.id for each in await store.take_expired(10)], [claimed.id], "jobs of dead workers")


@subject()
async def a_renewal_of_a_taken_lease_is_refused(harness: Harness) -> None:
    """Who was taken for dead has lost everything, even if it was only slow."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    equal([each.id for each in await store.take_expired(10)], [claimed.id], "jobs of dead workers")
    async with lease_thread(store) as thread:
        check(not (await thread.renew(lease_id, HOUR, [claimed.claim])).valid, "a taken lease can't be renewed")


@subject()
async def a_renewal_tells_what_is_lost(harness: Harness) -> None:
    """Claims that were asked about and are no longer held come back with their reasons."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    held, taken, again, done, ended, gone = await start(store, lease_id, *(job() for _ in range(6)))
    lost = (taken, again, done, ended, gone)
    await store.release(lease_id, [each.claim for each in lost])
    now = {each.id: each for each in await store.claim(other, ["a"], 10)}
    done_now = settlement(now[done.id], SettlementKind.COMPLETED, output=b"1")
    await store.settle([done_now, settlement(now[ended.id], SettlementKind.CANCELLED)])
    await store.release(other, [now[again.id].claim, now[gone.id].claim])
    await store.delete([gone.id])
    newer = await claim_one(store, lease_id)
    unknown = Claim(new_id(), 1)
    asked = [held.claim, *(each.claim for each in lost), newer.claim, unknown]
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, asked)
    equal((renewal.valid, tuple(renewal.unheld)), (True, ()), "valid and unheld")
    expected = {
        taken.claim: LostReason.TAKEN,
        again.claim: LostReason.TAKEN,
        done.claim: LostReason.COMPLETED,
        ended.claim: LostReason.CANCELLED,
        gone.claim: LostReason.NOT_FOUND,
        unknown: LostReason.NOT_FOUND,
    }
    equal(dict(renewal.lost), expected, "what is lost")


@subject()
async def a_renewal_tells_what_is_unheld(harness: Harness) -> None:
    """Claims of the lease that weren't asked about are found: the answer to a claim may have been lost."""
    store = harness.store
    lease_id, other = await store.open_lease("w", HOUR), await store.open_lease("other", HOUR)
    one, two, three = await start(store, lease_id, job(), job(), job())
    await start_one(store, other)
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, [two.claim])
        equal(set(renewal.unheld), {one.claim, three.claim}, "what is held without being asked about")
        await store.release(lease_id, [one.claim, Claim(three.id, 99)])
        renewal = await thread.renew(lease_id, HOUR, [two.claim])
        equal(set(renewal.unheld), {three.claim}, "what is left after a release")
    equal((await expect_state(store, one.id, JobState.READY)).attempt, 0, "attempts of what was given back")


@subject()
async def a_renewal_of_many_claims(harness: Harness) -> None:
    """Thousands of claims in one question."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job() for _ in range(1000)))
    unknown = [Claim(new_id(), 1) for _ in range(1000)]
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, [*unknown, *(each.claim for each in claimed)])
    equal((len(renewal.lost), len(renewal.unheld)), (1000, 0), "lost and unheld")


@subject()
async def connecting_before_the_first_renewal(harness: Harness) -> None:
    """A session may be connected before its first use, and again."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    async with lease_thread(store) as thread:
        await thread.connect()
        await thread.connect()
        _unchanged(await thread.renew(lease_id, HOUR))
        await thread.connect()
        _unchanged(await thread.renew(lease_id, HOUR))


@subject()
async def a_late_renewal_after_an_orphans_settlement(harness: Harness) -> None:
    """Once somebody else has written what an expired lease held, its owner is told that it lost it."""
    store, other = harness.store, await harness.second_store()
    lease_id = await store.open_lease("late", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    await written(other, settlement(claimed, SettlementKind.RETRIED, delay=HOUR, error=failure()), orphaned=True)
    async with lease_thread(store) as thread:
        renewal = await thread.renew(lease_id, HOUR, [claimed.claim])
    check(not renewal.valid or claimed.claim in renewal.lost, f"what was settled is lost to its owner: {renewal!r}")


@subject()
async def an_orphans_settlement_after_a_late_renewal(harness: Harness) -> None:
    """Once an expired lease has been renewed, nobody else can write what it holds."""
    store, other = harness.store, await harness.second_store()
    lease_id = await store.open_lease("late", HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(2 * HOUR)
    async with lease_thread(store) as thread:
        _unchanged(await thread.renew(lease_id, HOUR, [claimed.claim]))
    as_orphan = settlement(claimed, SettlementKind.RETRIED, delay=0, error=failure())
    await refused(other, as_orphan, LostReason.TAKEN, orphaned=True)
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@subject()
async def a_late_renewal_and_an_orphans_settlement_at_once(harness: Harness) -> None:
    """Whichever comes first: one of the two knows that it has lost."""
    store, other = harness.store, await harness.second_store()
    async with lease_thread(store) as thread:
        await thread.connect()
        for place in range(20):
            lease_id = await store.open_lease("late", HOUR)
            claimed = await start_one(store, lease_id)
            await harness.age(2 * HOUR)
            as_orphan = settlement(claimed, SettlementKind.FAILED, error=failure())
            settling = other.settle([as_orphan], orphaned=True)
            renewing = thread.renew(lease_id, HOUR, [claimed.claim])
            if place % 2:
                renewal, (result,) = await asyncio.gather(renewing, settling)
            else:
                (result,), renewal = await asyncio.gather(settling, renewing)
            kept = renewal.valid and claimed.claim not in renewal.lost
            won = result.lost is None and not result.busy
            check(not (kept and won), f"both were told that the job is theirs: {renewal!r}, {result!r}")
            await store.release(lease_id, [], end=True)
            await store.delete([claimed.id])


@subject()
async def closing_a_session_that_was_never_used(harness: Harness) -> None:
    """A session may be closed before its first use, and twice."""
    async with lease_thread(harness.store):
        pass
