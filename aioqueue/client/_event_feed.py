"""Reads the log of events once, for all streams of a client."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
from typing import TYPE_CHECKING
from weakref import WeakSet

from aioqueue.errors import ClientClosed, NotSupported, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.runtime._log import event
from aioqueue.vocabulary._abilities_telling import SupportsEvents

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client._subscription import Subscription
    from aioqueue.vocabulary._event_log import EventPage, LoggedEvent
    from aioqueue.vocabulary._notification import Notification

__all__ = ["EventFeed"]

logger = logging.getLogger("aioqueue")

_VALID_SECONDS = 60.0
"""For which the log's reader is valid; it's kept four times as often."""
_LINGER_SECONDS = 60.0
"""For which events are logged when the last stream has gone: one that comes back meanwhile goes on where it was."""
_LOOK_APART_SECONDS = 0.02
"""Between two looks, whatever is told: what happens meanwhile is read together."""
_PAGE_EVENTS = 500
_GREATEST_SEQUENCE = 2**63 - 1
_MOST_SINCE = 10_000
"""Events that are read for a stream that goes on after one; beyond them it's reset."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 3.0


class EventFeed:
    """The one reader that a client has in its store while there are streams, and for a minute after the last of them.

    Arguments:
        store: Open, when a stream joins.
        poll_interval: Seconds after which it's read anyway, since notifications may be lost.
    """

    def __init__(self, store: Store, poll_interval: float) -> None:
        self._store = store
        self._poll_interval = poll_interval
        self._all: WeakSet[Subscription] = WeakSet()
        self._reader: UUID | None = None
        self._cursor = ""
        self._linger_until = self._keep_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def _log(self) -> SupportsEvents:
        if not isinstance(self._store, SupportsEvents):
            raise NotSupported(f"{self._store.description} keeps no log of events", ability="events")
        return self._store

    # -- for streams ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Look whether there is a log to read.

        Raises:
            NotSupported: There is none.
        """
        assert self._log is not None

    def join(self, subscription: Subscription) -> None:
        """Hand on to a stream what is read from now on. Doing so again changes nothing.

        Raises:
            ClientClosed: The client was closed.
        """
        if self._closed:
            raise ClientClosed("the client was closed")
        self._all.add(subscription)
        if self._reader is not None:
            subscription.begin()
        if self._task is None or self._task.done():
            # From an empty context: the first stream's, such as a request's, would live on in it.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="aioqueue events", context=contextvars.Context())
            self._task.add_done_callback(self._stopped, context=contextvars.Context())

    def leave(self, subscription: Subscription) -> None:
        """Hand on nothing more to a stream."""
        self._all.discard(subscription)

    async def since(self, sequence: int) -> list[LoggedEvent] | None:
        """All that has happened since an event, but for it; None if that isn't known.

        Raises:
            StoreUnavailable: The database can't be reached.
        """
        reader, log = self._reader, self._log
        if reader is None or not 0 < sequence <= _GREATEST_SEQUENCE:
            return None
        page = await log.resume_events(reader, sequence, _PAGE_EVENTS)
        events = [each for each in page.events if each.sequence != sequence]
        while page.events and not page.reset and len(events) <= _MOST_SINCE:
            page = await log.read_events(reader, page.cursor, _PAGE_EVENTS)
            events += page.events
        return None if page.reset or len(events) > _MOST_SINCE else events

    async def aclose(self) -> None:
        """End all streams, and the reader in the store; the caller sets a bound."""
        self._closed = True
        try:
            if (task := self._task) is not None:
                task.cancel()
                await asyncio.wait([task])
            await self._end_reader()
        finally:
            self._fail(ClientClosed("the client was closed while events were read"))

    # -- reading ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        # Subscribed before the first look, or what is told in between would be read by the poll only.
        with self._store.subscribe(self._notice):
            while True:
                while self._is_wanted():
                    try:
                        await self._turn()
                    except (ClientClosed, StoreIncompatible):
                        raise
                    except Exception as error:  # noqa: BLE001 - logged; it goes on
                        await self._fails(error)
                await self._end_reader()
                if not self._all:  # none has joined meanwhile
                    return

    async def _turn(self) -> None:
        """Read once, if there is something to read, and keep the reader."""
        if self._reader is None:
            await self._open_reader()
        else:
            await self._wait()
        now = asyncio.get_running_loop().time()
        reader = self._reader
        if reader is None:
            return
        if now >= self._keep_at:
            self._keep_at = now + _VALID_SECONDS / 4
            if not await self._log.keep_reader(reader, _VALID_SECONDS):
                self._lose_reader("this process was away for too long")
                return
        await self._look(reader)
        self._pause = _FIRST_PAUSE_SECONDS

    async def _open_reader(self) -> None:
        reader = await self._log.open_reader(_VALID_SECONDS)
        page = await self._log.begin_events(reader)
        self._reader, self._cursor = reader, page.cursor
        self._keep_at = asyncio.get_running_loop().time() + _VALID_SECONDS / 4
        for each in list(self._all):
            each.begin()
            if page.reset:
                each.reset("somebody's transaction is open for too long: what it does may not be among the events")

    async def _look(self, reader: UUID) -> None:
        self._wake.clear()
        while True:
            page = await self._log.read_events(reader, self._cursor, _PAGE_EVENTS)
            if page.reset:
                self._lose_reader("the log doesn't reach back far enough")
                return
            self._cursor = page.cursor
            self._hand_on(page)
            if not page.events:
                return

    def _hand_on(self, page: EventPage) -> None:
        if page.events:
            for each in list(self._all):
                each.put(page.events)

    async def _wait(self) -> None:
        """Until there may be something to read; at the latest, a poll interval."""
        spread = random.uniform(0.9, 1.1)  # noqa: S311 - keeps the polls of many processes apart
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._poll_interval * spread, _VALID_SECONDS / 4)):
                await self._wake.wait()
                await asyncio.sleep(_LOOK_APART_SECONDS)

    def _is_wanted(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._all:
            self._linger_until = now + _LINGER_SECONDS
            return True
        return now < self._linger_until

    def _notice(self, notification: Notification) -> None:
        if notification.events or notification.types is None:
            self._wake.set()

    def _lose_reader(self, reason: str) -> None:
        """Begin anew with another reader: events may be missing."""
        self._reader = None
        for each in list(self._all):
            each.reset(reason)

    async def _end_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(StoreError):
                await self._log.keep_reader(reader, 0.0)

    # -- trouble ----------------------------------------------------------------------------------------------------

    async def _fails(self, error: Exception) -> None:
        if self._pause == _FIRST_PAUSE_SECONDS:
            logger.warning(
                "events can't be read at the moment, trying again: %s",
                type(error).__name__,
                exc_info=None if isinstance(error, StoreUnavailable) else error,
                extra=event("client.events_retried"),
            )
        self._wake.set()  # there may be something to read
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - keeps many processes apart

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # The event loop ends, or the client is being closed.
            self._fail(ClientClosed("the client was closed while events were read"))
        elif (error := task.exception()) is not None:
            logger.error("reading events has failed: %s", type(error).__name__, extra=event("client.events_failed"))
            self._reader = None
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        for each in list(self._all):
            each.fail(error)
        self._all.clear()
