"""Readers of the log of events, and what they read. One writes at a time: a cursor is the sequence of the newest one seen."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from aioqueue.vocabulary._event_log import EventPage

if TYPE_CHECKING:
    from aioqueue.testing.memory._rows import Database

__all__ = ["begin_events", "keep_reader", "open_reader", "read_events", "resume_events"]


def open_reader(database: Database, duration: float) -> UUID:
    """Have events logged. See `SupportsEvents.open_reader`."""
    now, log, reader = database.now(), database.events, uuid4()
    log.clean(now)
    if not log.watched(now):
        log.gap = log.sequence
    log.readers[reader] = now + timedelta(seconds=duration)
    return reader


def keep_reader(database: Database, reader: UUID, duration: float) -> bool:
    """Let a reader be valid for longer. See `SupportsEvents.keep_reader`."""
    now, log = database.now(), database.events
    valid = may_read(database, reader)
    if valid:
        log.readers[reader] = now + timedelta(seconds=duration)
    log.clean(now)
    return valid


def may_read(database: Database, reader: UUID) -> bool:
    """Whether a reader is valid, and so was all the time since it was opened."""
    expires_at = database.events.readers.get(reader)
    return expires_at is not None and expires_at > database.now()


def begin_events(database: Database, reader: UUID) -> EventPage:
    """Give where to begin. See `SupportsEvents.begin_events`: what a transaction logs is decided at its commit, so nothing has
    to be waited for.
    """
    return EventPage((), str(database.events.sequence), reset=not may_read(database, reader))


def resume_events(database: Database, reader: UUID, sequence: int, limit: int) -> EventPage:
    """Go on after an event. See `SupportsEvents.resume_events`."""
    log = database.events
    if not may_read(database, reader) or not is_kept(database, sequence):
        return EventPage((), str(log.sequence), reset=True)
    return _page(database, sequence, limit)


def is_kept(database: Database, sequence: int) -> bool:
    """Whether an event is in the log, and so is all that has happened since."""
    log = database.events
    return max(log.removed, log.gap) < sequence <= log.sequence


def read_events(database: Database, reader: UUID, cursor: str, limit: int) -> EventPage:
    """Give what has happened since. See `SupportsEvents.read_events`."""
    log = database.events
    seen = int(cursor) if cursor.isdecimal() else -1
    if not may_read(database, reader) or not log.removed <= seen <= log.sequence:
        return EventPage((), str(log.sequence), reset=True)
    return _page(database, seen, limit)


def _page(database: Database, seen: int, limit: int) -> EventPage:
    events = tuple(each for each in database.events.rows if each.sequence > seen)[:limit]
    return EventPage(events, str(events[-1].sequence if events else seen))
