"""Who is told of what: listeners of this process at once, and of other processes' commits soon afterwards."""

from __future__ import annotations

import contextvars
import logging
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.abc import Notification

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Callable, Generator

    from aioqueue.abc import Listener
    from aioqueue.sqlite._connections_file import FileWatch
    from aioqueue.sqlite._options import Settings

__all__ = ["Housekeeping", "Listeners"]

logger = logging.getLogger("aioqueue.sqlite")

_ANYTHING = Notification(types=None, finished=None)
_CHECKPOINT_SECONDS = 5.0
_FILE_SECONDS = 1.0
_WARNING_SECONDS = 60.0


class Listeners:
    """Those who want to hear of commits. Everything here happens in the event loop, except `tell_from_thread`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[object, Listener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Name the event loop in which listeners are called."""
        self._loop = loop

    @contextmanager
    def added(self, listener: Listener, then: Callable[[], None]) -> Generator[None]:
        """Call the listener until the block ends; `then` is called once it's there."""
        token = object()
        self._listeners[token] = listener
        then()
        try:
            yield
        finally:
            del self._listeners[token]

    def tell(self, notification: Notification) -> None:
        """Call every listener, outside of all contexts; one that fails doesn't keep the others from hearing."""
        for listener in list(self._listeners.values()):
            try:
                contextvars.Context().run(listener, notification)
            except Exception:
                logger.exception("a listener failed")

    def tell_from_thread(self, notification: Notification) -> None:
        """Have every listener called."""
        if self._loop is None or not self._listeners:
            return
        try:
            self._loop.call_soon_threadsafe(self.tell, notification)
        except RuntimeError:
            logger.debug("a notification came after the event loop was closed")


class Housekeeping:
    """What the writer's thread does between requests: look for other connections' commits, keep the log short, watch the file.

    `PRAGMA data_version` differs when another connection has committed, and never for the own commits of the
    connection that asks, so the writer's asks (https://sqlite.org/pragma.html#pragma_data_version).
    """

    def __init__(self, settings: Settings, listeners: Listeners, watch: FileWatch) -> None:
        self._settings = settings
        self._listeners = listeners
        self._watch = watch
        self._file_at = 0.0
        self._version: int | None = None
        self._look_at = 0.0
        self._checkpoint_at = time.monotonic() + _CHECKPOINT_SECONDS
        self._warn_at = 0.0

    def interval(self) -> float | None:
        """Seconds until there's something to do without any request."""
        return self._settings.poll_interval if len(self._listeners) else None

    def tick(self, connection: sqlite3.Connection) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._look_at and len(self._listeners):
            self._look_at = now + self._settings.poll_interval
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
            known, self._version = self._version, version
            if version != known:
                self._listeners.tell_from_thread(_ANYTHING)
        if now >= self._file_at:
            self._file_at = now + _FILE_SECONDS
            self._watch.look()
            self._watch.look_at_log()
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + _CHECKPOINT_SECONDS
            self._checkpoint(connection, now)

    def _checkpoint(self, connection: sqlite3.Connection, now: float) -> None:
        # SQLite's own checkpoints never shrink the log, and never get done while somebody always reads.
        if self._log_size() <= self._settings.wal_limit:
            return
        # Requests wait meanwhile: a reader that is in the way isn't waited for.
        timeout: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            connection.execute("PRAGMA wal_checkpoint(truncate)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {timeout}")
        size = self._log_size()
        if size > 2 * self._settings.wal_limit and now >= self._warn_at:
            self._warn_at = now + _WARNING_SECONDS
            logger.warning(
                "the write-ahead log of %s has %d bytes and can't be cut: some connection keeps a read transaction open",
                self._settings.path,
                size,
            )

    def _log_size(self) -> int:
        try:
            return os.stat(f"{self._settings.path}-wal").st_size
        except OSError:
            return 0
