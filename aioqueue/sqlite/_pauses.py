"""Pauses: stored, lifted, and listed. What they keep from being claimed is the claim's matter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aioqueue.sqlite._connections import in_snapshot, in_transaction
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._pauses_conditions import LASTS, key_is_paused
from aioqueue.sqlite._pauses_list import list_pauses
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import NOW, microseconds
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, PauseTarget

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._pauses_parked import ParkedJobs
    from aioqueue.sqlite._rows_ids import RowId
    from aioqueue.vocabulary._pauses import NewPause, Pause

__all__ = ["Pauses"]

_BACK_AT_ONCE = 100
"""Jobs with resumed keys that come back with that; `Store.tend` sees to the others."""

_PUT = f"""
INSERT OR REPLACE INTO pause (target, value, by, reason, at, until) VALUES (:target, :value, :by, :reason, {NOW}, :until)
"""

_MEANT = "target = :target AND value IN (SELECT value FROM json_each(:values)) AND (:by IS NULL OR by = :by)"

_COUNT = f"SELECT count(*) FROM pause WHERE {_MEANT} AND {LASTS}"

_LIFT = f"DELETE FROM pause WHERE {_MEANT}"

_FREE_KEYS = f"SELECT asked.value FROM json_each(:values) AS asked WHERE NOT {key_is_paused('asked.value')}"


class Pauses:
    """Pauses of one open store, as `aioqueue.abc.SupportsPauses` promises.

    Arguments:
        writer: Where they're written.
        reader: Where they're listed.
        parked: Brings jobs back.
    """

    def __init__(self, writer: Writer, reader: Reader, parked: ParkedJobs) -> None:
        self._writer = writer
        self._reader = reader
        self._parked = parked

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """Store pauses, all or none."""
        await self._writer.write(functools.partial(_put, pauses=pauses))

    async def resume(self, target: PauseTarget, values: Collection[str], *, by: str | None) -> int:
        """Lift pauses. Jobs that can't come back yet keep nobody from lifting them."""
        asked = {"target": target, "values": dump(sorted(values)), "by": by}
        lift = functools.partial(_lift, asked=asked)

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[int, Notification | None]:
            lifted = in_transaction(connection, self._writer.timeout, lift, abandoned)
            if target is not PauseTarget.KEY:
                types = None if target is PauseTarget.ALL else frozenset(values)
                return lifted, Notification(types=types) if lifted else None
            parked = in_snapshot(connection, lambda each: self._first_parked(each, asked["values"]))
            return lifted, merged(self._parked.bring_back(connection, parked, _never)[1])

        return await self._writer.hop(run)

    def _first_parked(self, connection: Statements, keys: str | None) -> list[RowId]:
        free = connection.execute(_FREE_KEYS, {"values": keys}).fetchall()
        return self._parked.first(connection, [HELD_BY_PAUSE + row[0] for row in free], _BACK_AT_ONCE)

    async def list(self) -> Sequence[Pause]:
        """All pauses that aren't over."""
        return await self._reader.read(list_pauses)


def _put(connection: sqlite3.Connection, pauses: Sequence[NewPause]) -> tuple[None, None]:
    for each in pauses:
        known = {"target": each.target, "value": each.value, "by": each.by, "reason": each.reason}
        connection.execute(_PUT, {**known, "until": None if each.until is None else microseconds(each.until)})
    return None, None


def _lift(connection: sqlite3.Connection, asked: dict[str, str | None]) -> int:
    lifted: int = connection.execute(_COUNT, asked).fetchone()[0]
    connection.execute(_LIFT, asked)
    return lifted


def _never() -> bool:
    return False
