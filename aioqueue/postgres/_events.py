"""The log of what happens to jobs: who reads it, and what has become visible in it.

A transaction's rows get their numbers before it commits, so a lower number may be seen later than a greater one. A cursor is
therefore the snapshot of the look before: what is new is what wasn't visible in that. Of many new ones a page is cut by number,
and the cursor has the snapshot up to which they go on.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from aioqueue.postgres._events_rows import LOGGED_COLUMNS, logged_events
from aioqueue.store_rules._events import KEPT_SECONDS
from aioqueue.vocabulary._event_log import EventPage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["EventReaders", "event_statements"]

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 0.1
_REMOVED_ROWS = 5_000
_REMOVING_SECONDS = 2.0
"""How long one call may remove old events."""

_LARGEST_SEQUENCE = 2**63 - 1

_MICROSECONDS = "(extract(epoch FROM {}) * 1000000)::bigint"
_VALID = "r.id = $1::uuid AND r.expires_at > clock_timestamp()"

_OPEN = """INSERT INTO @schema@.reader (id, expires_at, told)
VALUES ($1::uuid, clock_timestamp() + make_interval(secs => $2::float8), $3::boolean) RETURNING id"""
# Those that have run out for long nobody asks for any more.
_FORGET_READERS = "DELETE FROM @schema@.reader r WHERE r.expires_at < now() - interval '1 hour'"
_KEEP = f"""UPDATE @schema@.reader r SET expires_at = clock_timestamp() + make_interval(secs => $2::float8)
FROM (SELECT r.id, r.expires_at FROM @schema@.reader r WHERE r.id = $1::uuid OFFSET 0) AS before
WHERE {_VALID} RETURNING before.expires_at"""
_IN_TIME = "SELECT $1::timestamptz IS NOT NULL AND clock_timestamp() < $1::timestamptz"
_END = "DELETE FROM @schema@.reader r WHERE r.id = $1::uuid RETURNING r.expires_at > clock_timestamp()"

# Whoever doesn't see the reader's row has a snapshot, or a transaction, from before it was committed. The first are those of
# statements that may be about to write, of which nothing else is known: they have no transaction's number yet.
_LOOK = f"""SELECT {_MICROSECONDS.format("now()")}, pg_current_snapshot()::text, own.id IS NOT NULL,
       own.logged_since IS NOT NULL,
       (SELECT min(o.logged_since) FROM @schema@.reader o WHERE o.expires_at > clock_timestamp()),
       NOT EXISTS (
           SELECT FROM pg_catalog.pg_stat_activity a
           WHERE a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
             AND a.pid <> pg_backend_pid() AND age(a.backend_xmin) >= age(own.xid::xid)
             AND coalesce(a.backend_type, 'client backend') IN ('client backend', 'background worker', 'parallel worker'))
FROM (SELECT) AS once LEFT JOIN @schema@.reader own ON own.id = $1::uuid AND own.expires_at > clock_timestamp()"""
_ENDED = f"""SELECT {_MICROSECONDS.format("now()")}, pg_current_snapshot()::text,
       pg_snapshot_xmin(pg_current_snapshot())::text, pg_snapshot_xmax(pg_current_snapshot())::text"""
_BEGUN = f"""UPDATE @schema@.reader r
SET logged_since = coalesce(r.logged_since, $2::timestamptz, to_timestamp($3::bigint / 1e6))
WHERE {_VALID} RETURNING r.id"""

_RESUME = f"""SELECT {_MICROSECONDS.format("e.at")}, e.visible::text, e.xid::text FROM @schema@.event e
JOIN @schema@.reader r ON {_VALID}
WHERE e.sequence = $2::bigint AND e.at >= r.logged_since"""

_HEAD = f"""SELECT {_MICROSECONDS.format("now()")}, pg_current_snapshot()::text,
       EXISTS (SELECT FROM @schema@.reader r WHERE {_VALID}),
       EXISTS (SELECT FROM @schema@.event_mark m WHERE m.removed AND {_MICROSECONDS.format("m.at")} > $2::bigint), e.*
FROM (SELECT) AS once LEFT JOIN (
    SELECT {LOGGED_COLUMNS} FROM @schema@.event e WHERE e.sequence = ANY(ARRAY(SELECT sequence FROM page))
) AS e ON true ORDER BY e.sequence"""
# What wasn't visible in a snapshot: the transactions that had begun and not ended, and those behind it.
_FOUND = """WITH last AS MATERIALIZED (
    SELECT pg_snapshot_xmax(given.seen) AS behind, ARRAY(SELECT pg_snapshot_xip(given.seen)) AS open
    FROM (SELECT $3::text::pg_snapshot AS seen) AS given
), found AS MATERIALIZED (
    SELECT e.sequence, e.xid FROM @schema@.event e WHERE e.xid >= (SELECT behind FROM last)
    UNION ALL
    SELECT e.sequence, e.xid FROM @schema@.event e WHERE e.xid = ANY((SELECT open FROM last)::xid8[])
), page AS MATERIALIZED (
    SELECT sequence FROM found @where@ORDER BY sequence LIMIT $4::integer
)"""
_READ = f"{_FOUND.replace('@where@', '')}\n{_HEAD}"
# What its own transaction had logged before was seen with it: otherwise whoever breaks off in the middle of a large one, each
# time before it has come further, would never come to its end.
_OTHERS = "WHERE NOT (xid = $5::text::xid8 AND sequence <= $6::bigint) "
_READ_AFTER = f"{_FOUND.replace('@where@', _OTHERS)}\n{_HEAD}"
_READ_ON = f"""WITH page AS MATERIALIZED (
    SELECT e.sequence FROM @schema@.event e
    WHERE e.sequence > $6::bigint AND NOT pg_visible_in_snapshot(e.xid, $3::text::pg_snapshot)
      AND pg_visible_in_snapshot(e.xid, $5::text::pg_snapshot)
    ORDER BY e.sequence LIMIT $4::integer
)
{_HEAD}"""

_MARK = """INSERT INTO @schema@.event_mark (at, visible) SELECT clock_timestamp(), pg_current_snapshot()
WHERE NOT EXISTS (SELECT FROM @schema@.event_mark m WHERE m.at > clock_timestamp() - interval '30 seconds')
ON CONFLICT DO NOTHING"""
# By what was visible a while ago, and not by the times of the events: one may have been committed long after its time.
_REMOVE = f"""WITH mark AS MATERIALIZED (
    SELECT m.at, m.visible FROM @schema@.event_mark m WHERE m.at < clock_timestamp() - make_interval(secs => {KEPT_SECONDS})
    ORDER BY m.at DESC LIMIT 1
), said AS (
    UPDATE @schema@.event_mark m SET removed = true FROM mark WHERE m.at = mark.at AND NOT m.removed
), older AS (
    DELETE FROM @schema@.event_mark m USING mark WHERE m.at < mark.at
), old AS MATERIALIZED (
    SELECT e.sequence FROM @schema@.event e
    WHERE e.xid < (SELECT pg_snapshot_xmax(visible) FROM mark) AND pg_visible_in_snapshot(e.xid, (SELECT visible FROM mark))
    ORDER BY e.xid LIMIT {_REMOVED_ROWS} FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM @schema@.event e WHERE e.sequence = ANY(ARRAY(SELECT sequence FROM old)) RETURNING 1
)
SELECT count(*) FROM gone"""


def event_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "events_open": _OPEN,
        "events_forget_readers": _FORGET_READERS,
        "events_keep": _KEEP,
        "events_in_time": _IN_TIME,
        "events_end": _END,
        "events_look": _LOOK,
        "events_ended": _ENDED,
        "events_begun": _BEGUN,
        "events_resume": _RESUME,
        "events_read": _READ,
        "events_read_after": _READ_AFTER,
        "events_read_on": _READ_ON,
        "events_mark": _MARK,
        "events_remove": _REMOVE,
    }
    return {name: schema.render(template) for name, template in templates.items()}


_CURSOR = re.compile(r"(-?\d{1,18}) (\d+:\d+:[\d,]*)(?: (\d{1,18}) (\d+:\d+:[\d,]*) (\d{1,19}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was visible at some time, as a snapshot's text: which transactions had ended.

    Attributes:
        at: Not later than that, in microseconds since 1970.
        snapshot: Of PostgreSQL's type `pg_snapshot`.
    """

    at: int
    snapshot: str


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where a reader goes on.

    Attributes:
        seen: What isn't new.
        until: Up to where the new ones are that are being read; None if they begin anew.
        after: The newest number of those that were read.
    """

    seen: _Seen
    until: _Seen | None = None
    after: int = 0

    def __str__(self) -> str:
        first = f"{self.seen.at} {self.seen.snapshot}"
        return first if self.until is None else f"{first} {self.until.at} {self.until.snapshot} {self.after}"

    @classmethod
    def of(cls, text: str) -> _Cursor | None:
        """Read one; None if it isn't ours."""
        if (match := _CURSOR.fullmatch(text)) is None:
            return None
        at, snapshot, until_at, until, after = match.groups()
        seen = _Seen(int(at), snapshot)
        return cls(seen) if until is None else cls(seen, _Seen(int(until_at), until), int(after))


class EventReaders:
    """The readers of this process, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        told: Whether notifications say that there is something to read.
    """

    def __init__(self, pool: Pool, schema: Schema, *, told: bool) -> None:
        self._pool = pool
        self._statements = event_statements(schema)
        self._told = told

    async def open(self, duration: float) -> UUID:
        """See `aioqueue.abc.SupportsEvents.open_reader`."""
        await self._fetch("events_forget_readers")
        reader = uuid4()
        await self._fetch("events_open", reader, duration, self._told)
        await self._remove()
        return reader

    async def keep(self, reader: UUID, duration: float) -> bool:
        """See `aioqueue.abc.SupportsEvents.keep_reader`."""
        if duration <= 0:
            return any(row[0] for row in await self._fetch("events_end", reader))
        rows = await self._fetch("events_keep", reader, duration)
        # Whoever began after its old end, and before the commit, has logged nothing.
        ((in_time,),) = await self._fetch("events_in_time", rows[0][0] if rows else None)
        if not in_time:
            await self._fetch("events_end", reader)
            return False
        await self._remove()
        return True

    async def _remove(self) -> None:
        """Remove what is old, as far as that is quickly done."""
        await self._fetch("events_mark")
        until = time.monotonic() + _REMOVING_SECONDS
        while True:
            ((removed,),) = await self._fetch("events_remove")
            if removed < _REMOVED_ROWS or time.monotonic() >= until:
                return

    async def begin(self, reader: UUID, timeout: float) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.begin_events`."""
        until = time.monotonic() + timeout
        pause = _FIRST_PAUSE_SECONDS
        behind: int | None = None
        while True:
            if behind is None:
                ((at, snapshot, valid, begun, since, seen_by_all),) = await self._fetch("events_look", reader)
                if not valid or begun or since is not None:
                    return await self._begun(reader, _Seen(at, snapshot), since, valid=valid)
                ready = False
            else:
                ((at, snapshot, first_open, _),) = await self._fetch("events_ended")
                ready, seen_by_all = int(first_open) >= behind, False
            now = _Seen(at, snapshot)
            if ready:
                return await self._begun(reader, now, None)
            if seen_by_all:
                # What is in a transaction whose statements didn't see it has a number by now.
                ((*_, behind_text),) = await self._fetch("events_ended")
                behind = int(behind_text)
                continue
            if time.monotonic() >= until:
                return EventPage((), str(_Cursor(now)), reset=True)
            await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)

    async def _begun(self, reader: UUID, now: _Seen, since: object, *, valid: bool = True) -> EventPage:
        kept = valid and await self._fetch("events_begun", reader, since, now.at)
        return EventPage((), str(_Cursor(now)), reset=not kept)

    async def resume(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.resume_events`."""
        if 0 < sequence <= _LARGEST_SEQUENCE:
            for at, visible, xid in await self._fetch("events_resume", reader, sequence):
                cursor = _Cursor(_Seen(at, _without(visible, int(xid))))
                return await self._page(reader, cursor, limit, after=(xid, sequence))
        return await self._reset()

    async def read(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """See `aioqueue.abc.SupportsEvents.read_events`."""
        where = _Cursor.of(cursor)
        return await self._reset() if where is None else await self._page(reader, where, limit)

    async def _page(self, reader: UUID, cursor: _Cursor, limit: int, *, after: tuple[str, int] | None = None) -> EventPage:
        """Read one page.

        Arguments:
            reader: Whose.
            cursor: Where it goes on.
            limit: Events at most.
            after: The transaction's number and its own of the event from which it goes on, which says where the cursor is.
        """
        if (until := cursor.until) is not None:
            arguments = cursor.seen.at, cursor.seen.snapshot, limit, until.snapshot, cursor.after
            rows = await self._fetch("events_read_on", reader, *arguments)
        else:
            begin = cursor.seen.at, cursor.seen.snapshot, limit
            name, more = ("events_read", ()) if after is None else ("events_read_after", after)
            rows = await self._fetch(name, reader, *begin, *more)
            until = _Seen(rows[0][0], rows[0][1])
        following = _Cursor(until)
        _, _, valid, removed = rows[0][:4]
        if not valid or removed:
            return EventPage((), str(_Cursor(_Seen(rows[0][0], rows[0][1]))), reset=True)
        new = [row[4:] for row in rows if row[4] is not None]
        if len(new) >= limit:
            following = _Cursor(cursor.seen, until, new[-1][0])
        elif not new and cursor.until is not None:
            return await self._page(reader, following, limit)
        return EventPage(tuple(logged_events(new)), str(following))

    async def _reset(self) -> EventPage:
        ((at, snapshot, *_),) = await self._fetch("events_ended")
        return EventPage((), str(_Cursor(_Seen(at, snapshot))), reset=True)

    async def _fetch(self, name: str, *arguments: object) -> Sequence[Row]:
        return await self._pool.fetch(self._statements[name], *arguments)


def _without(visible: str, xid: int) -> str:
    """A snapshot in which a transaction is open: its own doesn't say so of it, if others have begun since."""
    first, behind, listed = visible.split(":")
    if xid >= int(behind):
        return visible
    running = sorted({xid, *map(int, filter(None, listed.split(",")))})
    return f"{first}:{behind}:{','.join(map(str, running))}"
