"""The cases of the life of a store: opening, closing, migrating."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import ClientClosed, ConfigurationError, RowRejected
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    equal,
    expect_state,
    insert_one,
    job,
    lease_thread,
    raises,
    settlement,
    start_one,
    written,
)
from aioqueue.testing.conformance._verbs import blocking_verbs, each_verb_raises
from aioqueue.vocabulary._abilities import SupportsMigrate
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("life")


@subject()
async def has_a_description(harness: Harness) -> None:
    """One line of text for logs."""
    description = harness.store.description
    check(description and "\n" not in description, f"the description must be one line: {description!r}")


@subject()
async def closing_twice(harness: Harness) -> None:
    """A second close does nothing, and other stores go on."""
    second = await harness.second_store()
    job_id = await insert_one(second, job())
    await second.close()
    await second.close()
    await expect_state(harness.store, job_id, JobState.READY)


@subject()
async def a_store_that_was_never_opened_says_so(harness: Harness) -> None:
    """Every verb raises ClientClosed; closing does nothing."""
    store = harness.new_store()
    lease_id = await harness.store.open_lease("w", HOUR)
    claimed = await start_one(harness.store, lease_id)
    await each_verb_raises(ClientClosed, store, claimed, "a store that was never opened")
    equal(dict(store.troubles), {}, "troubles of a store that was never opened")
    await store.close()
    await expect_state(harness.store, claimed.id, JobState.RUNNING)


@subject()
async def a_closed_store_says_so(harness: Harness) -> None:
    """Every verb raises ClientClosed once the store is closed; it may be opened again."""
    second = await harness.second_store()
    lease_id = await second.open_lease("w", HOUR)
    claimed = await start_one(second, lease_id)
    await second.close()
    await each_verb_raises(ClientClosed, second, claimed, "a closed store")
    equal(dict(second.troubles), {}, "troubles of a closed store")
    await expect_state(harness.store, claimed.id, JobState.RUNNING)
    await second.open()
    await written(second, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@subject()
async def opening_twice(harness: Harness) -> None:
    """A store that is open can't be opened, and goes on; of several that open it at once one does."""
    await raises(ConfigurationError, harness.store.open(), "a second open")
    job_id = await insert_one(harness.store, job())
    store = harness.new_store()
    try:
        *results, early = await asyncio.gather(*[store.open() for _ in range(3)], store.stats(), return_exceptions=True)
        equal(sum(each is None for each in results), 1, "calls of open at once that opened the store")
        refused = [each for each in results if isinstance(each, ConfigurationError)]
        check(isinstance(early, ClientClosed), f"a verb while the store is being opened must raise ClientClosed, not {early!r}")
        equal(len(refused), 2, f"calls of open at once that were refused with ConfigurationError, of {results!r}")
        await expect_state(store, job_id, JobState.READY)
    finally:
        await store.close()


@subject()
async def closing_while_it_is_being_opened(harness: Harness) -> None:
    """Whoever opens it is told, unless it had been opened by then; it's closed in the end, and may be opened again."""
    store = harness.new_store()
    opening = asyncio.ensure_future(store.open())
    await anyio.lowlevel.checkpoint()
    await store.close()
    (result,) = await asyncio.gather(opening, return_exceptions=True)
    check(result is None or isinstance(result, ClientClosed), f"opening a store that is closed meanwhile gave {result!r}")
    await raises(ClientClosed, store.stats(), "a verb of a store that was closed while it was being opened")
    await store.open()
    await store.stats()
    await store.close()


@subject()
async def another_event_loop_is_told(harness: Harness) -> None:
    """In another event loop every verb, and close, raises ClientClosed, and open ConfigurationError; the store goes on."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)

    async def elsewhere() -> None:
        await each_verb_raises(ClientClosed, store, claimed, "a store of another event loop")
        await raises(ClientClosed, store.close(), "closing a store of another event loop")
        await raises(ConfigurationError, store.open(), "opening a store that is open in another event loop")
        check(store.description, "a description is there in every event loop")
        equal(dict(store.troubles), {}, "troubles of a store that is well, seen from another event loop")

    def without_a_loop() -> None:
        for name, call in blocking_verbs(store).items():
            try:
                call()
            except ClientClosed:
                continue
            raise AssertionError(f"{name} in a thread without an event loop must raise ClientClosed")

    await asyncio.to_thread(asyncio.run, elsewhere())
    await asyncio.to_thread(without_a_loop)
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))


@subject()
async def an_event_loop_that_was_closed(harness: Harness) -> None:
    """What was opened in it isn't open any more; it may be closed, and opened again."""
    lease_id = await harness.store.open_lease("w", HOUR)
    claimed = await start_one(harness.store, lease_id)
    left = [harness.new_store() for _ in range(2)]

    async def open_only() -> None:
        for store in left:
            await store.open()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it says that nobody has closed them, and is right
        await asyncio.to_thread(asyncio.run, open_only())
        for store in left:
            await each_verb_raises(ClientClosed, store, claimed, "a store whose event loop was closed")
        await left[0].close()
        await left[0].close()
        await raises(ClientClosed, left[0].stats(), "a verb after that store was closed")
        for store in left:
            await store.open()
            await expect_state(store, claimed.id, JobState.RUNNING)
            await store.close()


@subject()
async def a_transaction_whose_store_is_closed(harness: Harness) -> None:
    """It's rolled back: what it does then, and the end of its block, raise ClientClosed."""
    second = await harness.second_store()
    first, late = job(), job()
    try:
        async with second.transaction() as transaction:
            await transaction.insert([first])
            await second.close()
            await raises(ClientClosed, transaction.insert([late]), "an insert after the store was closed")
    except ClientClosed:
        pass
    else:
        raise AssertionError("the end of a transaction whose store was closed must raise ClientClosed")
    equal(list(await harness.store.fetch([first.id, late.id])), [None, None], "jobs of a transaction whose store was closed")
    await second.open()


@subject()
async def a_lease_session_whose_store_is_closed(harness: Harness) -> None:
    """It raises ClientClosed, so that a worker whose client is closed beneath it learns of that; and it can be closed."""
    second = await harness.second_store()
    lease_id = await second.open_lease("w", HOUR)
    async with lease_thread(second) as renewing, lease_thread(second) as idle:
        check((await renewing.renew(lease_id)).valid, "a renewal while the store is open")
        await second.close()
        await raises(ClientClosed, renewing.renew(lease_id), "a renewal after the store was closed")
        await raises(ClientClosed, idle.connect(), "connecting for leases after the store was closed")
        await second.open()
        await raises(ClientClosed, renewing.renew(lease_id), "a renewal after the store was opened anew")


@subject()
async def migrating_again_does_nothing(harness: Harness) -> None:
    """A schema that's up to date stays as it is, also when several look at once, wherever the store is open."""
    store, new, closed = harness.store, harness.new_store(), harness.new_store()
    if not isinstance(store, SupportsMigrate):
        return
    await closed.open()
    await closed.close()
    job_id = await insert_one(store, job())
    calls = [each.migrate() for each in (store, store, new, closed) if isinstance(each, SupportsMigrate)]
    ran = [name for names in await asyncio.gather(*calls) for name in names]
    equal((len(calls), *ran), (4,), "calls of migrate, and migrations that ran a second time")
    equal(list(await asyncio.to_thread(asyncio.run, _migrate(store))), [], "migrations that ran in another event loop")
    await raises(ClientClosed, new.stats(), "a verb of a store that has migrated, and was never opened")
    await expect_state(store, job_id, JobState.READY)


async def _migrate(store: SupportsMigrate) -> Sequence[str]:
    return await store.migrate()


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
    """A batch with a row that isn't JSON is refused as a whole."""
    store = harness.store
    good = job()
    for bad in (job(payload=b'{"broken"'), job(metadata=b"{broken}")):
        await raises(RowRejected, store.insert([good, bad]), f"an insert of {bad!r}")
        equal(list(await store.fetch([good.id, bad.id])), [None, None], "jobs of a batch that was refused")
    await insert_one(store, good)
