"""Notifications: what writes have to tell, and how other processes' commits are noticed, by the writer's thread."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from aioqueue.runtime._log import event
from aioqueue.sqlite._rows_times import NOW
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.sqlite._connections_file import FileWatch
    from aioqueue.sqlite._events_news import News
    from aioqueue.sqlite._gates_news import GateNews
    from aioqueue.sqlite._options import Options
    from aioqueue.store_rules._listeners import Listeners

__all__ = ["Housekeeping", "merged"]

logger = logging.getLogger("aioqueue.sqlite")

_ASKED = """
SELECT lease_id, claims, CAST(id AS BLOB) FROM job INDEXED BY job_asked
WHERE cancel_reason IS NOT NULL AND state = 2 AND typeof(lease_id) = 'integer'
"""
"""Whose chains were asked to end, of the jobs that are running: next to none, so that each look may read all of it."""

_DUE = f"SELECT 1 FROM delivery INDEXED BY delivery_due WHERE state = 1 AND next_at <= {NOW} LIMIT 1"

_NEW_SCHEDULES = """
SELECT version, CAST(name AS BLOB) FROM schedule INDEXED BY schedule_due WHERE paused = 0 AND next_at IS NULL LIMIT 10000
"""
"""Whose next ticks aren't known yet: none for long, where somebody can work them out."""

_CHECKPOINT_SECONDS = 5.0
_FILE_SECONDS = 1.0
_WARNING_SECONDS = 60.0


def merged(notifications: Sequence[Notification]) -> Notification | None:
    """Put what several writes have to tell into one notification; None if they have nothing."""
    if not notifications:
        return None
    return Notification(
        types=frozenset(name for each in notifications for name in each.types or ()),
        finished=frozenset(job_id for each in notifications for job_id in each.finished or ()),
        delay=min(each.delay for each in notifications),
        leases=frozenset(lease_id for each in notifications for lease_id in each.leases),
        events=any(each.events for each in notifications),
        deliveries=any(each.deliveries for each in notifications),
        schedules=any(each.schedules for each in notifications),
        gates=any(each.gates for each in notifications),
    )


class Housekeeping:
    """What the writer's thread does between requests: look for other connections' commits, keep the log short, watch the file.

    `PRAGMA data_version` differs when another connection has committed, and never for the own commits of the
    connection that asks, so the writer's asks (https://sqlite.org/pragma.html#pragma_data_version).
    """

    def __init__(self, options: Options, listeners: Listeners, watch: FileWatch, news: News, gates: GateNews) -> None:
        self._options = options
        self._listeners = listeners
        self._watch = watch
        self._news = news
        self._gates = gates
        self._file_at = 0.0
        self._version: int | None = None
        self._asked: frozenset[tuple[int, int, bytes]] = frozenset()
        self._new_schedules: frozenset[tuple[int, bytes]] = frozenset()
        self._look_at = 0.0
        self._checkpoint_at = time.monotonic() + _CHECKPOINT_SECONDS
        self._warn_at = 0.0

    def interval(self) -> float | None:
        """Seconds until there's something to do without any request."""
        return self._options.poll_interval if len(self._listeners) else None

    def tick(self, connection: sqlite3.Connection) -> None:
        """See whether other processes have committed, and whether the file is still there, each if it's time."""
        now = time.monotonic()
        if now >= self._look_at and len(self._listeners):
            self._look_at = now + self._options.poll_interval
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
            known, self._version = self._version, version
            if version != known:
                self._listeners.tell_from_thread(self._changed(connection))
        if now >= self._file_at:
            self._file_at = now + _FILE_SECONDS
            self._watch.look()
            self._watch.look_at_log()
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + _CHECKPOINT_SECONDS
            self._checkpoint(connection, now)

    def _changed(self, connection: sqlite3.Connection) -> Notification:
        """What is told of other connections' commits."""
        events, deliveries = self._to_read(connection)
        return Notification(
            types=None,
            finished=None,
            leases=self._asked_since(connection),
            events=events,
            deliveries=deliveries,
            schedules=self._scheduled_since(connection),
            gates=self._gates.look(connection),
        )

    def _asked_since(self, connection: sqlite3.Connection) -> frozenset[int]:
        """The leases of jobs whose chains were asked to end since the last look, by whomever: each is told once of each job."""
        known = self._asked
        # Whether the file still has its tables is a matter for those who write.
        with suppress(sqlite3.Error):
            self._asked = frozenset(connection.execute(_ASKED).fetchall())
        return frozenset(lease_id for lease_id, _, _ in self._asked - known)

    def _scheduled_since(self, connection: sqlite3.Connection) -> bool:
        """Whether somebody has stored or changed a schedule since the last look, so that its next tick isn't known."""
        known = self._new_schedules
        with suppress(sqlite3.Error):
            self._new_schedules = frozenset(connection.execute(_NEW_SCHEDULES).fetchall())
        return not self._new_schedules <= known

    def _to_read(self, connection: sqlite3.Connection) -> tuple[bool, bool]:
        """Whether there is something new in the log of events, and whether a delivery is due."""
        with suppress(sqlite3.Error):
            return self._news.look(connection), connection.execute(_DUE).fetchone() is not None
        return False, False

    def _checkpoint(self, connection: sqlite3.Connection, now: float) -> None:
        # SQLite's own checkpoints never shrink the log, and never get done while somebody always reads.
        if self._log_size() <= self._options.wal_limit:
            return
        # Requests wait meanwhile: a reader that is in the way isn't waited for.
        timeout: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            connection.execute("PRAGMA wal_checkpoint(truncate)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {timeout}")
        size = self._log_size()
        if size > 2 * self._options.wal_limit and now >= self._warn_at:
            self._warn_at = now + _WARNING_SECONDS
            logger.warning(
                "the write-ahead log of %s has %d bytes and can't be cut: some connection keeps a read transaction open",
                self._options.path,
                size,
                extra=event("store.log_not_cut", bytes=size),
            )

    def _log_size(self) -> int:
        try:
            return os.stat(f"{self._options.path}-wal").st_size
        except OSError:
            return 0
