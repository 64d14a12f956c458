"""The cases of `Store.open_lease` about names that only one valid lease may have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue.errors import SingletonHeld
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    check,
    equal,
    lease_thread,
    raises,
    refused,
    settlement,
    start_one,
    states_of,
    take_one,
)
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("singleton")


async def _held(store: Store, name: str) -> SingletonHeld:
    try:
        lease_id = await store.open_lease("late", HOUR, singleton=name)
    except SingletonHeld as error:
        return error
    raise AssertionError(f"a second lease of the name {name} must be refused, and got the id {lease_id}")


async def _try(store: Store, worker: str, name: str = "cleaner") -> int | None:
    """Open a lease of a name; None if another one has it."""
    try:
        return await store.open_lease(worker, HOUR, singleton=name)
    except SingletonHeld:
        return None


async def _named(store: Store) -> dict[str, str | None]:
    """The names that leases have, by their workers'."""
    return {each.worker: each.singleton for each in await store.leases()}


@subject()
async def only_one_has_it(harness: Harness) -> None:
    """Who asks for the name of a valid lease hears who has it and for how long, and gets none. Other names, and leases without
    one, don't mind.
    """
    store, second = harness.store, await harness.second_store()
    await store.open_lease("first", HOUR, singleton="cleaner")
    error = await _held(second, "cleaner")
    equal((error.name, error.worker), ("cleaner", "first"), "the name that is held, and by whom")
    about(error.ends_in, HOUR, "seconds until it runs out")
    check(await _try(second, "other", "Cleaner") is not None, "another name must be free")
    await second.open_lease("plain", HOUR)
    await second.open_lease("plainer", HOUR)
    expected = {"first": "cleaner", "other": "Cleaner", "plain": None, "plainer": None}
    equal(await _named(store), expected, "the leases and their names")


@subject()
async def it_is_free_after_the_end(harness: Harness) -> None:
    """A lease that is ended, or whose row is gone, leaves its name to the next one at once."""
    store = harness.store
    first = await store.open_lease("first", HOUR, singleton="cleaner")
    await store.release(first, [], end=True)
    second = await store.open_lease("second", HOUR, singleton="cleaner")
    await harness.delete_lease(second)
    await store.open_lease("third", HOUR, singleton="cleaner")
    equal(await _named(store), {"third": "cleaner"}, "the leases and their names")


@subject()
async def a_renewal_keeps_it(harness: Harness) -> None:
    """As long as its lease is renewed in time nobody else gets the name."""
    store = harness.store
    lease_id = await store.open_lease("first", HOUR, singleton="cleaner")
    async with lease_thread(store) as thread:
        for _ in range(3):
            await harness.age(HOUR * 0.7)
            check((await thread.renew(lease_id)).valid, "the lease must be valid")
            await _held(store, "cleaner")


@subject()
async def one_that_has_run_out_is_taken_over(harness: Harness) -> None:
    """The next one gets the name; the lease that had it is gone: it can't be renewed, its jobs aren't its own any more, and
    they're recovered as those of a dead worker.
    """
    store, second = harness.store, await harness.second_store()
    first = await store.open_lease("frozen", 60, singleton="cleaner")
    claimed = await start_one(store, first)
    await harness.age(120)
    check(await _try(second, "next") is not None, "the name of a lease that has run out must be free")
    equal(await _named(store), {"next": "cleaner"}, "the leases and their names")
    async with lease_thread(store) as thread:
        check(not (await thread.renew(first, held=[claimed.claim])).valid, "the lease that has run out can't be renewed")
    await refused(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"), LostReason.TAKEN)
    equal((await take_one(second)).claim, claimed.claim, "what is recovered")
    equal(await states_of(store, claimed.id), [JobState.RUNNING], "the state of what nobody has settled yet")


@subject()
async def others_stay(harness: Harness) -> None:
    """Taking a name over leaves other leases alone that have run out: recovery takes those."""
    store = harness.store
    for worker, singleton in (("plain", None), ("other", "other"), ("first", "cleaner")):
        await store.open_lease(worker, 60, singleton=singleton)
    await harness.age(120)
    check(await _try(store, "next") is not None, "the name of a lease that has run out must be free")
    equal(await _named(store), {"plain": None, "other": "other", "next": "cleaner"}, "the leases and their names")


@subject()
async def who_asks_together(harness: Harness) -> None:
    """Of several who ask for a name at the same moment one gets it, whether nobody had it or one that has run out."""
    stores = (harness.store, await harness.second_store())
    for _ in range(3):
        asked = await asyncio.gather(*(_try(stores[number % 2], str(number)) for number in range(6)))
        got = [each for each in asked if each is not None]
        equal(len(got), 1, "leases of one name")
        await harness.age(HOUR * 2)
    taken = await _try(stores[0], "last")
    equal([each.id for each in await stores[1].leases()], [taken], "the leases, after it was taken over")


@subject()
async def a_renewal_while_it_is_taken_over(harness: Harness) -> None:
    """Of a late renewal, and somebody else who asks for the name at the same moment, one comes first: never both."""
    store, second = harness.store, await harness.second_store()
    async with lease_thread(store) as thread:
        await thread.connect()
        for number in range(5):
            name = f"cleaner {number}"
            first = await store.open_lease("late", 60, singleton=name)
            await harness.age(120)
            renewal, taken = await asyncio.gather(thread.renew(first), _try(second, "next", name))
            check(renewal.valid is (taken is None), f"renewed: {renewal.valid}; taken over: {taken is not None}")


@subject()
async def it_refuses_nothing_else(harness: Harness) -> None:
    """After a refusal the store goes on as before."""
    store = harness.store
    lease_id = await store.open_lease("first", HOUR, singleton="cleaner")
    for _ in range(3):
        await raises(SingletonHeld, store.open_lease("late", HOUR, singleton="cleaner"), "a second lease of the name")
    claimed = await start_one(store, lease_id)
    equal(claimed.lease_id, lease_id, "whose it is")
