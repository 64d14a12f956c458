"""The cases of `Store.subscribe` about chains: whoever waits for a result is told when its chain has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    equal,
    failure,
    job,
    listening,
    next_step,
    settlement,
    start_chain,
    start_one,
    take_one,
    written,
)
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("chains")


@subject()
async def the_next_step_is_told(harness: Harness) -> None:
    """Workers hear of the next step's type, here and in other processes."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    with listening(store) as own, listening(await harness.second_store()) as others:
        await written(store, settlement(claimed, SettlementKind.CONTINUED, next=job("b")))
        await own.wait_for_type("b")
        await others.wait_for_type("b")


@subject(Capability.NAMES_TYPES)
async def the_next_step_is_told_with_its_delay(harness: Harness) -> None:
    """A due one has delay 0, a scheduled one at most its own; the type of the step before isn't named."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = [await start_one(store, lease_id) for _ in range(2)]
    with listening(store) as heard:
        await written(store, settlement(one, SettlementKind.CONTINUED, next=job("now")))
        found = await heard.wait(lambda each: "now" in (each.types or ()), "a step that is due")
        equal(found.delay, 0, "the delay of a step that is due")
        await written(store, settlement(two, SettlementKind.CONTINUED, next=job("soon", delay=2)))
        found = await heard.wait(lambda each: "soon" in (each.types or ()), "a step that's due soon")
        check(0 < found.delay <= 2, f"the delay of a step that's due in 2 s: {found.delay}")
        check("a" not in heard.named(), "the type of what has continued isn't pending")


@subject()
async def the_end_of_a_chain_is_told_by_its_id(harness: Harness) -> None:
    """Whoever waits for the chain's result hears of every kind of end, here and elsewhere, recovered ones included."""
    store, second = harness.store, await harness.second_store()
    with listening(store, finished=True) as own, listening(second, finished=True) as others:
        for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED):
            for orphaned in (False, True):
                lease_id = await store.open_lease("w", HOUR)
                steps = await start_chain(store, lease_id, 3)
                last = steps[-1]
                if orphaned:
                    await harness.age(2 * HOUR)
                    last = await take_one(store)
                own.notifications.clear()
                others.notifications.clear()
                await written(store, settlement(last, kind, error=failure()), orphaned=orphaned)
                await own.wait_for_end(steps[0].id)
                await others.wait_for_end(steps[0].id)
                await store.release(lease_id, [], end=True)


@subject(Capability.NAMES_FINISHED)
async def only_ends_of_chains_are_told_as_finished(harness: Harness) -> None:
    """Nobody waits for a continued step, nor for the last one by its own id."""
    store = harness.store
    first, second = await start_chain(store, await store.open_lease("w", HOUR), 2)
    with listening(store, finished=True) as heard:
        third = await next_step(store, second, job("b"))
        await heard.wait_for_type("b")
        equal([each.finished for each in heard.notifications if each.finished], [], "what is told as finished before the end")
        await written(store, settlement(third, SettlementKind.COMPLETED, output=b"1"))
        await heard.wait(lambda each: first.id in (each.finished or ()), "the chain's end")
        named = {each for found in heard.notifications for each in found.finished or ()}
        equal(named, {first.id}, "what is told as finished")


@subject()
async def a_deleted_chain_is_told_by_its_id(harness: Harness) -> None:
    """Whoever waits in the store for the result of a chain hears that it's gone, by whichever step it was deleted."""
    store = harness.store
    for place in range(2):
        steps = await start_chain(store, await store.open_lease("w", HOUR), 2)
        await written(store, settlement(steps[-1], SettlementKind.RETRIED, delay=HOUR))
        with listening(store, finished=True) as heard:
            await store.delete([steps[place].id])
            await heard.wait_for_end(steps[0].id)


@subject()
async def a_retried_chain_is_told(harness: Harness) -> None:
    """Workers hear of the last step's type when a chain is retried, or run now, by its id."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    last = await next_step(store, first, job("b"))
    await written(store, settlement(last, SettlementKind.FAILED, error=failure()))
    for verb in (store.retry, store.run_now):
        with listening(store) as heard:
            await verb([first.id])
            await heard.wait_for_type("b")
