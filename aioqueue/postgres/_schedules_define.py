"""Defining schedules: at run time, one by one, and from code, all of a registry at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import ScheduleOwned
from aioqueue.postgres._notifications import schedules_note
from aioqueue.postgres._rows_portions import in_portions
from aioqueue.postgres._schedules_rows import (
    DEFINED,
    DEFINITION,
    WAIT_FOR_TICKS,
    definition,
    definition_arguments,
    definitions,
)
from aioqueue.store_rules._generations import KEPT_GENERATIONS, KnownGeneration, decide
from aioqueue.vocabulary._schedules import Reconciled

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.store_rules._generations import Decision
    from aioqueue.vocabulary._schedules import Generation, NewSchedule

__all__ = ["Definer", "define_statements"]

_WAIT_FOR_OWNER = f"{WAIT_FOR_TICKS}; SET LOCAL lock_timeout = '2s'"
"""Workers of one owner that start together reconcile one after the other, each within milliseconds."""

# A tick of one that was deleted isn't taken for one of another with its name: no two begin with the same version.
_ADD = f"""INSERT INTO @schema@.schedule ({DEFINED}, version, since, anchor)
SELECT {DEFINED}, 1 + floor(random() * 1000000000)::integer, statement_timestamp(), statement_timestamp()
FROM {definitions(1)} ORDER BY given.name
ON CONFLICT DO NOTHING RETURNING name"""
_LOCK = f"""SELECT {DEFINITION} FROM @schema@.schedule s WHERE s.name = ANY($1::text[]) ORDER BY s.name FOR UPDATE"""
_OF_OWNER = f"""SELECT {DEFINITION} FROM @schema@.schedule s WHERE s.name = ANY($1::text[])
UNION ALL SELECT {DEFINITION} FROM @schema@.schedule s WHERE s.owner = $2::text AND s.name <> ALL($1::text[])"""
_OTHER_TIMING = "(s.cron, s.every, s.timezone) IS DISTINCT FROM (given.cron, given.every, given.timezone)"
_CHANGE = f"""UPDATE @schema@.schedule s
SET job_type = given.job_type, template = given.template, cron = given.cron, every = given.every, timezone = given.timezone,
    catch_up = given.catch_up, grace = given.grace, catch_up_limit = given.catch_up_limit, overlap = given.overlap,
    version = s.version + 1,
    since = CASE WHEN {_OTHER_TIMING} THEN statement_timestamp() ELSE s.since END,
    anchor = CASE WHEN {_OTHER_TIMING} THEN statement_timestamp() ELSE s.anchor END,
    next_at = CASE WHEN {_OTHER_TIMING} THEN NULL ELSE s.next_at END
FROM {definitions(1)} WHERE s.name = given.name AND s.owner IS NOT DISTINCT FROM given.owner"""
_REMOVE = """WITH gone AS (
    DELETE FROM @schema@.schedule s WHERE s.name = ANY($1::text[]) AND s.owner = $2::text RETURNING s.name
), forgotten AS (
    DELETE FROM @schema@.schedule_tick t WHERE t.schedule = ANY(ARRAY(SELECT name FROM gone))
)
SELECT name FROM gone"""
_LOCK_OWNER = "SELECT pg_catalog.pg_advisory_xact_lock($1::bigint)::text"
_KNOWN = """SELECT g.digest, g.release, g.seen, g.live_until > clock_timestamp() FROM @schema@.schedule_generation g
WHERE g.owner = $1::text"""
_LIVE = """INSERT INTO @schema@.schedule_generation AS g (owner, seen, digest, release, live_until)
VALUES ($1::text, $2::integer, $3::text, $4::bigint, clock_timestamp() + $5::float8 * interval '1 second')
ON CONFLICT (owner, seen) DO UPDATE SET live_until = greatest(g.live_until, excluded.live_until)"""
_FORGET = f"""DELETE FROM @schema@.schedule_generation g WHERE g.owner = $1::text AND g.seen = ANY(ARRAY(
    SELECT o.seen FROM @schema@.schedule_generation o WHERE o.owner = $1::text
    ORDER BY o.live_until DESC, o.seen DESC OFFSET {KEPT_GENERATIONS}))"""


def define_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "schedules_add": _ADD,
        "schedules_lock_defined": _LOCK,
        "schedules_of_owner": _OF_OWNER,
        "schedules_change": _CHANGE,
        "schedules_remove": _REMOVE,
        "schedules_lock_owner": _LOCK_OWNER,
        "generations_known": _KNOWN,
        "generations_live": _LIVE,
        "generations_forget": _FORGET,
    }
    return {name: schema.render(template) for name, template in templates.items()}


class Definer:
    """Stores definitions, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        statements: Those of this module and of `_notifications`, and maybe others.
        origin: Who tells other processes; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, statements: dict[str, str], origin: str | None) -> None:
        self._pool = pool
        self._schema = schema
        self._statements = statements
        self._origin = origin

    async def put(self, schedules: Sequence[NewSchedule]) -> list[bool]:
        """Store schedules without an owner, as `aioqueue.abc.SupportsSchedules.put_schedules` says."""
        return await self._pool.transact(lambda connection: self._put(connection, schedules))

    async def reconcile(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """Store an owner's schedules, as `aioqueue.abc.SupportsSchedules.reconcile_schedules` says."""
        return await self._pool.transact(lambda connection: self._reconcile(connection, generation, schedules, live))

    async def _put(self, connection: Connection, schedules: Sequence[NewSchedule]) -> list[bool]:
        await connection.execute(WAIT_FOR_TICKS)
        given = [replace(each, owner=None) for each in schedules]
        wanted = {each.name: each for each in given}
        added = await self._add(connection, wanted.values())
        there = await self._lock(connection, wanted)
        for name, each in there.items():
            if each.owner is not None:
                raise ScheduleOwned(
                    f"the schedule {name!r} is defined in the code of the registry {each.owner!r}: change it there, or choose "
                    "another name for this one",
                    name=name,
                )
        changed = [each for name, each in wanted.items() if there.get(name, each) != each]
        await self._change(connection, changed)
        if added or changed:
            await self._note(connection)
        # Of several with one name the last one counts, and each that says something else than the one before is a change.
        before = {name: each for name, each in there.items() if name not in added}
        results: list[bool] = []
        for each in given:
            results.append(before.get(each.name) != each)
            before[each.name] = each
        return results

    async def _reconcile(
        self, connection: Connection, generation: Generation, schedules: Sequence[NewSchedule], live: float
    ) -> Reconciled:
        decision = await self._decide(connection, generation, live)
        if not decision.current:
            return Reconciled(current=False, refused=decision.refused)
        owner = generation.owner
        wanted = {each.name: replace(each, owner=owner) for each in schedules}
        rows = await connection.fetch(self._statements["schedules_of_owner"], list(wanted), owner)
        there = {each.name: each for each in map(definition, rows)}
        # Nobody else changes those of this owner, whose lock this transaction has; what has another owner stays.
        added = await self._add(connection, [each for name, each in wanted.items() if name not in there])
        own = {name: each for name, each in there.items() if each.owner == owner}
        different = sorted(name for name, each in own.items() if name in wanted and wanted[name] != each)
        locked = await self._lock(connection, [*different, *(own.keys() - wanted.keys())])
        changed = [wanted[name] for name in different if name in locked]
        await self._change(connection, changed)
        removed: list[str] = []
        if gone := sorted(own.keys() - wanted.keys()):
            rows = await connection.fetch(self._statements["schedules_remove"], gone, owner)
            removed = sorted(row[0] for row in rows)
        if added or changed or removed:
            await self._note(connection)
        names = sorted({*added, *(each.name for each in changed)})
        taken = sorted(wanted.keys() - own.keys() - added)
        return Reconciled(current=True, changed=tuple(names), removed=tuple(removed), taken=tuple(taken))

    async def _decide(self, connection: Connection, generation: Generation, live: float) -> Decision:
        """Say which of the owner's generations counts, under its lock, and that this one lives."""
        owner = generation.owner
        await connection.execute(_WAIT_FOR_OWNER)
        await connection.fetch(self._statements["schedules_lock_owner"], self._schema.owner_lock(owner))
        known = [KnownGeneration(*row) for row in await connection.fetch(self._statements["generations_known"], owner)]
        decision = decide(generation, known)
        if not decision.refused:
            told = owner, decision.seen, generation.digest, generation.release, live
            await connection.fetch(self._statements["generations_live"], *told)
            if len(known) >= KEPT_GENERATIONS:
                await connection.fetch(self._statements["generations_forget"], owner)
        return decision

    async def _add(self, connection: Connection, schedules: Collection[NewSchedule]) -> set[str]:
        """Store those whose names are free; returns which."""
        added: set[str] = set()
        for portion in in_portions(sorted(schedules, key=_name), _size):
            rows = await connection.fetch(self._statements["schedules_add"], *definition_arguments(portion))
            added.update(row[0] for row in rows)
        return added

    async def _lock(self, connection: Connection, names: Collection[str]) -> dict[str, NewSchedule]:
        """Lock those that are there, in the order of the names, as everybody does."""
        if not names:
            return {}
        rows = await connection.fetch(self._statements["schedules_lock_defined"], list(names))
        return {each.name: each for each in map(definition, rows)}

    async def _change(self, connection: Connection, schedules: Sequence[NewSchedule]) -> None:
        for portion in in_portions(schedules, _size):
            await connection.fetch(self._statements["schedules_change"], *definition_arguments(portion))

    async def _note(self, connection: Connection) -> None:
        if self._origin is not None:
            await connection.fetch(self._statements["notify"], schedules_note(self._origin))


def _name(schedule: NewSchedule) -> str:
    return schedule.name


def _size(schedule: NewSchedule) -> int:
    return len(schedule.template)
