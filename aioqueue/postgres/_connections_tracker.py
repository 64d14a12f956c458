"""The tasks and connections of one open store are tracked, so that none is left behind without a word."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.postgres._connections_closing import CLOSE_SECONDS, close_socket, terminate

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_source import Source

__all__ = ["Tracker", "wait_or_cancel"]

T = TypeVar("T")


class Tracker:
    """Holds the tasks and connections of one open store until they have ended.

    It's made in the event loop that they belong to.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connections: set[Connection] = set()

    def start_task(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task, in an empty context: it may outlive the request in which it was begun."""
        task = self._loop.create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard, context=Context())
        return task

    async def open(self, source: Source) -> Connection:
        """Open a connection, as `Source.open` does, and hold it for as long as it's open."""
        connection = await source.open()
        self._connections.add(connection)
        connection.add_termination_listener(self._connections.discard)
        return connection

    def give_up(self) -> None:
        """Give everything back without waiting for anything: nobody can use the store any more. From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._terminate_all)
        except RuntimeError:  # the loop is closed
            for task in self._tasks:
                silenced: Any = task  # the attribute is asyncio's own, and in no stub
                silenced._log_destroy_pending = False
            for connection in list(self._connections):
                close_socket(connection)

    def _terminate_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        for connection in list(self._connections):
            terminate(connection)


async def wait_or_cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for tasks, and cancel those that take too long."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS / 2)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CLOSE_SECONDS / 2)
