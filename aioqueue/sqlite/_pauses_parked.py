"""Jobs that were parked since their keys were paused, and that may come back: in portions, each of them on its own."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from aioqueue.errors import AioqueueError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._pauses_conditions import BEFORE_GATES, BEHIND_GATES, PAUSED_KEY, key_is_paused
from aioqueue.sqlite._rows import text_of
from aioqueue.sqlite._rows_ids import ANY_ID, RowId, any_id
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["ParkedJobs"]

logger = logging.getLogger("aioqueue.sqlite")

_PASSED_OVER_SECONDS = 60.0
"""After that a job that couldn't be brought back is tried again."""

_WALK = 20_000
"""Keys with parked jobs at which one call looks: up to a tenth of a second, in a reader's thread."""

_NEXT = "(SELECT min(gate) FROM job INDEXED BY job_held WHERE state = 0 AND gate < :behind AND gate > {})"

_FREE = f"""
WITH RECURSIVE named(gate, place) AS (
    SELECT {_NEXT.format(":after")}, 1
    UNION ALL SELECT {_NEXT.format("named.gate")}, place + 1 FROM named WHERE gate IS NOT NULL AND place < :walk),
looked(gate, place, is_free) AS (
    SELECT gate, place, NOT {key_is_paused(PAUSED_KEY.format("gate"))} FROM named WHERE gate IS NOT NULL)
SELECT gate, is_free, place = :walk FROM looked WHERE is_free OR place = :walk
"""
"""From one key to the next in the index, not over the jobs between."""

_FIRST = f"""
SELECT {ANY_ID} FROM job INDEXED BY job_held
WHERE state = 0 AND gate = :gate AND open_blockers = 0 ORDER BY priority, run_at, id LIMIT :limit
"""

_BACK = f"""
UPDATE job SET state = 1, gate = NULL, run_at = max(run_at, :now)
WHERE id = {any_id("row")} AND state = 0 AND open_blockers = 0 AND gate > '{BEFORE_GATES}' AND gate < '{BEHIND_GATES}'
    AND NOT {key_is_paused(PAUSED_KEY.format("job.gate"))}
RETURNING type, run_at
"""


class ParkedJobs:
    """Those of one open store.

    Arguments:
        timeout: Seconds to wait for each write lock.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._after = BEFORE_GATES
        self._passed_over: dict[RowId, float] = {}

    def look(self, connection: Statements, limit: int) -> list[RowId]:
        """Find jobs whose keys aren't paused any more, and move on in the walk over the keys."""
        asked = {"after": self._after, "behind": BEHIND_GATES, "walk": _WALK}
        rows = connection.execute(_FREE, asked).fetchall()
        found = self.first(connection, [gate for gate, is_free, _ in rows if is_free], limit)
        # What is more than a portion is found again by the next call, from the same place.
        if len(found) < limit:
            self._after = rows[-1][0] if rows and rows[-1][2] else BEFORE_GATES
        return found

    def first(self, connection: Statements, gates: Sequence[str], limit: int) -> list[RowId]:
        """The first jobs that are held by these: as many of each, as far as there are enough."""
        skip = self._skip()
        found: dict[str, list[RowId]] = {}
        left = limit
        while gates and left:
            share = -(-left // len(gates))
            more: list[str] = []
            for gate in gates:
                taken = len(found.get(gate, ()))
                wanted = taken + min(share, left)
                asked = {"gate": gate, "limit": wanted + len(skip)}
                rows = [RowId.read(*row) for row in connection.execute(_FIRST, asked).fetchall()]
                found[gate] = [row for row in rows if row not in skip][:wanted]
                left -= len(found[gate]) - taken
                if len(found[gate]) == wanted:
                    more.append(gate)
                if not left:
                    break
            gates = more
        return [row for rows in found.values() for row in rows]

    def _skip(self) -> frozenset[RowId]:
        now = time.monotonic()
        self._passed_over = {row: until for row, until in self._passed_over.items() if until > now}
        return frozenset(self._passed_over)

    def bring_back(
        self, connection: Connection, rows: Sequence[RowId], abandoned: Callable[[], bool]
    ) -> tuple[int, list[Notification]]:
        """Make jobs pending, unless that has changed; one that refuses it is told in the log, and passed over for a while.

        Returns:
            How many came back, and what listeners are told of it.
        """
        came_back = 0
        notifications: list[Notification] = []
        for part, outcome in halved(connection, self._timeout, rows, _bring_back, abandoned) if rows else ():
            if isinstance(outcome, AioqueueError):
                self._passed_over[part[0]] = time.monotonic() + _PASSED_OVER_SECONDS
                job_id = part[0].shown
                logger.error(
                    "job %s is passed over: %s", job_id, outcome, extra=event("store.row_passed_over", job_id=str(job_id))
                )
            elif outcome is not None:
                came_back += outcome[0]
                notifications.append(outcome[1])
        return came_back, notifications


def _bring_back(connection: sqlite3.Connection, rows: Sequence[RowId]) -> tuple[int, Notification] | None:
    now: int = connection.execute(f"SELECT {NOW}").fetchone()[0]
    back = [connection.execute(_BACK, {**row.parameters("row"), "now": now}).fetchall() for row in rows]
    changed = [row for each in back for row in each]
    if not changed:
        return None
    due = min((run_at for _, run_at in changed if isinstance(run_at, int)), default=now)
    types = frozenset(text_of(job_type) for job_type, _ in changed)
    return len(changed), Notification(types=types, delay=max(0, due - now) / 1e6)
