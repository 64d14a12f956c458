"""Calls that are waited for only so long: for the loops beside a worker's main one, each of which makes one at a time."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.runtime._left_behind import leave

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["BoundedCalls", "Hangs"]

T = TypeVar("T")


class Hangs(TimeoutError):
    """A call was left alone, since it took too long, or was cancelled by somebody else than its caller."""


class BoundedCalls:
    """Makes calls, each in a task of its own, which is cancelled and left alone if it hangs.

    Arguments:
        name: What the tasks are called.

    Attributes:
        task: Of the newest call; None before the first. Whoever stops the loop cancels it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.task: asyncio.Task[Any] | None = None

    async def call(self, call: Coroutine[Any, Any, T], seconds: float) -> T:
        """Wait for a call for at most so many seconds. Whoever cancels the caller cancels the call.

        Raises:
            Hangs: It takes longer, or was cancelled.
            Exception: What the call raises.
        """
        task = asyncio.get_running_loop().create_task(call, name=self._name, context=contextvars.Context())
        self.task = task
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
                leave(task)
        if not task.done():
            raise Hangs(f"it takes longer than {seconds:.0f} s")
        if task.cancelled():
            raise Hangs("it was cancelled")
        return task.result()
