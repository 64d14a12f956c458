"""Opening connections, which isn't cut short when its caller is cancelled."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

from aioqueue.postgres._connections_tracker import wait_or_cancel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._connections_tracker import Tracker

__all__ = ["Opener"]


class Opener:
    """Opens connections for one owner, and never cancels one half-way.

    asyncpg leaves futures behind that nobody looks at when connecting is cancelled; so it goes on in a task of its own,
    which begins in an empty context: a connection lives on when the request in which it was opened is long over.

    Arguments:
        tracker: Holds the tasks, and the connections while they're open.
        connect: Opens one.
        keep: Takes a connection whose caller has gone meanwhile.
    """

    def __init__(
        self,
        tracker: Tracker,
        connect: Callable[[], Coroutine[Any, Any, Connection]],
        keep: Callable[[Connection], None],
    ) -> None:
        self._tracker = tracker
        self._connect = connect
        self._keep = keep
        self._tasks: set[asyncio.Task[Connection]] = set()
        self._orphans: set[asyncio.Task[Connection]] = set()

    async def open(self) -> Connection:
        """Open one. What a caller that was cancelled had begun is taken over, so that they don't add up."""
        task = next((each for each in self._orphans if not each.done()), None)
        if task is None:
            task = self._tracker.start_task(self._connect(), "aioqueue connect")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard, context=Context())
        else:
            self._orphans.discard(task)
            task.remove_done_callback(self._orphaned)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self._orphans.add(task)
                task.add_done_callback(self._orphaned, context=Context())
            raise

    def _orphaned(self, task: asyncio.Task[Connection]) -> None:
        self._orphans.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._keep(task.result())

    async def close(self) -> None:
        """Wait for what is being opened; `keep` takes it."""
        await wait_or_cancel(self._tasks)
