"""One stream of events, as whoever asked for it reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aioqueue.client._subscription import Subscription

if TYPE_CHECKING:
    from types import TracebackType

    from aioqueue.client._event_feed import EventFeed
    from aioqueue.client._subscription import Wanted
    from aioqueue.events import JobEvent, Reset

__all__ = ["EventStream"]


class EventStream:
    """What happens to jobs, from `Client.events`: `async with client.events() as stream: async for event in stream: …`.

    In the block of `async with` everything is in it that happens from its beginning on; so what is looked up there has no gap
    before the events. A plain `async for` begins with its first step. One task reads it.

    Arguments:
        feed: Reads the log for all streams of the client.
        wanted: Which events it gives.
        after: The sequence of the newest event that was seen before; None to begin with what happens from now on.
    """

    def __init__(self, feed: EventFeed, wanted: Wanted, after: int | None) -> None:
        self._feed = feed
        self._after = after
        self._subscription: Subscription | None = Subscription(wanted)
        self._begun = False

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JobEvent | Reset:
        """Wait for the next event.

        Raises:
            StopAsyncIteration: It was closed.
            ClientClosed: The client was closed.
            StoreUnavailable: It has to go on after an event, and the database can't be reached.
            StoreIncompatible: The database's schema doesn't fit this code.
        """
        if self._subscription is None:
            raise StopAsyncIteration
        await self._begin()
        return await self._subscription.next()

    def close(self) -> None:
        """Give nothing more. The end of an `async with` block does so, and so does dropping it."""
        if self._subscription is not None:
            self._feed.leave(self._subscription)
            self._subscription.end()
            self._subscription = None

    async def _begin(self) -> None:
        if self._begun or self._subscription is None:
            return
        self._feed.join(self._subscription)
        await self._subscription.begun()
        if self._after is not None:
            earlier = await self._feed.since(self._after)
            if earlier is None:
                self._subscription.reset(f"event {self._after} isn't in the log any more, or something is missing since")
            else:
                self._subscription.put_before(earlier)
        self._begun = True
