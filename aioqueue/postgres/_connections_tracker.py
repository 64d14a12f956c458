"""What belongs to one opening of a store: its tasks and connections, so that none is left behind without a word."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioqueue.postgres._connections_source import Connection, Source

__all__ = ["Belongings", "cut_off", "is_over", "let_go", "tell_of_the_end"]

logger = logging.getLogger("aioqueue.postgres")

T = TypeVar("T")


class Belongings:
    """Holds tasks and connections until they have ended. It's made in the event loop that they belong to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connections: set[Connection] = set()

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task, in an empty context: it may outlive the request in which it was begun."""
        task = self._loop.create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard, context=Context())
        return task

    async def open(self, source: Source) -> Connection:
        """See `Source.open`; the connection is remembered for as long as it's open."""
        connection = await source.open()
        self._connections.add(connection)
        connection.add_termination_listener(self._connections.discard)
        return connection

    def forgotten(self, description: str) -> None:
        """Nobody can use the store any more, and nobody has closed it: say so once, and give everything back."""
        if os.getpid() != self._process:
            return
        warnings.warn(f"{description} was never closed", ResourceWarning, stacklevel=2)
        try:
            self._loop.call_soon_threadsafe(self._give_up)
        except RuntimeError:  # the loop is closed
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            for connection in list(self._connections):
                let_go(connection)

    def _give_up(self) -> None:
        for task in self._tasks:
            task.cancel()
        for connection in list(self._connections):
            cut_off(connection)


def is_over() -> bool:
    """Whether there's no event loop any more in which anything could be waited for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def tell_of_the_end() -> None:
    """Say that a statement's caller has gone together with its event loop."""
    logger.warning("the event loop was closed while a statement ran: nobody hears what became of it")


def cut_off(connection: Connection) -> None:
    """Close a connection without waiting for anything, whatever has become of its event loop."""
    if is_over():
        let_go(connection)
    else:
        connection.terminate()


def let_go(connection: Connection) -> None:
    """Close the socket of a connection whose event loop is closed. Nothing public does so without a warning for each part."""
    with suppress(Exception):
        given: Any = connection
        given._aborted = True
        transport = given._transport
        inner: Any = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
        for each in (transport, inner):
            if hasattr(each, "_closed"):
                each._closed = True
            if getattr(each, "_sock", None) is not None:
                each._sock.close()
                each._sock = None
