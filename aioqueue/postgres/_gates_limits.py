"""Limits of gates: stored by code or by people, removed and listed. Claims look at them: see `_gates_look`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.errors import StoreContended
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._gates_lock import gate_lock_statements, lock_gates
from aioqueue.postgres._notifications import gates_note, notify_statements
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._gates import LimitKind, StoredLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._gates import NewLimit

__all__ = ["Limits", "limit_statements"]

_MOST_LISTED = 10_000
_MOST_COUNTED_TOGETHER = 1_000_000
"""Jobs that are counted for one list: where there are many limits, each is counted less far."""
_LEAST_COUNTED = 100
_MOST_MARKED = 1_000
"""Gates of one name that are told at once that it was changed; upkeep finds the others."""
_CONTENDED_SECONDS = 0.1
"""Between two tries, where claims have locked a limit."""
_ALL = 1_000_000
"""As many as have room may come."""

_GIVEN = (
    """unnest($1::text[], $2::integer[], $3::float8[], $4::integer[], $5::text[]) AS given(name, places, per, burst, defined)"""
)
# What code says again, as each worker does at its start, isn't written, and nobody waits for it.
_NEW = """SELECT given.name FROM unnest($1::text[], $2::text[]) AS given(name, defined)
WHERE NOT EXISTS (SELECT FROM @schema@.gate_limit l WHERE l.name = given.name AND l.defined = given.defined)"""
_DEFINE = f"""INSERT INTO @schema@.gate_limit AS l (name, places, per, burst, defined) SELECT given.* FROM {_GIVEN}
ON CONFLICT (name) DO UPDATE
SET places = excluded.places, per = excluded.per, burst = excluded.burst, defined = excluded.defined, changed = false
WHERE l.defined IS DISTINCT FROM excluded.defined RETURNING l.name"""
_PUT = f"""INSERT INTO @schema@.gate_limit AS l (name, places, per, burst)
SELECT given.name, given.places, given.per, given.burst FROM {_GIVEN}
ON CONFLICT (name) DO UPDATE
SET places = excluded.places, per = excluded.per, burst = excluded.burst, changed = l.defined IS NOT NULL RETURNING l.name"""
_REMOVE = "DELETE FROM @schema@.gate_limit l WHERE l.name = ANY($1::text[]) RETURNING l.name"
# Of gates with values those where somebody waits, one after the other along the index that has them: `>` comes after `=`.
_MARK = f"""WITH RECURSIVE held(name, gate) AS (
    SELECT name, name || '=' FROM unnest($1::text[]) AS name
    UNION ALL
    SELECT held.name, (SELECT j.gate FROM @schema@.job j
                       WHERE j.state <= 0 AND j.gate COLLATE "C" > held.gate AND j.gate COLLATE "C" < held.name || '>'
                       ORDER BY j.gate COLLATE "C" LIMIT 1)
    FROM held WHERE held.gate IS NOT NULL
)
INSERT INTO @schema@.gate_mark (gate, freed)
SELECT name, {_ALL} FROM unnest($1::text[]) AS name
UNION ALL
(SELECT held.gate, {_ALL} FROM held WHERE held.gate <> held.name || '=' LIMIT {_MOST_MARKED})"""
_LIST = f"""SELECT l.name, l.places, l.per, l.burst, l.defined IS NOT NULL, l.changed FROM @schema@.gate_limit l
ORDER BY l.name LIMIT {_MOST_LISTED}"""
_RUNNING = """SELECT given.name, (SELECT count(*) FROM (
    SELECT FROM (
        SELECT p.job_id FROM @schema@.gate_place p WHERE p.gate = given.name
        UNION ALL
        SELECT p.job_id FROM @schema@.gate_place p WHERE p.gate > given.name || '=' AND p.gate < given.name || '>') AS p
    CROSS JOIN LATERAL (SELECT FROM @schema@.job j WHERE j.id = p.job_id AND j.state + 0 = 2 OFFSET 0) AS j
    LIMIT $2::integer) AS found)::integer
FROM unnest($1::text[]) AS given(name)"""
_WAITING = """SELECT given.name, (SELECT count(*) FROM (
    SELECT FROM (
        SELECT j.open_blockers FROM @schema@.job j WHERE j.state <= 0 AND j.gate COLLATE "C" = given.name
        UNION ALL
        SELECT j.open_blockers FROM @schema@.job j
        WHERE j.state <= 0 AND j.gate COLLATE "C" > given.name || '=' AND j.gate COLLATE "C" < given.name || '>') AS j
    WHERE j.open_blockers <= 0 LIMIT $2::integer) AS found)::integer
FROM unnest($1::text[]) AS given(name)"""


def limit_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "limits_new": _NEW,
        "limits_define": _DEFINE,
        "limits_put": _PUT,
        "limits_remove": _REMOVE,
        "limits_mark": _MARK,
        "limits_list": _LIST,
        "limits_running": _RUNNING,
        "limits_waiting": _WAITING,
    }
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **gate_lock_statements(schema),
        **notify_statements(schema),
    }


class Limits:
    """The limits of a store, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes that jobs may come; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = limit_statements(schema)
        self._origin = origin

    async def put(self, limits: Sequence[NewLimit], *, defined: bool) -> bool:
        """See `aioqueue.abc.SupportsGates.put_limits`; returns whether one was changed by it."""
        stored = {each.name: each for each in limits}
        if defined and stored:
            names = list(stored), [_said(each) for each in stored.values()]
            new = {row[0] for row in await self._pool.read(self._statements["limits_new"], *names)}
            stored = {name: each for name, each in stored.items() if name in new}
        arguments: list[list[Any]] = [
            list(stored),
            [each.places for each in stored.values()],
            [each.per for each in stored.values()],
            [each.burst for each in stored.values()],
            [_said(each) for each in stored.values()],
        ]
        return bool(await self._change("limits_define" if defined else "limits_put", *arguments))

    async def remove(self, names: Sequence[str]) -> list[bool]:
        """See `aioqueue.abc.SupportsGates.remove_limits`."""
        removed = await self._change("limits_remove", list(names))
        return [name in removed and name not in names[:index] for index, name in enumerate(names)]

    async def _change(self, statement: str, names: Sequence[str], *columns: Sequence[object]) -> set[str]:
        """Change limits, and let come whoever waits at them; returns the names of those that were changed."""

        async def change(connection: Connection) -> set[str]:
            await connection.execute(HOLD_BRIEFLY)
            await lock_gates(connection, self._statements, names)
            changed = {row[0] for row in await connection.fetch(self._statements[statement], names, *columns)}
            if changed:
                await connection.fetch(self._statements["limits_mark"], sorted(changed))
                if self._origin is not None:
                    await connection.fetch(self._statements["notify"], gates_note(self._origin))
            return changed

        begun = time.monotonic()
        while names:
            try:
                return await self._pool.transact(change)
            except StoreContended:  # claims at busy limits, or one that is frozen there
                if time.monotonic() - begun >= self._pool.source.timeout:
                    raise
            await asyncio.sleep(_CONTENDED_SECONDS)
        return set()

    async def list(self) -> list[StoredLimit]:
        """See `aioqueue.abc.SupportsGates.list_limits`."""
        rows = await self._pool.read(self._statements["limits_list"])
        if not rows:
            return []
        most = min(MOST_COUNTED_JOBS, max(_LEAST_COUNTED, _MOST_COUNTED_TOGETHER // len(rows)))
        places = [row[0] for row in rows if row[2] is None]
        running = {row[0]: row[1] for row in await self._pool.read(self._statements["limits_running"], places, most)}
        names = [row[0] for row in rows]
        waiting = {row[0]: row[1] for row in await self._pool.read(self._statements["limits_waiting"], names, most)}
        return [
            StoredLimit(
                name=name,
                kind=LimitKind.PLACES if per is None else LimitKind.STARTS,
                places=number,
                per=per,
                burst=burst,
                defined=defined,
                changed=changed,
                running=running.get(name, 0),
                waiting=waiting.get(name, 0),
            )
            for name, number, per, burst, defined, changed in rows
        ]


def _said(limit: NewLimit) -> str:
    """What code says of a limit, as JSON: the same for the same."""
    return orjson.dumps({"places": limit.places, "per": limit.per, "burst": limit.burst}).decode()
