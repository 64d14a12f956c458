"""The cases of `SupportsRetention.take_duty`; a store that hasn't got it passes them."""

from __future__ import annotations

import anyio

from aioqueue.testing.conformance import _tools
from aioqueue.testing.conformance._case import Harness, Subject
from aioqueue.testing.conformance._tools import HOUR, equal
from aioqueue.vocabulary._abilities import SupportsRetention

__all__ = ["subject"]

subject = Subject("duties")


@subject()
async def one_has_it(harness: Harness) -> None:
    """Whoever has a duty keeps it by asking again; nobody else gets it meanwhile. Duties don't mind each other."""
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsRetention) or not isinstance(second, SupportsRetention):
        return
    asked = [
        await store.take_duty("retention", "one", HOUR),
        await second.take_duty("retention", "two", HOUR),
        await store.take_duty("retention", "one", HOUR),
        await second.take_duty("other", "two", HOUR),
        await store.take_duty("other", "one", HOUR),
    ]
    equal(asked, [True, False, True, True, False], "whose it is")


@subject()
async def it_is_given_up(harness: Harness) -> None:
    """A duration of 0 gives it up, for whoever asks next; who hasn't got it gives up nothing."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    asked = [
        await store.take_duty("retention", "nobody", 0),
        await store.take_duty("retention", "one", HOUR),
        await store.take_duty("retention", "two", 0),
        await store.take_duty("retention", "two", HOUR),
        await store.take_duty("retention", "one", 0),
        await store.take_duty("retention", "two", HOUR),
    ]
    equal(asked, [False, True, False, False, False, True], "whose it is")


@subject()
async def it_runs_out(harness: Harness) -> None:
    """Whoever has stopped asking loses it to the next one when its time is over."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    asked = [await store.take_duty("retention", "one", 0.001)]
    with anyio.move_on_after(_tools.PATIENCE_SECONDS):
        # Each asking takes a while: the time is over soon.
        while not await store.take_duty("retention", "two", HOUR):
            pass
        asked.append(await store.take_duty("retention", "one", HOUR))
    equal(asked, [True, False], "whether the first gets it, and gets it back from the second")
