"""The cases of what `SupportsEvents` logs of operators, and of what no claim leads to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._events import body, reading
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    end_as,
    equal,
    failure,
    insert_one,
    job,
    settlement,
    start_one,
    written,
)
from aioqueue.testing.conformance._webhooks import end_with_webhook
from aioqueue.vocabulary._abilities import SupportsPrune, SupportsRetention
from aioqueue.vocabulary._abilities_telling import SupportsEvents, SupportsWebhooks
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Ending, NewJob, SettlementKind, StoredState
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("events")


@subject()
async def running_and_retrying_by_hand(harness: Harness) -> None:
    """One that is brought forward, or put off, is rescheduled; one that is revived is retrying without an error, or blocked."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    later = await insert_one(store, job(delay=HOUR))
    failed = await end_as(store, job("b"), SettlementKind.FAILED)
    behind = NewJob(id=new_id(), type="c", blockers=(NewBlocker(failed),))
    await store.insert([behind])
    async with reading(store) as log:
        await store.run_now([later])
        event = await log.last(later)
        equal(event.kind, EventKind.RESCHEDULED, "of one that is brought forward")
        about(body(event)["delay"], 0.0, "when it's due")
        await store.reschedule([later], delay=HOUR)
        event = await log.last(later)
        equal(event.kind, EventKind.RESCHEDULED, "of one that is put off")
        about(body(event)["delay"], HOUR, "when that is due")
        await store.retry([failed], cascade=True)
        equal((await log.last(failed)).kind, EventKind.RETRYING, "of one that is revived")
        equal(body(await log.last(failed)).get("error"), None, "its error")
        equal(await log.of(behind.id), [EventKind.BLOCKED], "of one behind it")


@subject()
async def ending_from_outside(harness: Harness) -> None:
    """Whoever ends a job: a cancellation, somebody without a claim, or its time to start that is over."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    lease_id = await store.open_lease("w", HOUR)
    cancelled, ended = await insert_one(store, job()), await insert_one(store, job(delay=HOUR))
    late = await insert_one(store, job("late", delay=0.5 * HOUR, expires=0.25 * HOUR))
    running = await start_one(store, lease_id, job("running"))
    async with reading(store) as log:
        await store.cancel([cancelled, running.id], "enough")
        event = await log.last(cancelled)
        equal((event.kind, body(event)["error"]["message"]), (EventKind.CANCELLED, "enough"), "of one that waited")
        equal(await log.of(running.id), [], "of one that was only asked to end")
        await written(store, settlement(running, SettlementKind.RETRIED, delay=0.0, error=failure()))
        equal(await log.of(running.id), [EventKind.CANCELLED], "when it has ended")
        await store.end([Ending(id=ended, kind=SettlementKind.COMPLETED, output=b"1", outcome="by hand")])
        equal(body(await log.last(ended)), {"outcome": "by hand"}, "of one that somebody else completed")
    await harness.age(HOUR)
    async with reading(store) as log:
        await store.tend(100)
        equal(await log.of(late), [EventKind.CANCELLED], "of one that wasn't started in time")


@subject()
async def removing(harness: Harness) -> None:
    """Each job that is removed is told of, live or finished, by hand or since it's old."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    live, finished = await insert_one(store, job()), await end_as(store, job("b"), SettlementKind.FAILED)
    old = await end_as(store, job("b"), SettlementKind.COMPLETED)
    kept_long = await end_as(store, job("b"), SettlementKind.CANCELLED)
    async with reading(store) as log:
        await store.delete([live, finished])
        if isinstance(store, SupportsPrune):
            await store.prune(StoredState.COMPLETED, 0.0, None, 10)
            equal(await log.of(old), [EventKind.DELETED], "of one that was old")
        if isinstance(store, SupportsRetention):
            await store.purge([kept_long], {StoredState.CANCELLED: 0.0})
            equal(await log.of(kept_long), [EventKind.DELETED], "of one that was kept for long enough")
        equal((await log.of(live), await log.of(finished)), ([EventKind.DELETED],) * 2, "of those deleted by hand")


@subject()
async def deliveries(harness: Harness) -> None:
    """What becomes of a webhook in the end, with the receiver's status; not its other tries."""
    store = harness.store
    if not isinstance(store, SupportsEvents) or not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    async with reading(store) as log:
        ids = await end_with_webhook(store, lease_id, 2)
        await log.read()
        tries = {
            each.job_id: DeliveryTry(id=each.id, tries=1, state=DeliveryState.PENDING)
            for each in await store.take_deliveries(2, HOUR)
        }
        ended = {ids[0]: (DeliveryState.DELIVERED, 200), ids[1]: (DeliveryState.FAILED, None)}
        for job_id, (state, status) in ended.items():
            await store.write_tries([replace(tries[job_id], state=state, status=status)] * 2)
        events = [(each.kind, each.job_id, body(each)) for each in await log.read()]
    told = [(EventKind.DELIVERED, ids[0], {"status": 200}), (EventKind.UNDELIVERED, ids[1], {"status": None})]
    equal(events, told, "what was logged")
