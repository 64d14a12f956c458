"""Tasks that were asked to end, and didn't in time: kept until they do, so that none is dropped in mid-work.

What is bounded here is cancelled when its time is over, or its waiter is cancelled. What has to go on then is in `_shield`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any

from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

__all__ = ["bounded", "ended_meanwhile", "forget_dead", "leave", "take_out_of_sight"]

logger = logging.getLogger("aioqueue")

_left: dict[asyncio.Task[Any], Callable[[], None] | None] = {}


def leave(task: asyncio.Task[Any], *, dead: Callable[[], None] | None = None) -> None:
    """Wait no longer for a task. It's referenced from here until it has ended; what it raises then is a debug line.

    Arguments:
        task: Cancelled already.
        dead: Called by `forget_dead`, should its event loop be closed before it has ended.
    """
    if not task.done():
        _left[task] = dead
        task.add_done_callback(_ended, context=contextvars.Context())


def take_out_of_sight(task: asyncio.Task[Any]) -> None:
    """Let a task that was left, and has had its time to react to being cancelled, not keep its event loop from ending.

    `asyncio.run` ends with cancelling all tasks that it can see and waiting for them, without a bound: one that swallows its
    cancellation would keep a whole server alive. asyncio lets implementations of tasks take theirs out.
    """
    if not task.done():
        asyncio._unregister_task(task)
        silenced: Any = task  # the attribute is asyncio's own, and in no stub
        silenced._log_destroy_pending = False


def _ended(task: asyncio.Task[Any]) -> None:
    _left.pop(task, None)
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.debug("what was left behind has ended: %r", error, extra=event("process.leftover_ended"))


def forget_dead() -> None:
    """Drop what was left in event loops that are closed by now: it will never go on."""
    for task, dead in list(_left.items()):
        if task.get_loop().is_closed():
            del _left[task]
            if dead is not None:
                dead()


async def bounded(call: Coroutine[Any, Any, object], seconds: float, *, name: str) -> bool:
    """Run a call for at most so many seconds, also if it doesn't react to being cancelled then.

    Returns:
        Whether it has ended in time.

    Raises:
        BaseException: What the call has raised.
    """
    task = asyncio.get_running_loop().create_task(call, name=name)
    return await ended_meanwhile(task, asyncio.wait([task], timeout=seconds))


async def ended_meanwhile(task: asyncio.Task[Any], waiting: Awaitable[object]) -> bool:
    """Give a task the time that something else takes. If it hasn't ended by then, it's cancelled, and left.

    Arguments:
        task: Whose end counts.
        waiting: How long it may take: this is awaited.

    Returns:
        Whether it has ended.

    Raises:
        BaseException: What the task has raised.
    """
    try:
        await waiting
    finally:
        if not task.done():
            task.cancel()
            leave(task)
    if not task.done():
        return False
    task.result()
    return True
