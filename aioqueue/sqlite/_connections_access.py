"""How the rooms write and read: a whole transaction, or one snapshot, per hop to a thread."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from aioqueue.sqlite._connections import in_snapshot, in_transaction
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_threads import DatabaseThreads, Request
    from aioqueue.sqlite._events_news import News
    from aioqueue.sqlite._gates_news import GateNews
    from aioqueue.store_rules._listeners import Listeners

__all__ = ["Reader", "Writer"]

T = TypeVar("T")


class Writer:
    """Writes in the thread that does so alone; listeners hear of it before the caller goes on.

    Arguments:
        threads: That thread.
        listeners: Who hears of what was written.
        timeout: Seconds to wait for each write lock.
        news: Whether there is something new in the log of events, while somebody reads it here.
        gates: Whether something has left a gate, while gates are used here.
    """

    def __init__(self, threads: DatabaseThreads, listeners: Listeners, timeout: float, news: News, gates: GateNews) -> None:
        self._threads = threads
        self._listeners = listeners
        self._news = news
        self._gates = gates
        self.timeout = timeout

    async def write(self, body: Callable[[sqlite3.Connection], tuple[T, Notification | None]]) -> T:
        """Run the body in one write transaction. It returns the result, and what listeners are told of it."""
        return await self.hop(lambda connection, abandoned: in_transaction(connection, self.timeout, body, abandoned))

    async def hop(self, body: Callable[[Connection, Callable[[], bool]], tuple[T, Notification | None]]) -> T:
        """Run a body that makes its transactions itself, and asks before each commit whether the caller went away."""

        def run(connection: Connection, request: Request[T]) -> T:
            result, notification = body(connection, request.is_abandoned)
            if self._news.until and self._news.look(connection):
                notification = replace(notification or Notification(), events=True)
            if self._gates.used and self._gates.look(connection):
                notification = replace(notification or Notification(), gates=True)
            if notification is not None and len(self._listeners):
                request.tell = functools.partial(self._listeners.tell, notification)
            return result

        return await self._threads.call(run)


class Reader:
    """Reads without the write lock.

    Arguments:
        threads: Gives the threads that read; called at first use, so that they needn't be started before.
    """

    def __init__(self, threads: Callable[[], DatabaseThreads]) -> None:
        self._threads = threads

    async def read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        """Run the body in one snapshot of the file."""
        return await self._threads().call(lambda connection, _: in_snapshot(connection, body))
