"""The store's verbs for those who read the log of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres._events import EventReaders
    from aioqueue.vocabulary._event_log import EventPage

__all__ = ["EventVerbs"]


class EventVerbs:
    """What `aioqueue.abc.SupportsEvents` asks for."""

    @property
    def _readers(self) -> EventReaders:
        """Those of the open store."""
        raise NotImplementedError

    async def open_reader(self, duration: float) -> UUID:
        """See `aioqueue.abc.SupportsEvents.open_reader`."""
        return await self._readers.open(duration)

    async def keep_reader(self, reader: UUID, duration: float) -> bool:
        """See `aioqueue.abc.SupportsEvents.keep_reader`."""
        return await self._readers.keep(reader, duration)

    async def begin_events(self, reader: UUID, *, timeout: float = 5.0) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.begin_events`."""
        return await self._readers.begin(reader, timeout)

    async def resume_events(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.resume_events`."""
        return await self._readers.resume(reader, sequence, limit)

    async def read_events(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.read_events`."""
        return await self._readers.read(reader, cursor, limit)
