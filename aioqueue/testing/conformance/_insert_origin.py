"""The cases about where jobs come from: it's stored with them, and goes on with their chains."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import REPLACE, expect_replaced
from aioqueue.testing.conformance._tools import (
    HOUR,
    claim_one,
    equal,
    failure,
    insert_one,
    job,
    next_step,
    settlement,
    snapshot,
    start_one,
    take_one,
    written,
)
from aioqueue.testing.conformance._waiting import ending
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._origin import Origin

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["NOON", "TICK", "origins_of", "subject"]

subject = Subject("origin")

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
"""A nominal time: whenever its tick is decided."""

TICK = Origin(schedule="shop/reports", nominal_time=NOON)
"""Where jobs of a schedule come from."""


async def origins_of(store: Store, *ids: UUID) -> list[Origin | None]:
    """Where these jobs come from, which must exist."""
    return [(await snapshot(store, each)).origin for each in ids]


@subject()
async def it_lasts(harness: Harness) -> None:
    """It's shown by each way of looking at a job, and told to whoever claims or recovers it, live, archived and live again."""
    store = harness.store
    new = job(origin=TICK, key="k")
    await insert_one(store, new)
    equal((await snapshot(store, new.id)).nominal_time, NOON, "the nominal time")
    listed = [
        *await store.fetch_ends([new.id]),
        *(await store.list(JobFilter(), 10)).jobs,
        *(await store.list_chain(new.id, 10)).jobs,
        await store.find(["a"], "k"),
    ]
    equal([each and each.origin for each in listed], [TICK] * 4, "where it comes from, as listed")
    lost = await store.open_lease("lost", 60)
    equal((await claim_one(store, lost)).origin, TICK, "where it comes from, as claimed")
    await harness.age(120)
    taken = await take_one(store)
    equal((taken.origin, taken.nominal_time), (TICK, NOON), "where it comes from, as recovered")
    await written(store, settlement(taken, SettlementKind.FAILED, error=failure()), orphaned=True)
    equal(await origins_of(store, new.id), [TICK], "where it comes from, once it's archived")
    await store.retry([new.id])
    equal((await claim_one(store, await store.open_lease("w", HOUR))).origin, TICK, "where it comes from, after a retry")


@subject()
async def most_have_none(harness: Harness) -> None:
    """A job that nobody says it of comes from nowhere, and has no nominal time; nor has one beside it in a batch."""
    store = harness.store
    plain, ticked = job(), job(origin=TICK)
    await store.insert([plain, ticked])
    found = await snapshot(store, plain.id)
    equal((found.origin, found.nominal_time), (None, None), "where a plain job comes from")
    claimed = await store.claim(await store.open_lease("w", HOUR), ["a"], 2)
    equal({each.id: each.origin for each in claimed}, {plain.id: None, ticked.id: TICK}, "as claimed")


@subject()
async def its_time_is_shown_in_utc(harness: Harness) -> None:
    """A nominal time that was given in another zone is the same moment."""
    store = harness.store
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    job_id = await insert_one(store, job(origin=Origin(schedule="s", nominal_time=tokyo)))
    nominal_time = (await snapshot(store, job_id)).nominal_time
    equal((nominal_time, nominal_time and nominal_time.utcoffset()), (NOON, timedelta(0)), "the nominal time")


@subject()
async def a_chain_keeps_it(harness: Harness) -> None:
    """A chain's next job takes it over, whoever lets it go on, and however often; children don't."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(origin=TICK))
    child, second = job("child"), job()
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=second, children=(child,)))
    third = await next_step(store, await claim_one(store, lease_id))
    equal((third.origin, third.position), (TICK, 2), "where the third step comes from, as claimed")
    last = job("b")
    await store.end([ending(third.id, SettlementKind.CONTINUED, next=last)])
    ids = (claimed.id, second.id, third.id, last.id, child.id)
    equal(await origins_of(store, *ids), [TICK, TICK, TICK, TICK, None], "where the steps and the child come from")


@subject()
async def a_plain_chain_has_none(harness: Harness) -> None:
    """A chain that comes from nowhere goes on like that."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    equal((await next_step(store, claimed)).origin, None, "where the second step comes from")


@subject()
async def who_takes_a_place_brings_its_own(harness: Harness) -> None:
    """A job that takes the place of a waiting one says where that comes from by then, also that it comes from nowhere."""
    store = harness.store
    holder = await insert_one(store, job(key="k", unique=REPLACE, delay=HOUR))
    for origin in (TICK, Origin(schedule="other"), None):
        await expect_replaced(store, job(key="k", unique=REPLACE, delay=HOUR, origin=origin), holder, f"of {origin}")
        equal(await origins_of(store, holder), [origin], "where it comes from by then")


@subject()
async def a_transaction_stores_it(harness: Harness) -> None:
    """It's stored by an insert within a transaction too."""
    store = harness.store
    new = job(origin=TICK)
    async with store.transaction() as transaction:
        await transaction.insert([new])
    equal(await origins_of(store, new.id), [TICK], "where it comes from")
