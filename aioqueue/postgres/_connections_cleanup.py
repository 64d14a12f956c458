"""Connections that aren't known to be in order are put in order in tasks of their own, which their callers don't wait for."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any

from aioqueue.postgres._connections_closing import CLOSE_SECONDS, PATIENCE_SECONDS, terminate
from aioqueue.postgres._connections_tracker import wait_or_cancel
from aioqueue.runtime._log import event
from aioqueue.runtime._shield import wait_until_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_tracker import Tracker

__all__ = ["Cleanup", "answers", "roll_back"]

logger = logging.getLogger("aioqueue.postgres")

_CLEANUP_SECONDS = 5.0
_ASK_SECONDS = 2.0


class Cleanup:
    """Starts such tasks for one owner of connections; each ends within `_CLEANUP_SECONDS` and a little.

    Arguments:
        tracker: Holds them.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._tasks: set[asyncio.Task[None]] = set()

    def _start(self, work: Coroutine[Any, Any, None], give_up: Callable[[], None]) -> asyncio.Task[None]:
        task = self._tracker.start_task(work, "aioqueue connection")
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                give_up()

        task.add_done_callback(ended, context=Context())
        return task

    def start(self, work: Coroutine[Any, Any, None], give_up: Callable[[], None]) -> None:
        """Do something without waiting for it.

        Arguments:
            work: What is to be done.
            give_up: Called if it was cancelled. The event loop's end cancels every task, perhaps before its first step: then
                nothing of `work` is done, not even what stands in its `finally`.
        """
        _ = self._start(work, give_up)

    async def run(self, work: Coroutine[Any, Any, None], give_up: Callable[[], None], *, late: bool) -> None:
        """Do something and wait for it. It goes on when nobody waits any more.

        Arguments:
            work: What is to be done.
            give_up: As for `start`.
            late: Whether the caller has been cancelled, or its deadline is over: it waits for `PATIENCE_SECONDS` at most.

        Raises:
            asyncio.CancelledError: The caller was cancelled meanwhile.
        """
        seconds = PATIENCE_SECONDS if late else _CLEANUP_SECONDS + CLOSE_SECONDS
        cancelled = await wait_until_ended(self._start(work, give_up), seconds, once_cancelled=PATIENCE_SECONDS)
        if cancelled is not None:
            raise cancelled

    async def close(self) -> None:
        """Wait for all of them, for a bounded time."""
        await wait_or_cancel(self._tasks)


async def roll_back(connection: Connection) -> bool:
    """Leave no transaction behind, and see that the server answers. What doesn't in time is cut off.

    Returns:
        Whether the connection may be used again.
    """
    if connection.is_closed():
        return False
    try:
        async with asyncio.timeout(_CLEANUP_SECONDS):
            # Also where no transaction seems to be open: a BEGIN that was cut short may have arrived.
            await connection.execute("ROLLBACK")
    except BaseException as error:
        logger.debug(
            "a rollback failed, its connection is cut off: %s", type(error).__name__, extra=event("store.connection_cut")
        )
        terminate(connection)
        if not isinstance(error, Exception):
            raise
        return False
    return True


async def answers(connection: Connection) -> bool:
    """Ask a connection that may have fallen silent. One that doesn't answer soon is cut off."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            await connection.execute("SELECT 1")
    except BaseException as error:
        logger.debug(
            "a connection doesn't answer and is cut off: %s", type(error).__name__, extra=event("store.connection_cut")
        )
        terminate(connection)
        if not isinstance(error, Exception):
            raise
        return False
    return True
