"""What was kept for some time, and is over: found in a snapshot, and removed in portions, in a transaction of its own."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from aioqueue.errors import StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import in_transaction
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._events import OLD_EVENT, end_unread, forget_events
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._webhooks import FORGOTTEN

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["OldRows", "any_old"]

logger = logging.getLogger("aioqueue.sqlite")

_PAUSE_SECONDS = 60.0
"""After that it's tried again to remove what refused it."""

_LEASES_KEPT_DAYS = 90

_ENDED_LEASE = f"""opened_at < {NOW} - {_LEASES_KEPT_DAYS * 86_400 * 1_000_000}
    AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = past_lease.id)"""

_LOOK = f"""
SELECT EXISTS (SELECT 1 FROM past_lease INDEXED BY past_lease_opened WHERE {_ENDED_LEASE})
    OR EXISTS (SELECT 1 FROM delivery INDEXED BY delivery_finished WHERE {FORGOTTEN})
    OR EXISTS (SELECT 1 FROM reader WHERE expires_at <= {NOW})
    OR EXISTS (SELECT 1 FROM pause INDEXED BY pause_until WHERE until <= {NOW})
    OR EXISTS (SELECT 1 FROM (SELECT at FROM event ORDER BY sequence LIMIT 1) WHERE {OLD_EVENT})
"""

_FORGET = (
    f"""DELETE FROM past_lease WHERE id IN (
        SELECT id FROM past_lease INDEXED BY past_lease_opened WHERE {_ENDED_LEASE} LIMIT :limit)""",
    f"""DELETE FROM delivery WHERE id IN (
        SELECT id FROM delivery INDEXED BY delivery_finished WHERE {FORGOTTEN} LIMIT :limit)""",
    f"DELETE FROM pause WHERE until <= {NOW}",
)


def any_old(connection: Statements) -> bool:
    """Whether there is something to remove."""
    return bool(connection.execute(_LOOK).fetchone()[0])


class OldRows:
    """Removes what is old from one open store. What refuses it is told in the log, and keeps nothing else from being done."""

    def __init__(self) -> None:
        self._again_at = 0.0

    def forget(self, connection: Connection, timeout: float, limit: int, abandoned: Callable[[], bool]) -> None:
        """Remove one portion."""
        if time.monotonic() < self._again_at:
            return

        def body(each: sqlite3.Connection) -> None:
            for statement in _FORGET:
                each.execute(statement, {"limit": limit})
            end_unread(each)
            forget_events(each)

        try:
            in_transaction(connection, timeout, body, abandoned)
        except StoreError as error:
            if not concerns_a_row(error):
                raise
            self._again_at = time.monotonic() + _PAUSE_SECONDS
            logger.error("old rows can't be removed: %s", error, extra=event("store.old_rows_kept"))
