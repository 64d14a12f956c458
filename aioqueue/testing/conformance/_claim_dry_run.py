"""The cases of `Store.claim` about dry runs: what is claimed as one is one to its chain's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._insert_origin import NOON, TICK, origins_of
from aioqueue.testing.conformance._tools import (
    HOUR,
    claim_one,
    equal,
    failure,
    insert_one,
    job,
    next_step,
    settlement,
    take_one,
    written,
)
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._origin import Origin

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["subject"]

subject = Subject("dry_run")

DRY = Origin(dry_run=True)


async def _claim_dry(store: Store, lease_id: int) -> ClaimedJob:
    (claimed,) = await store.claim(lease_id, ["a"], 1, dry_run=True)
    return claimed


@subject()
async def a_claim_makes_it_one(harness: Harness) -> None:
    """What is claimed as a dry run says so at once, and is stored as one; what isn't claimed isn't."""
    store = harness.store
    first, second = job(), job()
    await store.insert([first, second])
    claimed = await _claim_dry(store, await store.open_lease("w", HOUR))
    equal((claimed.id, claimed.origin), (first.id, DRY), "what is claimed")
    equal(await origins_of(store, first.id, second.id), [DRY, None], "what is stored")
    plain = await claim_one(store, await store.open_lease("other", HOUR))
    equal((plain.id, plain.origin), (second.id, None), "what is claimed as usual")


@subject()
async def a_tick_stays_one(harness: Harness) -> None:
    """A dry run of a schedule's job still says which tick it's of."""
    store = harness.store
    job_id = await insert_one(store, job(origin=TICK))
    claimed = await _claim_dry(store, await store.open_lease("w", HOUR))
    expected = Origin(schedule=TICK.schedule, nominal_time=NOON, dry_run=True)
    equal([claimed.origin, *await origins_of(store, job_id)], [expected, expected], "where it comes from")


@subject()
async def whoever_goes_on(harness: Harness) -> None:
    """Its retries and its chain's next jobs are dry runs too, though they're claimed as usual; so is what is recovered."""
    store = harness.store
    await insert_one(store, job())
    claimed = await _claim_dry(store, await store.open_lease("dry", HOUR))
    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))
    lost = await store.open_lease("lost", 60)
    again = await claim_one(store, lost)
    equal((again.attempt, again.origin), (2, DRY), "its second attempt")
    following = await next_step(store, again)
    equal(following.origin, DRY, "its chain's next job")
    await harness.age(120)
    equal((await take_one(store)).origin, DRY, "the one that is recovered")


@subject()
async def it_is_still_one_after_its_end(harness: Harness) -> None:
    """The archive says so; and a retry by hand is one too."""
    store = harness.store
    job_id = await insert_one(store, job())
    claimed = await _claim_dry(store, await store.open_lease("w", HOUR))
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure()))
    equal(await origins_of(store, job_id), [DRY], "in the archive")
    await store.retry([job_id])
    equal((await claim_one(store, claimed.lease_id)).origin, DRY, "after a retry")
