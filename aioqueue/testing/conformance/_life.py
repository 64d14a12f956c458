"""The cases of the life of a store: opening, closing, migrating."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.abc import JobFilter
from aioqueue.errors import ClientClosed, RowRejected
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    equal,
    expect_state,
    insert_one,
    job,
    raises,
    settlement,
    start_one,
    written,
)
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("life")


@subject()
async def has_a_description(harness: Harness) -> None:
    """One line of text for logs."""
    description = harness.store.description
    check(description and "\n" not in description, f"the description must be one line: {description!r}")


@subject()
async def migrating_again_does_nothing(harness: Harness) -> None:
    """A schema that's up to date stays as it is, also when several look at once."""
    stores = [harness.store, await harness.second_store()]
    results: list[object] = []

    async def migrate(place: int) -> None:
        results.append(list(await stores[place % 2].migrate()))

    job_id = await insert_one(harness.store, job())
    async with anyio.create_task_group() as group:
        for place in range(4):
            group.start_soon(migrate, place)
    equal(len(results), 4, "calls that came back")
    check(not any(results), f"no migration may run again: {results!r}")
    await expect_state(harness.store, job_id, JobState.READY)


@subject()
async def closing_twice(harness: Harness) -> None:
    """A second close does nothing, and other stores go on."""
    second = await harness.second_store()
    job_id = await insert_one(second, job())
    await second.close()
    await second.close()
    await expect_state(harness.store, job_id, JobState.READY)


@subject()
async def a_closed_store_says_so(harness: Harness) -> None:
    """Every method raises ClientClosed once the store is closed; it may be opened again."""
    second = await harness.second_store()
    lease_id = await second.open_lease("w", HOUR)
    claimed = await start_one(second, lease_id)
    await second.close()
    ids = [claimed.id]
    done = settlement(claimed, SettlementKind.COMPLETED, output=b"1")
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "insert": lambda: second.insert([job()]),
        "open_lease": lambda: second.open_lease("w", HOUR),
        "claim": lambda: second.claim(lease_id, ["a"], 1),
        "settle": lambda: second.settle([done]),
        "release": lambda: second.release(lease_id, [claimed.claim]),
        "release with end": lambda: second.release(lease_id, [], end=True),
        "take_expired": lambda: second.take_expired(1),
        "next_due": lambda: second.next_due(["a"]),
        "fetch": lambda: second.fetch(ids),
        "list": lambda: second.list(JobFilter(), 1),
        "stats": second.stats,
        "retry": lambda: second.retry(ids),
        "run_now": lambda: second.run_now(ids),
        "delete": lambda: second.delete(ids),
        "transaction": lambda: _enter_transaction(second),
        "lease_session": lambda: _at_once(second.lease_session),
        "subscribe": lambda: _at_once(lambda: second.subscribe(lambda _: None).__enter__()),
    }
    for name, call in calls.items():
        await raises(ClientClosed, call(), f"{name} of a closed store")
    await expect_state(harness.store, claimed.id, JobState.RUNNING)
    await second.open()
    await written(second, done)


async def _at_once(call: Callable[[], object]) -> object:
    return call()


async def _enter_transaction(store: Store) -> None:
    async with store.transaction():
        pass


@subject()
async def what_one_connection_wrote_another_sees(harness: Harness) -> None:
    """Acknowledged means committed: at once visible to others."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    for _ in range(20):
        claimed = await start_one(store, lease_id)
        await expect_state(second, claimed.id, JobState.RUNNING)


@subject()
async def a_cancelled_call_leaves_nothing_behind(harness: Harness) -> None:
    """A call that's cancelled has happened whole or not at all, and the store goes on."""
    store = harness.store
    for rounds in range(12):
        new = [job(), job()]
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(store.insert, new)
                for _ in range(rounds):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        await insert_one(store, job("after"))
        found = await store.fetch([each.id for each in new])
        equal(len({each is None for each in found}), 1, "jobs of one insert that are there or not")


@subject()
async def one_bad_row_in_an_insert(harness: Harness) -> None:
    """A batch with a row that can't be stored is refused as a whole, if the database refuses it at all."""
    store = harness.store
    good, bad = job(), job(payload=b'{"broken"')
    try:
        await store.insert([good, bad])
    except RowRejected:
        equal(list(await store.fetch([good.id, bad.id])), [None, None], "jobs of a batch that was refused")
    await insert_one(store, job())
