"""The cases of `SupportsWebhooks` about sending: who takes what, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    check,
    equal,
    failure,
    insert_one,
    job,
    settlement,
    start_chain,
    written,
)
from aioqueue.testing.conformance._webhooks import URL, all_deliveries, end_with_webhook, events_of
from aioqueue.vocabulary._abilities import SupportsPrune
from aioqueue.vocabulary._abilities_telling import SupportsWebhooks
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import SettlementKind, StoredState
from aioqueue.vocabulary._webhooks import DeliveryState, DeliveryTry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._webhooks import Delivery

__all__ = ["subject"]

subject = Subject("sending")


async def _take(store: SupportsWebhooks, limit: int = 100, without: Sequence[str] = ()) -> list[Delivery]:
    return list(await store.take_deliveries(limit, HOUR, without=without))


async def _deliver(store: SupportsWebhooks, each: Delivery, state: DeliveryState = DeliveryState.DELIVERED) -> None:
    await store.write_tries([DeliveryTry(id=each.id, tries=each.tries, state=state, status=200, response="ok")])


@subject()
async def taking_is_for_a_time(harness: Harness) -> None:
    """What is taken counts a try, and is nobody else's until the time is over."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    second = await harness.second_store()
    assert isinstance(second, SupportsWebhooks)
    equal(await store.next_delivery(), None, "seconds until the first is due, without any")
    lease_id = await store.open_lease("w", HOUR)
    ids = await end_with_webhook(store, lease_id, 3)
    equal(await second.next_delivery(), 0, "seconds until the first is due, where one is")
    first, rest = await _take(store, 2), await _take(second)
    equal([each.job_id for each in (*first, *rest)], ids, "what is taken, the first that became due before the others")
    equal([*await _take(store), *await _take(second)], [], "what is left")
    about(await store.next_delivery(), HOUR, "seconds until one may be taken again")
    await harness.age(2 * HOUR)
    again = await _take(second)
    equal({(each.id, each.tries, each.body) for each in again}, {(each.id, 2, each.body) for each in (*first, *rest)}, "again")


@subject()
async def hosts_can_be_left_out(harness: Harness) -> None:
    """None is taken of the hosts that are named: their port counts, unless it's the scheme's."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    urls = ("https://One.example:443/a", "https://one.example/b", "http://one.example:8080/", "https://two.example/")
    for url in urls:
        await end_with_webhook(store, lease_id, url=url)
    without = ["one.example", "two.example"]
    equal([each.url for each in await _take(store, without=without)], [urls[2]], "what is taken without two hosts")
    equal([each.url for each in await _take(store, without=["two.example"])], list(urls[:2]), "without one of them")
    equal([each.url for each in await _take(store)], [urls[3]], "without none")


@subject()
async def what_became_of_a_try(harness: Harness) -> None:
    """A try is kept with its answer: delivered, failed, or due again after a delay."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    ids = await end_with_webhook(store, lease_id, 3)
    taken = await _take(store)
    states = (DeliveryState.DELIVERED, DeliveryState.FAILED, DeliveryState.PENDING)
    await store.write_tries(
        [
            DeliveryTry(id=each.id, tries=1, state=state, delay=5 * HOUR, status=200 + number, response=f"answer {number}")
            for number, (each, state) in enumerate(zip(taken, states, strict=True))
        ]
    )
    found = {each.job_id: each for each in await all_deliveries(store)}
    for number, (job_id, state) in enumerate(zip(ids, states, strict=True)):
        each = found[job_id]
        equal((each.state, each.status, each.response), (state, 200 + number, f"answer {number}"), "what is kept of a try")
        equal((each.finished_at is None, each.next_at is None), (number == 2, number != 2), "whether it goes on")
    equal(await _take(store), [], "what is due then")
    about(await store.next_delivery(), 5 * HOUR, "seconds until it's due again")
    await harness.age(6 * HOUR)
    equal([(each.job_id, each.tries) for each in await _take(store)], [(ids[2], 2)], "what is due later")


@subject()
async def who_was_too_slow_changes_nothing(harness: Harness) -> None:
    """What became of a try isn't kept once somebody else has taken the delivery, or it's finished. Each counts on its own."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    ids = await end_with_webhook(store, lease_id, 2)
    slow, _ = await _take(store)
    await harness.age(2 * HOUR)
    first, other = await _take(store)
    tries = [
        DeliveryTry(id=new_id(), tries=1, state=DeliveryState.DELIVERED),
        DeliveryTry(id=slow.id, tries=slow.tries, state=DeliveryState.FAILED, response="too slow"),
        DeliveryTry(id=other.id, tries=other.tries, state=DeliveryState.DELIVERED, status=204),
    ]
    await store.write_tries(tries)
    found = {each.job_id: each.state for each in await all_deliveries(store)}
    equal(found, {ids[0]: DeliveryState.PENDING, ids[1]: DeliveryState.DELIVERED}, "states after the slow one")
    await _deliver(store, first)
    await _deliver(store, other, DeliveryState.FAILED)
    found = {each.job_id: each.state for each in await all_deliveries(store)}
    equal(found, dict.fromkeys(ids, DeliveryState.DELIVERED), "states after those who were in time")


@subject()
async def listed_page_by_page(harness: Harness) -> None:
    """The newest first; of one chain, or of one state."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    ids = await end_with_webhook(store, lease_id, 5)
    last = (await start_chain(store, lease_id, 2, job(webhook=URL)))[-1]
    await written(store, settlement(last, SettlementKind.FAILED, error=failure()))
    await _deliver(store, (await _take(store, 1))[0])
    seen: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await store.list_deliveries(limit=2, cursor=cursor)
        seen += [each.job_id for each in page.deliveries]
        if (cursor := page.cursor) is None:
            break
        check(page.deliveries, "a page with a cursor has deliveries")
    equal(seen, [last.id, *reversed(ids)], "all pages")
    of_chain = await store.list_deliveries(chain_id=last.chain_id)
    equal([each.job_id for each in of_chain.deliveries], [last.id], "of one chain")
    delivered = await store.list_deliveries(state=DeliveryState.DELIVERED)
    equal([each.job_id for each in delivered.deliveries], [ids[0]], "of one state")
    first = await store.list_deliveries(state=DeliveryState.PENDING, limit=3)
    rest = await store.list_deliveries(state=DeliveryState.PENDING, limit=3, cursor=first.cursor)
    found = [each.job_id for each in (*first.deliveries, *rest.deliveries)]
    equal((found, rest.cursor), ([last.id, *reversed(ids[1:])], None), "of the other")


@subject()
async def sent_once_more(harness: Harness) -> None:
    """What was delivered, has failed or waits is due at once if that is asked for: the same message, its tries counted anew."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    await end_with_webhook(store, lease_id, 3)
    first, second, third = await _take(store)
    await _deliver(store, first)
    await _deliver(store, second, DeliveryState.FAILED)
    again = DeliveryTry(id=third.id, tries=1, state=DeliveryState.PENDING, delay=HOUR)
    await store.write_tries([again])
    answers = await store.replay_deliveries([first.id, new_id(), second.id, third.id])
    equal(list(answers), [True, False, True, True], "whether each was there")
    taken = {(each.id, each.body, each.tries) for each in await _take(store)}
    equal(taken, {(each.id, each.body, 1) for each in (first, second, third)}, "what is taken then")


@subject()
async def kept_as_long_as_its_chain(harness: Harness) -> None:
    """A delivery that is finished goes with its chain; what is still to be sent of one that is deleted is sent."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", HOUR)
    ids = await end_with_webhook(store, lease_id, 4)
    for each in (await _take(store))[::2]:
        await _deliver(store, each)
    await store.delete(ids[:2])
    equal(
        [each.job_id for each in await all_deliveries(store)], [ids[3], ids[2], ids[1]], "what is left after two were deleted"
    )
    if isinstance(store, SupportsPrune):
        await store.prune(StoredState.COMPLETED, 0.0, None, 100)
        equal(
            [each.job_id for each in await all_deliveries(store)], [ids[3], ids[1]], "what is left after the others were pruned"
        )
    deleted = await insert_one(store, job("deleted", webhook=URL, delay=HOUR))
    await store.delete([deleted])
    check(deleted not in await events_of(store), "a deletion is told to nobody")


@subject()
async def the_oldest_are_forgotten(harness: Harness) -> None:
    """Whoever tends removes those that were finished over thirty days ago, though their chain is kept; no others."""
    store = harness.store
    if not isinstance(store, SupportsWebhooks):
        return
    lease_id = await store.open_lease("w", 2000 * HOUR)
    ids = await end_with_webhook(store, lease_id, 3)
    taken = await _take(store)
    await _deliver(store, taken[0])
    await harness.age(20 * 24 * HOUR)
    await _deliver(store, taken[1], DeliveryState.FAILED)
    await harness.age(11 * 24 * HOUR)
    await store.tend(100)
    equal([each.job_id for each in await all_deliveries(store)], [ids[2], ids[1]], "what is left")
