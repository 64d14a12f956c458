"""Connections that aren't known to be in order are put in order in tasks of their own, which their callers don't wait for."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any

from aioqueue.postgres._connections_source import CLOSE_SECONDS, PATIENCE, wait_for, wait_or_cancel
from aioqueue.postgres._connections_tracker import cut_off

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioqueue.postgres._connections_source import Connection
    from aioqueue.postgres._connections_tracker import Belongings

__all__ = ["Tidying", "answers", "roll_back"]

logger = logging.getLogger("aioqueue.postgres")

_TIDY_SECONDS = 5.0
_ASK_SECONDS = 2.0


class Tidying:
    """Begins the tasks of one owner of connections; each ends within `_TIDY_SECONDS` and a little.

    Arguments:
        belongings: Holds them.
    """

    def __init__(self, belongings: Belongings) -> None:
        self._belongings = belongings
        self._tasks: set[asyncio.Task[None]] = set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._belongings.begin(work, "aioqueue connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard, context=Context())
        return task

    def leave(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something without waiting for it."""
        _ = self._begin(work)

    async def do(self, work: Coroutine[Any, Any, None], *, late: bool) -> None:
        """Do something and wait for it. It goes on when nobody waits any more.

        Arguments:
            work: What is to be done.
            late: Whether the caller has been cancelled, or its deadline is over: it waits for `PATIENCE` at most.

        Raises:
            asyncio.CancelledError: The caller was cancelled meanwhile.
        """
        error = await wait_for(self._begin(work), PATIENCE if late else _TIDY_SECONDS + CLOSE_SECONDS)
        if error is not None:
            raise error

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
        async with asyncio.timeout(_TIDY_SECONDS):
            # Also where no transaction seems to be open: a BEGIN that was cut short may have arrived.
            await connection.execute("ROLLBACK")
    except BaseException as error:
        logger.debug("a rollback failed, its connection is cut off: %s", type(error).__name__)
        cut_off(connection)
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
        logger.debug("a connection doesn't answer and is cut off: %s", type(error).__name__)
        cut_off(connection)
        if not isinstance(error, Exception):
            raise
        return False
    return True
