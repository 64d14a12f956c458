"""Limits: stored, changed, removed and listed; how gates are; sequences that go on. What they keep is the claim's matter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aioqueue.sqlite._gates_list import gate_statuses, kept_sequences, list_limits
from aioqueue.sqlite._gates_promote import PORTION, leave_marks
from aioqueue.sqlite._rows import dump
from aioqueue.vocabulary._gates import SEQUENCE, LimitKind
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_news import GateNews
    from aioqueue.vocabulary._gates import GateStatus, KeptSequence, NewLimit, StoredLimit

__all__ = ["Gates"]

_MARKED_GATES = 1000
"""Gates of one name at which marks are left at once; `Store.tend` finds the others."""

_STORED = "SELECT places, per, burst, defined, changed FROM gate_limit WHERE name = :name"

_PUT = """
INSERT OR REPLACE INTO gate_limit (name, places, per, burst, defined, changed)
VALUES (:name, :places, :per, :burst, :defined, :changed)
"""

_REMOVE = "DELETE FROM gate_limit WHERE name = :name"

_HELD_AT = f"""
WITH RECURSIVE held(gate, place) AS (
    SELECT (SELECT min(gate) FROM job INDEXED BY job_at_gate
            WHERE state = 0 AND open_blockers = 0 AND gate > :name || '=' AND gate < :name || '>'), 1
    UNION ALL
    SELECT (SELECT min(gate) FROM job INDEXED BY job_at_gate
            WHERE state = 0 AND open_blockers = 0 AND gate > held.gate AND gate < :name || '>'), place + 1
    FROM held WHERE gate IS NOT NULL AND place < {_MARKED_GATES})
SELECT gate FROM held WHERE gate IS NOT NULL
"""

_GOES_ON = "UPDATE gate_member SET block = 0 WHERE sequence = :name AND ended = 6 AND block = 1"


class Gates:
    """What people and code say of the gates of one open store, as `aioqueue.abc.SupportsGates` promises.

    Arguments:
        writer: Where it's written.
        reader: Where is looked.
        news: Is told that gates are used.
    """

    def __init__(self, writer: Writer, reader: Reader, news: GateNews) -> None:
        self._writer = writer
        self._reader = reader
        self._news = news

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool) -> None:
        """Store limits, all or none."""
        self._news.used = True

        def put(connection: sqlite3.Connection) -> tuple[None, Notification | None]:
            changed = [_put(connection, each, defined=defined) for each in limits]
            return None, Notification(gates=True) if any(changed) else None

        await self._writer.write(put)

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        """Remove limits. Returns which were there."""
        self._news.used = True

        def remove(connection: sqlite3.Connection) -> tuple[list[bool], Notification | None]:
            removed = [connection.execute(_REMOVE, {"name": name}).rowcount > 0 for name in names]
            for name, was_there in zip(names, removed, strict=True):
                if was_there:
                    _let_more_come(connection, name, 10 * PORTION)
            return removed, Notification(gates=True) if any(removed) else None

        return await self._writer.write(remove)

    async def list_limits(self) -> Sequence[StoredLimit]:
        """As of `list_limits`, in one snapshot."""
        return await self._reader.read(list_limits)

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[GateStatus]:
        """How gates are."""
        return await self._reader.read(functools.partial(gate_statuses, gates=gates))

    async def kept_sequences(self) -> Sequence[KeptSequence]:
        """As of `kept_sequences`, in one snapshot."""
        return await self._reader.read(kept_sequences)

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        """Let sequences go on. Returns which were kept."""
        self._news.used = True

        def resume(connection: sqlite3.Connection) -> tuple[list[bool], Notification | None]:
            resumed = [connection.execute(_GOES_ON, {"name": name}).rowcount > 0 for name in names]
            on = [name for name, goes_on in zip(names, resumed, strict=True) if goes_on]
            leave_marks(connection, {f"{SEQUENCE}={name}": 1 for name in on})
            return resumed, Notification(gates=True) if on else None

        return await self._writer.write(resume)


def _put(connection: Statements, limit: NewLimit, *, defined: bool) -> bool:
    """Store a limit, unless somebody has changed what code says again. Returns whether it's another one now."""
    starts = limit.kind is LimitKind.STARTS
    new = (limit.places, limit.per if starts else None, limit.burst if starts else None)
    said = dump([limit.kind, *new])
    row = connection.execute(_STORED, {"name": limit.name}).fetchone()
    before, there, changed = (None, None, 0) if row is None else (row[:3], row[3], row[4])
    if defined and there == said:
        return False
    kept, by_people = (said, 0) if defined else (there, int(there is not None))
    places, per, burst = new
    row_now = {"name": limit.name, "places": places, "per": per, "burst": burst, "defined": kept, "changed": by_people}
    connection.execute(_PUT, row_now)
    if before is not None and before != new:
        freed = 1 if starts else places - before[0] if before[1] is None else PORTION
        if freed > 0:
            _let_more_come(connection, limit.name, freed)
    return before != new or bool(changed) != bool(by_people)


def _let_more_come(connection: Statements, name: str, freed: int) -> None:
    held = [row[0] for row in connection.execute(_HELD_AT, {"name": name}).fetchall()]
    leave_marks(connection, dict.fromkeys([name, *held], freed))
