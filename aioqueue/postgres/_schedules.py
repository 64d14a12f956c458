"""Schedules: defined, read, paused and removed by people and code, and decided tick by tick by workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._notifications import notify_statements, schedules_note
from aioqueue.postgres._rows import moment
from aioqueue.postgres._schedules_define import Definer, define_statements
from aioqueue.postgres._schedules_due import due_statements, read_due
from aioqueue.postgres._schedules_rows import SCHEDULE, TICKS, WAIT_FOR_TICKS, stored_schedule, stored_ticks
from aioqueue.postgres._schedules_tick import decide, tick_statements
from aioqueue.vocabulary._schedules import ScheduleChange, SchedulePage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._insert import Inserter
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.postgres._schedules_due import TickFloor
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._schedules import DueSchedules, StoredSchedule, Tick, Ticked

__all__ = ["Schedules", "schedule_statements"]

_PORTION = 500
"""Schedules that are locked at once where all of them are gone through: their ticks wait for no more than these."""

_LIST = f"""SELECT page.* FROM (
    SELECT {SCHEDULE}, ticks.* FROM @schema@.schedule s CROSS JOIN {TICKS}
    WHERE s.name > $1::text ORDER BY s.name LIMIT $2::integer
) AS page"""
_FETCH = f"SELECT {SCHEDULE}, ticks.* FROM @schema@.schedule s CROSS JOIN {TICKS} WHERE s.name = ANY($1::text[])"
_NOW = f"SELECT {moment('clock_timestamp()')}"
# Locked in the order of the names, as by all that wait for schedules.
_WANTED = """wanted AS MATERIALIZED (
    SELECT s.name FROM @schema@.schedule s WHERE s.name = ANY($1::text[]) ORDER BY s.name FOR UPDATE
)"""
_PAUSE = f"""WITH {_WANTED}, paused AS (
    UPDATE @schema@.schedule s SET paused = true, reason = $2::text, by = $3::text
    WHERE s.name = ANY(ARRAY(SELECT name FROM wanted))
)
SELECT name FROM wanted"""
_RESUME = f"""WITH {_WANTED}, resumed AS (
    UPDATE @schema@.schedule s SET paused = false, reason = '', by = '', since = clock_timestamp(), next_at = NULL,
        version = s.version + 1
    WHERE s.name = ANY(ARRAY(SELECT name FROM wanted)) AND s.paused RETURNING s.name
)
SELECT name, name IN (SELECT name FROM resumed) FROM wanted"""
_LOCK = f"WITH {_WANTED} SELECT name FROM wanted"
# By another statement than the one that has locked them: what was decided while that waited is to go, too.
_DELETE = """WITH gone AS (
    DELETE FROM @schema@.schedule s
    WHERE s.name = ANY($1::text[]) AND (s.owner IS NULL OR NOT EXISTS (
        SELECT FROM @schema@.schedule_generation g WHERE g.owner = s.owner AND g.live_until > clock_timestamp()))
    RETURNING s.name
), forgotten AS (
    DELETE FROM @schema@.schedule_tick t WHERE t.schedule = ANY(ARRAY(SELECT name FROM gone))
)
SELECT name FROM gone"""
# One that is locked is being decided, or changed, at this moment.
_RECOMPUTE = """WITH wanted AS MATERIALIZED (
    SELECT s.name FROM @schema@.schedule s
    WHERE s.name = ANY($1::text[]) AND (s.next_at > now() OR (s.next_at IS NULL AND s.last_at > now())) FOR UPDATE SKIP LOCKED
)
UPDATE @schema@.schedule s
SET next_at = NULL, last_at = CASE WHEN s.last_at > now() THEN now() ELSE s.last_at END, version = s.version + 1
WHERE s.name = ANY(ARRAY(SELECT name FROM wanted)) RETURNING s.name"""
_NAMES = "SELECT s.name FROM @schema@.schedule s WHERE s.name > $1::text ORDER BY s.name LIMIT $2::integer"


def schedule_statements(schema: Schema) -> dict[str, str]:
    """All statements about schedules, by name."""
    templates = {
        "schedules_list": _LIST,
        "schedules_fetch": _FETCH,
        "schedules_now": _NOW,
        "schedules_pause": _PAUSE,
        "schedules_resume": _RESUME,
        "schedules_lock_named": _LOCK,
        "schedules_delete": _DELETE,
        "schedules_recompute": _RECOMPUTE,
        "schedules_names": _NAMES,
    }
    own = {name: schema.render(template) for name, template in templates.items()}
    return {
        **own,
        **define_statements(schema),
        **due_statements(schema),
        **tick_statements(schema),
        **notify_statements(schema),
    }


class Schedules:
    """The schedules of a store, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes; None if nobody is to be told.
        inserter: Stores the jobs of ticks.
        floor: Where the store looks for ticks from.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None, inserter: Inserter, floor: TickFloor) -> None:
        self._pool = pool
        self._statements = schedule_statements(schema)
        self._origin = origin
        self._inserter = inserter
        self._floor = floor
        definer = Definer(pool, schema, self._statements, origin)
        self.put, self.reconcile = definer.put, definer.reconcile

    async def due(self, limit: int, *, cron: bool, without: Collection[str]) -> DueSchedules:
        """See `aioqueue.abc.SupportsSchedules.due_schedules`."""
        return await read_due(self._pool, self._statements, self._floor, limit, cron=cron, without=without)

    async def tick(self, ticks: Sequence[Tick]) -> tuple[list[Ticked], list[Notification]]:
        """See `aioqueue.abc.SupportsSchedules.tick`; returns what listeners are to be told, too."""
        return await decide(self._pool, self._statements, self._inserter, ticks)

    async def recompute(self, names: Collection[str] | None) -> int:
        """See `aioqueue.abc.SupportsSchedules.recompute_schedules`."""
        if names is not None:
            return len(await self._pool.fetch(self._statements["schedules_recompute"], list(names)))
        total, page = 0, [""]
        while page:
            page = [row[0] for row in await self._pool.read(self._statements["schedules_names"], page[-1], _PORTION)]
            total += len(await self._pool.fetch(self._statements["schedules_recompute"], page)) if page else 0
        return total

    async def page(self, limit: int, cursor: str | None) -> SchedulePage:
        """See `aioqueue.abc.SupportsSchedules.list_schedules`."""
        ((now,),) = await self._pool.read(self._statements["schedules_now"])
        rows = await self._pool.read(self._statements["schedules_list"], cursor or "", limit + 1)
        page = tuple(map(_shown, rows[:limit]))
        return SchedulePage(schedules=page, cursor=page[-1].name if len(rows) > limit and page else None, now=now)

    async def fetch(self, names: Sequence[str]) -> list[StoredSchedule | None]:
        """See `aioqueue.abc.SupportsSchedules.fetch_schedules`."""
        found = {row[0]: _shown(row) for row in await self._pool.read(self._statements["schedules_fetch"], list(names))}
        return [found.get(name) for name in names]

    async def pause(self, names: Sequence[str], reason: str, by: str) -> list[bool]:
        """See `aioqueue.abc.SupportsSchedules.pause_schedules`."""
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_FOR_TICKS)
            rows = await connection.fetch(self._statements["schedules_pause"], list(names), reason, by)
        there = {row[0] for row in rows}
        return [name in there for name in names]

    async def resume(self, names: Sequence[str]) -> tuple[list[bool], bool]:
        """See `aioqueue.abc.SupportsSchedules.resume_schedules`; returns whether listeners are to be told, too."""
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_FOR_TICKS)
            rows = await connection.fetch(self._statements["schedules_resume"], list(names))
            resumed = any(row[1] for row in rows)
            if resumed and self._origin is not None:
                await connection.fetch(self._statements["notify"], schedules_note(self._origin))
        there = {row[0] for row in rows}
        return [name in there for name in names], resumed

    async def delete(self, names: Sequence[str]) -> list[ScheduleChange]:
        """See `aioqueue.abc.SupportsSchedules.delete_schedules`."""
        async with self._pool.transaction() as connection:
            await connection.execute(WAIT_FOR_TICKS)
            there = {row[0] for row in await connection.fetch(self._statements["schedules_lock_named"], list(names))}
            gone = {row[0] for row in await connection.fetch(self._statements["schedules_delete"], list(there))}
        changes = dict.fromkeys(there, ScheduleChange.OWNED) | dict.fromkeys(gone, ScheduleChange.DONE)
        return [changes.get(name, ScheduleChange.NOT_FOUND) for name in names]


def _shown(row: Row) -> StoredSchedule:
    return stored_schedule(row, stored_ticks(row))
