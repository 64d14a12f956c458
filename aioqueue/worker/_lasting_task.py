"""A worker's task that lasts until it's stopped, also where somebody else cancels it: for the loops beside the main one."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from aioqueue.runtime._left_behind import leave

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioqueue.worker._bounded_calls import BoundedCalls

__all__ = ["LastingTask"]


class LastingTask:
    """Runs a loop in a task of its own, in an empty context.

    Whoever cancels all tasks that there are stops it for a moment only: it begins again. A loop that returns has ended.

    Arguments:
        name: What the task is called.
        calls: Those that the loop makes: the one that is under way is stopped with it.
        after_cancelled: Called once somebody else has cancelled it. Gives the seconds until it begins again.

    Attributes:
        stopped: Whether it was stopped: then it begins no more.
    """

    def __init__(self, name: str, calls: BoundedCalls, after_cancelled: Callable[[], float]) -> None:
        self._name = name
        self._calls = calls
        self._after_cancelled = after_cancelled
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self.stopped = False

    def begin(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin, at once, unless it was stopped. `run` makes the loop, anew for each time that it begins."""
        if self.stopped:
            return
        context = contextvars.Context()
        self._task = self._loop.create_task(run(), name=self._name, context=context)
        self._task.add_done_callback(lambda task: self._ended(task, run), context=context)

    def stop(self) -> None:
        """Begin nothing more, and interrupt the call that is under way. May be called again."""
        self.stopped = True
        for task in self.tasks:
            task.cancel()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """What there is to wait for once it's stopped."""
        return [task for task in (self._task, self._calls.task) if task is not None]

    def let_go(self) -> None:
        """Wait for nothing any more."""
        self.stop()
        for task in self.tasks:
            leave(task)

    def _ended(self, task: asyncio.Task[None], run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if task.cancelled() and not self.stopped:  # by whoever cancels all tasks that there are, or with the event loop
            self._loop.call_later(self._after_cancelled(), self.begin, run, context=contextvars.Context())
