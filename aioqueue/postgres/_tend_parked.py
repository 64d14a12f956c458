"""Jobs that are parked though their key isn't paused any more: its pause was lifted, or is over, or is gone whyever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.postgres._notifications import due_note, notify_statements
from aioqueue.postgres._pauses_parked import bring_back, key_has_pause, parked_statements
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from aioqueue.errors import StoreError
    from aioqueue.postgres._connections_driver import Connection, Reader
    from aioqueue.postgres._options_schema import Schema

__all__ = ["FreeKeys", "parked_free_statements", "unpark"]

_SWEPT_KEYS = 500
"""Keys that one look goes through."""

# One gate after the other, along the index that has them, in whatever order the database sorts texts.
_FREE = f"""WITH RECURSIVE gate(name) AS (
    (SELECT j.gate FROM @schema@.job j WHERE j.state = 0 AND j.gate > $1::text ORDER BY j.gate LIMIT 1)
    UNION ALL
    SELECT (SELECT j.gate FROM @schema@.job j WHERE j.state = 0 AND j.gate > gate.name ORDER BY j.gate LIMIT 1)
    FROM gate WHERE gate.name IS NOT NULL
), swept AS MATERIALIZED (
    SELECT name, row_number() OVER () AS place FROM gate WHERE name IS NOT NULL LIMIT $2::integer
)
SELECT ARRAY(SELECT key.name FROM swept CROSS JOIN LATERAL (SELECT substr(swept.name, {len(HELD_BY_PAUSE) + 1}) AS name) AS key
             WHERE starts_with(swept.name, '{HELD_BY_PAUSE}') AND NOT ({key_has_pause("key.name")}) ORDER BY swept.place),
       CASE WHEN (SELECT count(*) FROM swept) = $2::integer THEN (SELECT name FROM swept ORDER BY place DESC LIMIT 1) END"""


def parked_free_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    return {"tend_free_keys": schema.render(_FREE), **parked_statements(schema), **notify_statements(schema)}


class FreeKeys:
    """Looks in turn through all keys of which jobs are parked, some of them each time, for those that aren't paused.

    Arguments:
        reader: Runs the statement.
        statement: `tend_free_keys`.
    """

    def __init__(self, reader: Reader, statement: str) -> None:
        self._reader = reader
        self._statement = statement
        self._begin = self._next = ""

    async def look(self) -> list[str]:
        """Look through the next ones; returns those that aren't paused."""
        ((free, last),) = await self._reader.read(self._statement, self._next, _SWEPT_KEYS)
        self._begin, self._next = self._next, last or ""
        return list(free)

    def again(self) -> None:
        """Look through the same ones next: there are more jobs of them."""
        self._next = self._begin


async def unpark(
    connection: Connection,
    statements: dict[str, str],
    keys: Collection[str],
    limit: int,
    *,
    origin: str | None,
    passed_over: Collection[UUID],
    refused: dict[UUID, StoreError],
) -> tuple[int, bool, Notification]:
    """Bring back what is parked of keys that aren't paused any more, within the connection's open transaction.

    Arguments:
        connection: In a transaction, in which rows are waited for briefly.
        statements: Those of this module, and maybe others.
        keys: The keys.
        limit: Jobs at most.
        origin: Who tells other processes; None if nobody is to be told.
        passed_over: Jobs that aren't tried.
        refused: Where jobs are put that refuse to come back, and why.

    Returns:
        How many have come back, whether there may be more, and what listeners are to be told.
    """
    back = await bring_back(connection, statements, list(keys), limit, passed_over=passed_over, refused=refused)
    if not back.types:
        return back.jobs, back.cut, Notification()
    if origin is not None and (note := due_note(back.types, back.delay, origin)) is not None:
        await connection.fetch(statements["notify"], note)
    return back.jobs, back.cut, Notification(types=back.types, delay=back.delay)
