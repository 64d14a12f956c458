"""The cases of `SupportsWebhooks` about what ends of chains write; a store that hasn't got it passes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    check,
    equal,
    failure,
    insert_one,
    job,
    listening,
    near,
    next_step,
    rolled_back,
    settle_one,
    settlement,
    start_one,
    take_one,
    written,
)
from aioqueue.vocabulary._abilities_telling import SupportsWebhooks
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Ending, NewJob, SettlementKind
from aioqueue.vocabulary._webhooks import DeliveryState

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._webhooks import Delivery

__all__ = ["URL", "all_deliveries", "end_with_webhook", "events_of", "subject"]

subject = Subject("webhooks")

URL = "https://hooks.example/in?token=1"

_ENDS = {
    SettlementKind.COMPLETED: "job.completed",
    SettlementKind.FAILED: "job.failed",
    SettlementKind.CANCELLED: "job.cancelled",
}


async def all_deliveries(store: SupportsWebhooks) -> list[Delivery]:
    """What is stored, the newest first."""
    return list((await store.list_deliveries(limit=1000)).deliveries)


async def events_of(store: SupportsWebhooks) -> dict[UUID, str]:
    """Which event there is of each chain; each has one at most."""
    found = await all_deliveries(store)
    equal(len({each.chain_id for each in found}), len(found), "chains with a delivery, and deliveries")
    return {each.chain_id: each.event for each in found}


async def end_with_webhook(store: Store, lease_id: int, number: int = 1, url: str = URL) -> list[UUID]:
    """Jobs that have completed, and whose end is to be sent."""
    claimed = [await start_one(store, lease_id, job(webhook=url)) for _ in range(number)]
    for each in claimed:
        await written(store, settlement(each, SettlementKind.COMPLETED, output=b"1"))
    return [each.id for each in claimed]


async def _take(store: SupportsWebhooks) -> list[Delivery]:
    return list(await store.take_deliveries(100, HOUR))


def _sent(each: Delivery) -> dict[str, Any]:
    message: dict[str, Any] = orjson.loads(each.body)
    return message


@subject()
async def an_end_is_written_with_what_is_sent(harness: Harness) -> None:
    """Of each way in which an attempt ends its chain there is one delivery, due at once, whose body says what has happened."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    for kind, event in _ENDS.items():
        claimed = await start_one(store, lease_id, job(webhook=URL, key="k", tags=("red",), payload=b'{"secret":"hidden"}'))
        completed = kind is SettlementKind.COMPLETED
        error = None if completed else failure(message="it broke")
        output = b'{"b":1,"a":12345678901234567890}' if completed else None
        await written(store, settlement(claimed, kind, output=output, error=error, outcome="sent"))
        (delivery,) = await _take(store)
        (found,) = await store.fetch([claimed.id])
        assert found is not None
        assert found.finished_at is not None
        equal((delivery.job_id, delivery.chain_id, delivery.job_type), (claimed.id, claimed.id, "a"), "what it is about")
        equal((delivery.event, delivery.url, found.webhook), (event, URL, URL), "its event, its URL, and the job's")
        equal((delivery.state, delivery.tries), (DeliveryState.PENDING, 1), "its state and tries, once it's taken")
        near(delivery.created_at, found.finished_at, "when it was made", within=1)
        message = _sent(delivery)
        data = message.pop("data")
        at = data.pop("finished_at")
        equal(message, {"type": event, "timestamp": at}, "the message around its data")
        expected: dict[str, Any] = {
            "id": str(claimed.id),
            "chain_id": str(claimed.id),
            "job_type": "a",
            "state": event.removeprefix("job."),
            "attempt": 1,
            "key": "k",
            "tags": ["red"],
            "outcome": "sent",
        }
        if error is None:
            expected["output"] = data["output"]
        else:
            expected["error"] = {"type": "ValueError", "message": "it broke"}
        equal(data, expected, "its data")
        check(b"hidden" not in delivery.body, "arguments aren't sent")
        check(output is None or output in delivery.body, "the output is sent as it's stored")


@subject()
async def the_end_of_a_dry_run_says_that_it_is_one(harness: Harness) -> None:
    """A receiver mustn't take it for what has really happened."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    for dry_run in (True, False):
        await insert_one(store, job(webhook=URL))
        (claimed,) = await store.claim(lease_id, ["a"], 1, dry_run=dry_run)
        await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
        (delivery,) = await _take(store)
        equal(_sent(delivery)["data"].get("dry_run"), True if dry_run else None, "what it says of a dry run")


@subject()
async def what_goes_on_has_no_delivery(harness: Harness) -> None:
    """Not of an attempt that is repeated, nor of a chain that goes on; its last job tells whoever its first one was to tell,
    unless it has a webhook of its own, or says that nobody is told.
    """
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id, job(webhook=URL))
    await written(store, settlement(first, SettlementKind.RETRIED, error=failure()))
    (first,) = await store.claim(lease_id, ["a"], 1)
    last = await next_step(store, first)
    other = await next_step(store, await start_one(store, lease_id, job(webhook=URL)), job(webhook="https://other.example/"))
    hushed = await next_step(store, await start_one(store, lease_id, job(webhook=URL)), job(webhook=""))
    hushed = await next_step(store, hushed)
    for silent in (await start_one(store, lease_id), hushed):
        await written(store, settlement(silent, SettlementKind.COMPLETED))
        (ended,) = await store.fetch([silent.id])
        equal(ended and ended.webhook, None, "the webhook of one that tells nobody")
    equal(await all_deliveries(store), [], "deliveries before anything has ended that has a webhook")
    for each in (last, other):
        await written(store, settlement(each, SettlementKind.COMPLETED))
    found = {each.chain_id: each for each in await all_deliveries(store)}
    equal({each: found[each].url for each in found}, {first.id: URL, other.chain_id: "https://other.example/"}, "who is told")
    equal((found[first.id].job_id, _sent(found[first.id])["data"]["chain_id"]), (last.id, str(first.id)), "of which job")


@subject()
async def whoever_ends_it(harness: Harness) -> None:
    """Also where a lost worker's job fails, an operator cancels, somebody ends it from outside, it expires, or what it has
    waited for has failed.
    """
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    expected: dict[UUID, str] = {}
    lease_id = await store.open_lease("lost", 60)
    lost = await start_one(store, lease_id, job(webhook=URL))
    late = await insert_one(store, job("late", webhook=URL, expires=1, delay=1))
    await harness.age(120)
    taken = await take_one(store)
    await written(store, settlement(taken, SettlementKind.FAILED, error=failure()), orphaned=True)
    await store.tend(100)
    expected |= {lost.id: "job.failed", late: "job.cancelled"}

    lease_id = await store.open_lease("w", HOUR)
    waiting = await insert_one(store, job("waiting", webhook=URL, delay=HOUR))
    running = await start_one(store, lease_id, job(webhook=URL))
    await store.cancel([waiting, running.id], "enough")
    await written(store, settlement(running, SettlementKind.FAILED, error=failure(), yields=True))
    outside = await insert_one(store, job("outside", webhook=URL, delay=HOUR))
    await store.end([Ending(id=outside, kind=SettlementKind.COMPLETED, output=b"2")])
    expected |= {waiting: "job.cancelled", running.id: "job.cancelled", outside: "job.completed"}

    blocker = await start_one(store, lease_id)
    waits = NewJob(id=new_id(), type="b", webhook=URL, blockers=(NewBlocker(chain_id=blocker.id),))
    behind = NewJob(id=new_id(), type="b", webhook=URL, blockers=(NewBlocker(chain_id=waits.id),))
    await store.insert([waits, behind])
    await written(store, settlement(blocker, SettlementKind.FAILED, error=failure()))
    while (await store.tend(100)).more:
        pass
    expected |= {waits.id: "job.failed", behind.id: "job.failed"}
    equal(await events_of(store), expected, "the deliveries")


@subject()
async def only_with_the_end_itself(harness: Harness) -> None:
    """What is rolled back, refused, or written a second time since its answer was lost makes no delivery."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(webhook=URL))
    outside = await insert_one(store, job("outside", webhook=URL, delay=HOUR))
    with rolled_back():
        async with store.transaction() as tx:
            equal(await tx.hold(claimed.claim, lease_id), None, "why the claim is lost")
            await tx.settle([settlement(claimed, SettlementKind.COMPLETED)])
            await tx.end([Ending(id=outside, kind=SettlementKind.FAILED)])
            raise OnPurposeError
    await settle_one(store, settlement(claimed, SettlementKind.CONTINUED, next=job(id=outside)))
    equal(await all_deliveries(store), [], "deliveries of what was rolled back, or refused")
    async with store.transaction() as tx:
        await tx.hold(claimed.claim, lease_id)
        await tx.settle([settlement(claimed, SettlementKind.COMPLETED)])
        await tx.end([Ending(id=outside, kind=SettlementKind.FAILED)])
    await written(store, settlement(claimed, SettlementKind.COMPLETED))
    await settle_one(store, settlement(claimed, SettlementKind.FAILED, error=failure()))
    await store.end([Ending(id=outside, kind=SettlementKind.COMPLETED)])
    await store.cancel([claimed.id, outside], "too late")
    equal(await events_of(store), {claimed.id: "job.completed", outside: "job.failed"}, "deliveries after the commit")


@subject()
async def a_retried_job_tells_again(harness: Harness) -> None:
    """A job that is retried by hand, and ends once more, is told of once more: by another message."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(webhook=URL))
    await written(store, settlement(claimed, SettlementKind.FAILED, error=failure()))
    await store.retry([claimed.id])
    (claimed,) = await store.claim(lease_id, ["a"], 1)
    await written(store, settlement(claimed, SettlementKind.COMPLETED))
    found = await all_deliveries(store)
    equal([each.event for each in found], ["job.completed", "job.failed"], "events, the newest first")
    check(found[0].id != found[1].id, "each message has an id of its own")


@subject(Capability.TELLS_DELIVERIES)
async def listeners_are_told(harness: Harness) -> None:
    """Whoever sends them hears of a delivery when it's written, and when it's to be sent once more."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    with listening(store) as heard:
        await end_with_webhook(store, lease_id)
        await heard.wait(lambda each: each.deliveries, "a delivery")
    with listening(store) as heard:
        await store.replay_deliveries([each.id for each in await all_deliveries(store)])
        await heard.wait(lambda each: each.deliveries, "one that is sent once more")
