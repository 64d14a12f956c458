"""Retention: chains that are old enough are found in a snapshot, and removed in portions that commit one by one."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

import orjson

from aioqueue.errors import AioqueueError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_delete import remove_archived
from aioqueue.sqlite._progress_kept import forget_beside
from aioqueue.sqlite._retention_find import END, find_old, is_old, number
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_chain import LAST_STEPS
from aioqueue.sqlite._rows_ids import RowId, id_of
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.vocabulary._job import StoredState
    from aioqueue.vocabulary._listing import IdPage

__all__ = ["Retention"]

logger = logging.getLogger("aioqueue.sqlite")

_MOST_STEPS = 5_000
"""Archived steps that one transaction removes beside the ends: some 50 ms, in which nobody else writes."""

_HELD_BY_OTHERS = f"SELECT 1 FROM duty WHERE name = :name AND holder <> :holder AND expires_at > {NOW}"

_TAKE = f"""
INSERT INTO duty (name, holder, expires_at) VALUES (:name, :holder, {NOW} + :duration)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE duty.holder = excluded.holder OR duty.expires_at <= {NOW}
"""

_GIVE_UP = "DELETE FROM duty WHERE name = :name AND holder = :holder"

_SHORT_CHAIN = 100
"""Steps of a chain that is removed together with others, in the same statements."""

# One row for all of them, here and below: between two rows other threads get their turn, and nobody else can write meanwhile.
_ENDS = f"""
WITH {LAST_STEPS}
SELECT json_group_array(json_array(CAST(chain AS TEXT), {number("archive.position")}, {NOW}, {END}))
FROM step CROSS JOIN archive ON archive.id = step.archived WHERE live IS NULL AND typeof(chain) = 'text'
"""

_OF_CHAINS = """
SELECT archive.id FROM json_each(:chains) AS asked CROSS JOIN archive INDEXED BY archive_chain ON archive.chain_id = asked.value
UNION ALL
SELECT archive.id FROM json_each(:chains) AS asked CROSS JOIN archive ON archive.id = asked.value WHERE archive.chain_id IS NULL
"""

_STEPS = f"SELECT json_group_array(id) FROM ({_OF_CHAINS}) WHERE typeof(id) = 'text'"

_REMOVE = f"DELETE FROM archive WHERE id IN ({_OF_CHAINS})"


class Retention:
    """Retention of one open store.

    Arguments:
        writer: Where chains are removed.
        reader: Where they're looked for.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        """Take what one process at a time does, as `aioqueue.abc.SupportsRetention.take_duty` promises."""
        asked = {"name": name, "holder": holder}
        if duration <= 0:
            await self._writer.write(lambda connection: (connection.execute(_GIVE_UP, asked).rowcount, None))
            return False
        # Whoever hasn't got it doesn't take the write lock in vain.
        if await self._reader.read(lambda connection: connection.execute(_HELD_BY_OTHERS, asked).fetchone()) is not None:
            return False
        taken = {**asked, "duration": round(duration * 1e6)}
        return await self._writer.write(lambda connection: (connection.execute(_TAKE, taken).rowcount == 1, None))

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None) -> IdPage:
        """Find chains that are old enough, as `aioqueue.abc.SupportsRetention.find_old` promises."""
        return await self._reader.read(lambda connection: find_old(connection, ages, limit, cursor))

    async def purge(self, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> Sequence[UUID]:
        """Remove chains, as `aioqueue.abc.SupportsRetention.purge` promises. Of one that refuses it the log tells."""
        asked = list(dict.fromkeys(chain_ids))
        write = functools.partial(_purge, ages=ages)

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[list[UUID], Notification | None]:
            removed: list[UUID] = []
            notifications: list[Notification] = []
            for part, outcome in halved(connection, self._writer.timeout, asked, write, abandoned):
                if isinstance(outcome, AioqueueError):
                    logger.error(
                        "chain %s can't be removed: %s",
                        part[0],
                        outcome,
                        extra=event("store.job_not_changed", job_id=str(part[0])),
                    )
                elif outcome:
                    removed += outcome
                    notifications.append(Notification(finished=frozenset(outcome)))
            return removed, merged(notifications)

        return await self._writer.hop(run) if asked else []


def _purge(connection: sqlite3.Connection, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> list[UUID]:
    """Remove those that are still old enough; of a long one the last steps first, as many as may be."""
    portion = _MOST_STEPS
    asked = {"ids": dump([str(each) for each in chain_ids])}
    rows = orjson.loads(connection.execute(_ENDS, asked).fetchone()[0])
    old = [(chain, position) for chain, position, now, *end in rows if is_old(end, ages, now)]
    together: list[str] = []
    for chain, position in old:
        if isinstance(position, int) and 0 <= position < min(_SHORT_CHAIN, portion):
            portion -= position
            together.append(chain)
        else:
            portion -= remove_archived(connection, RowId(blob=False, raw=chain.encode()), max(1, portion))[0]
    if together:
        chains = {"chains": dump(together)}
        forget_beside(connection, orjson.loads(connection.execute(_STEPS, chains).fetchone()[0]))
        connection.execute(_REMOVE, chains)
    return [id_of(chain) for chain, _ in old]
