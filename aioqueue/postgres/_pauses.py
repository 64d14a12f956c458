"""Pauses: stored, lifted and shown. Claims look at them in their own statement: see `_claim`, and `_pauses_parked`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._connections_source import WAIT_BRIEFLY
from aioqueue.postgres._notifications import due_note, everything_note, notify_statements
from aioqueue.postgres._pauses_parked import GATE, VALID, bring_back, parked_statements
from aioqueue.postgres._rows import moment
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, Pause, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._connections import Pool
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._pauses import NewPause

__all__ = ["Pauses", "pause_statements"]

_RESUMED_AT_ONCE = 500
"""Parked jobs that come back with the end of their pause; upkeep brings the others."""

_MOST_LISTED = 10_000
_MOST_COUNTED_TOGETHER = 1_000_000
"""Jobs that are counted for one list of pauses: where there are many, each is counted less far."""
_LEAST_COUNTED = 100

# In the order of the key, as everybody locks them.
_PAUSE = """INSERT INTO @schema@.pause AS p (target, value, by, reason, until)
SELECT given.target, given.value, given.by, given.reason, given.until
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[]) AS given(target, value, by, reason, until)
ORDER BY given.target, given.value, given.by
ON CONFLICT (target, value, by) DO UPDATE SET reason = excluded.reason, until = excluded.until, at = excluded.at"""
_RESUME = f"""WITH given AS MATERIALIZED (
    SELECT p.target, p.value, p.by FROM @schema@.pause p
    WHERE p.target = $1::text AND p.value = ANY($2::text[]) AND ($3::text IS NULL OR p.by = $3::text)
    ORDER BY p.target, p.value, p.by FOR UPDATE
)
DELETE FROM @schema@.pause p USING given
WHERE p.target = given.target AND p.value = given.value AND p.by = given.by RETURNING {VALID}"""
_LIST = f"""SELECT p.target, p.value, p.by, p.reason, {moment("p.at")}, {moment("p.until")} FROM @schema@.pause p WHERE {VALID}
ORDER BY p.target, p.value, p.by LIMIT {_MOST_LISTED}"""

# How many jobs are due, and would be claimed if it weren't for this pause and others. Of those with a key that haven't been
# parked yet, and of those of a type that have been, only so many are looked at.
_DUE = "j.run_at <= statement_timestamp()"
# What is held at other gates wouldn't run without the pause either. `;` comes after `:`.
_PARKED = f"""j.gate COLLATE "C" > '{HELD_BY_PAUSE}' AND j.gate COLLATE "C" < '{HELD_BY_PAUSE[:-1]};'"""
_OF_LANE = f"""SELECT FROM @schema@.job j
        WHERE j.state = 1 AND j.type = lane.type AND j.priority = lane.priority AND {_DUE} LIMIT $3::integer"""
_WAITING = f"""WITH RECURSIVE pending_type AS (
    (SELECT j.type FROM @schema@.job j WHERE j.state = 1 ORDER BY j.type LIMIT 1)
    UNION ALL
    SELECT (SELECT j.type FROM @schema@.job j WHERE j.state = 1 AND j.type > t.type ORDER BY j.type LIMIT 1)
    FROM pending_type t WHERE t.type IS NOT NULL
)
SELECT given.target, given.value, least($3::integer, CASE given.target
    WHEN '{PauseTarget.ALL}' THEN (
        SELECT count(*) FROM (
            SELECT FROM pending_type AS t CROSS JOIN generate_series(1, 4) AS p(priority)
            CROSS JOIN LATERAL (SELECT t.type, p.priority) AS lane CROSS JOIN LATERAL ({_OF_LANE}) AS due
            WHERE t.type IS NOT NULL LIMIT $3::integer) AS due)
      + (SELECT count(*) FROM (
            SELECT FROM @schema@.job j WHERE j.state <= 0 AND {_PARKED} AND {_DUE} LIMIT $3::integer) AS parked)
    WHEN '{PauseTarget.TYPE}' THEN (
        SELECT count(*) FROM (
            SELECT FROM generate_series(1, 4) AS p(priority)
            CROSS JOIN LATERAL (SELECT given.value AS type, p.priority) AS lane CROSS JOIN LATERAL ({_OF_LANE}) AS due
            LIMIT $3::integer) AS due)
      + (SELECT count(*) FILTER (WHERE of_type.parked) FROM (
            SELECT {_PARKED} AND {_DUE} AS parked FROM @schema@.job j WHERE j.state = 0 AND j.type = given.value
            ORDER BY j.type, j.id LIMIT 2 * $3::integer) AS of_type)
    ELSE (
        SELECT count(*) FROM (
            SELECT FROM @schema@.job j WHERE j.state = 0 AND j.gate = {GATE} || given.value AND {_DUE}
            LIMIT $3::integer) AS parked)
      + (SELECT count(*) FILTER (WHERE of_key.due) FROM (
            SELECT j.state + 0 = 1 AND {_DUE} AS due FROM @schema@.job j WHERE j.key = given.value
            ORDER BY j.key, j.id LIMIT 2 * $3::integer) AS of_key)
END)::integer
FROM unnest($1::text[], $2::text[]) AS given(target, value)"""


def pause_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {"pause": _PAUSE, "resume": _RESUME, "list_pauses": _LIST, "pauses_waiting": _WAITING}
    return {
        **{name: schema.render(template) for name, template in templates.items()},
        **parked_statements(schema),
        **notify_statements(schema),
    }


class Pauses:
    """The pauses of a store, over the pool of the client's own operations.

    Arguments:
        pool: For the client's own operations.
        schema: Where the tables are.
        origin: Who tells other processes of what may be claimed again; None if nobody is to be told.
    """

    def __init__(self, pool: Pool, schema: Schema, origin: str | None) -> None:
        self._pool = pool
        self._statements = pause_statements(schema)
        self._origin = origin

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """See `aioqueue.abc.SupportsPauses.pause`."""
        stored = list({(each.target, each.value, each.by): each for each in pauses}.values())
        if not stored:
            return
        await self._pool.fetch(
            self._statements["pause"],
            [each.target.value for each in stored],
            [each.value for each in stored],
            [each.by for each in stored],
            [each.reason for each in stored],
            [each.until for each in stored],
        )

    async def resume(self, target: PauseTarget, values: Collection[str], by: str | None) -> tuple[int, Notification]:
        """See `aioqueue.abc.SupportsPauses.resume`; returns what listeners are to be told, too."""

        async def resume(connection: Connection) -> tuple[int, Notification]:
            await connection.execute(WAIT_BRIEFLY)
            rows = await connection.fetch(self._statements["resume"], target.value, list(values), by)
            told = await self._brought_back(connection, target, values) if rows else Notification()
            return sum(row[0] for row in rows), told

        return await self._pool.transact(resume)

    async def _brought_back(self, connection: Connection, target: PauseTarget, values: Collection[str]) -> Notification:
        """Bring back what is parked, a first portion, and tell others of what may be claimed."""
        told = Notification(types=None if target is PauseTarget.ALL else frozenset(values))
        if target is PauseTarget.KEY:
            back = await bring_back(connection, self._statements, list(values), _RESUMED_AT_ONCE)
            told = Notification(types=back.types, delay=back.delay if back.types else 0.0)
        if self._origin is not None:
            note = everything_note(self._origin) if told.types is None else due_note(told.types, told.delay, self._origin)
            if note is not None:
                await connection.fetch(self._statements["notify"], note)
        return told

    async def list(self) -> list[Pause]:
        """See `aioqueue.abc.SupportsPauses.list_pauses`."""
        rows = await self._pool.read(self._statements["list_pauses"])
        about = list(dict.fromkeys((row[0], row[1]) for row in rows))
        if not about:
            return []
        most = min(MOST_COUNTED_JOBS, max(_LEAST_COUNTED, _MOST_COUNTED_TOGETHER // len(about)))
        asked = [target for target, _ in about], [value for _, value in about]
        waiting = {(row[0], row[1]): row[2] for row in await self._pool.read(self._statements["pauses_waiting"], *asked, most)}
        return [
            Pause(
                target=PauseTarget(target),
                value=value,
                by=by,
                reason=reason,
                until=until,
                at=at,
                waiting=waiting.get((target, value), 0),
            )
            for target, value, by, reason, at, until in rows
            if target in _TARGETS
        ]


_TARGETS = frozenset(PauseTarget)
