"""Threads that own a connection each, and run what the event loop hands them, one whole transaction per hop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aioqueue.errors import ClientClosed
from aioqueue.runtime._home import check_process, is_inherited
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import Abandoned, Connection
from aioqueue.sqlite._errors import breaks_connection

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DatabaseThreads", "Request"]

logger = logging.getLogger("aioqueue.sqlite")

T = TypeVar("T")


class Request(Generic[T]):
    """One hop.

    Arguments:
        body: Runs in the thread.
        loop: Where the answer goes; None when nobody waits for it.
    """

    __slots__ = ("abandoned", "body", "future", "last", "loop", "task", "tell")

    def __init__(self, body: Callable[[Connection, Request[T]], T], loop: asyncio.AbstractEventLoop | None) -> None:
        self.body = body
        self.loop = loop
        if loop is not None:
            self.future: asyncio.Future[T] = loop.create_future()
            self.task: Any = asyncio.current_task(loop)
        self.abandoned = False
        self.tell: Callable[[], None] | None = None
        """Set by the body: called in the event loop before the answer arrives, also when nobody waits any more."""
        self.last = False
        """Set by the body: the connection isn't used any more after it."""

    def is_abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        return self.abandoned

    def answer(self, result: T | None, error: BaseException | None) -> None:
        """Hand the answer to the event loop; for a loop that has been closed there is nobody to hear it."""
        if self.loop is None:
            if error is not None:
                logger.warning("a statement that nobody waits for failed: %s", error, extra=event("store.statement_failed"))
            return
        try:
            self.loop.call_soon_threadsafe(self._resolve, result, error)
        except RuntimeError:
            if not self.abandoned:
                logger.warning(
                    "the event loop was closed while a statement ran: nobody hears what became of it",
                    extra=event("store.loop_closed_early"),
                )
                if self.task is not None:
                    # It never ends. That has been said now; asyncio would say so once more, when it's destroyed.
                    self.task._log_destroy_pending = False

    def _resolve(self, result: Any, error: BaseException | None) -> None:
        try:
            if self.tell is not None and error is None:
                self.tell()
        finally:
            if self.future.done():
                pass
            elif error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)


class DatabaseThreads:
    """One or more threads with a connection each, and one queue.

    They are daemons: a store that nobody closed doesn't keep the interpreter alive. SQLite's files survive that as
    they survive any crash.

    Arguments:
        name: Of the threads.
        connect: Opens a connection; called in the thread, at first need and again after an error of the disk.
        count: Number of threads.
        tick: Called in the thread between requests, and without any every `interval()` seconds.
        interval: Seconds; None waits for requests only.
        check: Called in the thread before each request, which it refuses by raising.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        count: int = 1,
        tick: Callable[[Connection], None] | None = None,
        interval: Callable[[], float | None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._connect = connect
        self._tick = tick
        self._interval = interval
        self._check = check
        self._queue: queue.SimpleQueue[Request[Any] | None] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"aioqueue {name} {number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            contextvars.Context().run(thread.start)  # whoever happens to be first isn't carried along by the thread

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    async def call(self, body: Callable[[Connection, Request[T]], T]) -> T:
        """Run the body in a thread.

        A caller that is cancelled leaves at once: what hasn't begun won't, and what has is rolled back, or has
        been committed whole by then.

        Raises:
            ClientClosed: The threads have been closed, or stayed behind in the process from which this one was forked.
        """
        check_process(self._pid, "this store")
        if self._closed:
            raise ClientClosed("the store was closed")
        request = Request(body, asyncio.get_running_loop())
        self._queue.put(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            request.abandoned = True
            raise

    def send(self, body: Callable[[Connection, Request[Any]], object]) -> None:
        """Run the body in a thread, without an answer; from any thread."""
        self._queue.put(Request(body, None))

    def poke(self) -> None:
        """Let an idle thread ask for its interval anew."""
        self._queue.put(_NOTHING)

    def close_soon(self) -> None:
        """Take nothing more; the threads finish what was taken, close their connections, and end."""
        if not self._closed and not is_inherited(self._pid):
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until the threads have ended. Bounded in time."""
        if is_inherited(self._pid):
            return
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while any(thread.is_alive() for thread in self._threads):
            if time.monotonic() > deadline:
                logger.warning(
                    "a thread of the database still waits for a lock; it ends by itself",
                    extra=event("store.thread_left_behind"),
                )
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _run(self) -> None:
        connection: Connection | None = None
        request: Request[Any] | None
        try:
            while True:
                try:
                    request = self._queue.get(timeout=self._interval() if connection is not None else None)
                except queue.Empty:
                    request = _NOTHING
                if request is None:
                    return
                connection = self._serve(request, connection)
                request = None  # it isn't kept alive until the next one comes
                if self._tick is not None and connection is not None:
                    connection = self._ticked(self._tick, connection)
        finally:
            if connection is not None:
                _close(connection)

    def _ticked(self, tick: Callable[[Connection], None], connection: Connection) -> Connection | None:
        try:
            tick(connection)
        except Exception:
            # The thread must outlive it: requests wait. Who writes next learns what is wrong, on a new connection.
            logger.warning(
                "looking after the %s's connection failed", self._name, exc_info=True, extra=event("store.upkeep_failed")
            )
            _close(connection)
            return None
        return connection

    def _serve(self, request: Request[Any], connection: Connection | None) -> Connection | None:
        if request is _NOTHING or request.abandoned:
            return connection
        try:
            self._check()
            if connection is None:
                connection = self._connect()
            result = request.body(connection, request)
        except Abandoned:
            request.answer(None, asyncio.CancelledError())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            request.answer(None, error)
            request.last = request.last or breaks_connection(error)
        else:
            request.answer(result, None)
        if request.last and connection is not None:
            _close(connection)
            return None
        return connection


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except sqlite3.Error:
        logger.warning("a connection couldn't be closed", exc_info=True, extra=event("store.connection_not_closed"))


_NOTHING = cast("Request[Any]", object())
"""Stands in the queue where a thread is only to wake up."""
