"""The log of what happens to jobs: who reads it, and what they read. A file has one writer, so that a cursor is a number."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from aioqueue.sqlite._events_news import NEWEST
from aioqueue.sqlite._events_triggers import WATCHED, create_triggers, drop_triggers
from aioqueue.sqlite._rows import text_of
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.store_rules._events import KEPT_SECONDS
from aioqueue.vocabulary._event_log import EventKind, EventPage, LoggedEvent

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._events_news import News

__all__ = ["OLD_EVENT", "Events", "end_unread", "forget_events"]

_KEPT = round(KEPT_SECONDS * 1e6)
_PORTION = 20_000
"""Events that one transaction removes: some 20 ms, in which nobody else writes."""
_PAUSE_SECONDS = 0.01
_LARGEST = 2**63 - 1
_KINDS = {each.value: each for each in EventKind}

_VALID = f"SELECT 1 FROM reader WHERE id = :reader AND expires_at > {NOW}"

_STANDING = f"""
SELECT {NEWEST}, coalesce((SELECT min(sequence) - 1 FROM event), {NEWEST}), (SELECT max(sequence) FROM event_gap),
    EXISTS ({_VALID})
"""

_READ = """
SELECT sequence, kind, at, job_id, chain_id, job_type, attempt, claims, body FROM event
WHERE sequence > :seen ORDER BY sequence LIMIT :limit
"""

OLD_EVENT = f"at <= {NOW} - {_KEPT}"

_FORGET_READERS = f"DELETE FROM reader WHERE expires_at <= {NOW}"

_FORGET = f"""
DELETE FROM event WHERE sequence < min(
    coalesce((SELECT min(sequence) FROM (SELECT sequence, at FROM event ORDER BY sequence LIMIT {_PORTION})
              WHERE NOT {OLD_EVENT}), {_LARGEST}),
    (SELECT min(sequence) + {_PORTION} FROM event))
"""
"""From the first one on, so that none is left out of those that stay."""


class Events:
    """The log of one open store.

    Arguments:
        writer: Where readers are written.
        reader: Where the log is read.
        news: What is told of it in this process.
    """

    def __init__(self, writer: Writer, reader: Reader, news: News) -> None:
        self._writer = writer
        self._reader = reader
        self._news = news

    async def open(self, duration: float) -> UUID:
        """Have events logged, as `aioqueue.abc.SupportsEvents.open_reader` promises."""
        self._reads_until(duration)
        reader = await self._writer.write(lambda connection: (_open(connection, uuid4(), duration), None))
        await self._forget()
        return reader

    async def keep(self, reader: UUID, duration: float) -> bool:
        """Let a reader be valid for longer, as `aioqueue.abc.SupportsEvents.keep_reader` promises."""
        self._reads_until(duration)
        valid = await self._writer.write(lambda connection: (_keep(connection, reader, duration), None))
        await self._forget()
        return valid

    def _reads_until(self, duration: float) -> None:
        self._news.until = max(self._news.until, time.monotonic() + duration)

    async def _forget(self) -> None:
        """Remove old events, portion by portion."""
        more = True
        while more:
            more = await self._writer.write(lambda connection: (forget_events(connection), None))
            if more:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def begin(self, reader: UUID) -> EventPage:
        """Give where to begin. Whoever writes after the reader's commit has the triggers: nobody has to be waited for."""
        newest, _, _, valid = await self._reader.read(functools.partial(_standing, reader=reader))
        return EventPage((), str(newest), reset=not valid)

    async def resume(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """Go on after an event, as `aioqueue.abc.SupportsEvents.resume_events` promises."""
        return await self._reader.read(functools.partial(_page, reader=reader, seen=sequence, limit=limit, resumed=True))

    async def read(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """Give what has happened since, as `aioqueue.abc.SupportsEvents.read_events` promises."""
        seen = int(cursor) if cursor.isascii() and cursor.isdecimal() and len(cursor) < 20 else -1
        return await self._reader.read(functools.partial(_page, reader=reader, seen=seen, limit=limit))


def _open(connection: sqlite3.Connection, reader: UUID, duration: float) -> UUID:
    connection.execute(_FORGET_READERS)
    if not connection.execute(f"SELECT {WATCHED}").fetchone()[0]:
        connection.execute(f"UPDATE event_gap SET sequence = {NEWEST}")
    new = {"reader": str(reader), "duration": round(duration * 1e6)}
    connection.execute(f"INSERT INTO reader (id, expires_at) VALUES (:reader, {NOW} + :duration)", new)
    create_triggers(connection)
    return reader


def _keep(connection: sqlite3.Connection, reader: UUID, duration: float) -> bool:
    asked = {"reader": str(reader), "duration": round(duration * 1e6)}
    update = f"UPDATE reader SET expires_at = {NOW} + :duration WHERE id = :reader AND expires_at > {NOW}"
    valid = connection.execute(update, asked).rowcount == 1
    end_unread(connection)
    return valid


def end_unread(connection: sqlite3.Connection) -> None:
    """Remove readers that aren't valid any more, and, with the last one, what logs events."""
    if connection.execute(_FORGET_READERS).rowcount and connection.execute("SELECT 1 FROM reader").fetchone() is None:
        drop_triggers(connection)


def forget_events(connection: sqlite3.Connection) -> bool:
    """Remove one portion of old events. Returns whether there may be more."""
    return connection.execute(_FORGET).rowcount >= _PORTION


def _standing(connection: Statements, reader: UUID) -> tuple[int, int, int, int]:
    """The newest number, that of the newest that was removed, the newest before a gap, and whether the reader is valid."""
    standing: tuple[int, int, int, int] = connection.execute(_STANDING, {"reader": str(reader)}).fetchone()
    return standing


def _page(connection: Statements, reader: UUID, seen: int, limit: int, *, resumed: bool = False) -> EventPage:
    newest, removed, gap, valid = _standing(connection, reader)
    # A cursor may be that of the beginning; an event after which one goes on was there.
    known = max(removed, gap) < seen <= newest if resumed else removed <= seen <= newest
    if not (valid and known):
        return EventPage((), str(newest), reset=True)
    rows = connection.execute(_READ, {"seen": seen, "limit": limit}).fetchall()
    events = tuple(each for each in map(_event, rows) if each is not None)
    return EventPage(events, str(rows[-1][0] if rows else seen))


def _event(row: Sequence[Any]) -> LoggedEvent | None:
    """Read a row; None for a kind that only newer code knows."""
    sequence, kind, at, job_id, chain_id, job_type, attempt, claims, body = row
    if kind not in _KINDS:
        return None
    return LoggedEvent(
        sequence=sequence,
        kind=_KINDS[kind],
        at=moment(at),
        job_id=id_of(job_id),
        chain_id=id_of(chain_id),
        job_type=text_of(job_type),
        attempt=attempt,
        claims=claims,
        body=text_of(body).encode(),
    )
