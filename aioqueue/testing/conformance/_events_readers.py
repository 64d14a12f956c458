"""The cases of how `SupportsEvents` is read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._events import reading
from aioqueue.testing.conformance._tools import HOUR, check, equal, insert_one, job, listening
from aioqueue.vocabulary._abilities_telling import SupportsEvents

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("events")


@subject()
async def portions(harness: Harness) -> None:
    """However small the pages are, each event comes once, in order; and so for each reader, whatever others have read."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    async with reading(store) as log, reading(store) as other:
        new = [job() for _ in range(5)]
        await store.insert(new[:3])
        for each in new[3:]:
            await insert_one(store, each)
        equal(sorted(each.job_id for each in await log.read(limit=2)), sorted(each.id for each in new), "in small pages")
        equal(await log.read(limit=2), [], "what comes once more")
        sequences = [each.sequence for each in log.seen]
        equal(sequences, sorted(sequences), "their order")
        equal(await other.read(), log.seen, "what the other one reads")


@subject()
async def resuming(harness: Harness) -> None:
    """After an event that is in the log come those that followed it, for another reader too, and in another process."""
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsEvents) or not isinstance(second, SupportsEvents):
        return
    async with reading(store) as log:
        ids = [await insert_one(store, job()) for _ in range(4)]
        await log.read()
        async with reading(second) as other:
            page = await second.resume_events(other.reader, log.seen[1].sequence, 1000)
            check(not page.reset, "an event that is in the log can be gone on from")
            equal([each.job_id for each in page.events][-2:], ids[2:], "what comes after the second of four")
            other.cursor = page.cursor
            ids.append(await insert_one(store, job()))
            equal([each.job_id for each in await other.read()], ids[4:], "what comes after that")


@subject()
async def resuming_after_what_is_not_there(harness: Harness) -> None:
    """A number that no event has, and one from before a time without readers, is a reset: nothing is left out silently."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    async with reading(store) as log:
        await insert_one(store, job())
        (event,) = await log.read()
        for unknown in (event.sequence + 1000, 2**62, 0, -1):
            page = await store.resume_events(log.reader, unknown, 10)
            equal((page.events, page.reset), ((), True), f"after {unknown}, which isn't there")
    await insert_one(store, job())
    async with reading(store) as log:
        page = await store.resume_events(log.reader, event.sequence, 10)
        equal((page.events, page.reset), ((), True), "after a time in which nobody has read")
        log.cursor = page.cursor
        new = await insert_one(store, job())
        equal([each.job_id for each in await log.read()], [new], "what comes after the page that says so")


@subject()
async def a_reader_that_is_over(harness: Harness) -> None:
    """One that has run out, was ended, or never was, isn't made valid again, and reads resets only."""
    store = harness.store
    if not isinstance(store, SupportsEvents):
        return
    async with reading(store) as log:
        ended = await store.open_reader(HOUR)
        check(await store.keep_reader(ended, 2 * HOUR), "a valid reader can be kept")
        check(await store.keep_reader(ended, 0.0), "a valid reader can be ended")
        for reader in (ended, await store.open_reader(0.0), uuid4()):
            check(not await store.keep_reader(reader, HOUR), "one that isn't valid isn't kept")
            check((await store.read_events(reader, log.cursor, 10)).reset, "one that isn't valid reads a reset")
        await insert_one(store, job())
        equal(len(await log.read()), 1, "what another reader sees, whose time isn't over")
        check((await store.read_events(log.reader, "what?", 10)).reset, "a cursor of somebody else's is a reset")


@subject()
async def whoever_listens_is_told(harness: Harness) -> None:
    """Somebody reads: then each process hears that there is something to read."""
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsEvents):
        return
    async with reading(store) as log:
        with listening(store) as own, listening(second) as others:
            await insert_one(store, job(delay=HOUR))
            for heard in (own, others):
                await heard.wait(lambda each: each.events or each.types is None, "events")
            equal(len(await log.read()), 1, "what there is to read")
