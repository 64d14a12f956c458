"""Doing something to its end, whatever cancels the one who waits for it; then the cancellation goes on.

A coroutine that waits is cancelled in two ways, and each is held off by something else:

- A scope of anyio's (`move_on_after`, `fail_after`, a task group) cancels what is inside it at every await, until it's left.
  An inner scope with `shield=True` holds that off.
- `Task.cancel()` (called by `asyncio.timeout`, `asyncio.TaskGroup`, the end of the event loop, or whoever holds the task)
  interrupts one await, once. No scope holds that off.

So what mustn't be cut short runs in a task of its own, which nobody else cancels. Its waiter waits in a shielded scope, keeps
a cancellation that comes meanwhile, and raises it when the task has ended or its time is over. That's what is done here:
`finish` for a task whose end is bounded already, `to_the_end` for a call that gets a bound, and `wait_until_ended`, under
both, for whoever has to do something of its own before the cancellation goes on.

`hold_off_scopes` is only the first half, for an await without a task of its own: under `wait_until_ended`, and where a single
turn of the event loop is let pass, so that there is next to nothing for `Task.cancel()` to interrupt. Unlike anyio's scope it
may be left after its event loop has ended.

A bare `anyio.move_on_after(seconds, shield=True)` is enough only where `Task.cancel()` does no harm: where the work goes on
without its waiter (in a thread), or where the code runs already in a task of its own that only its owner cancels.

What is to be cut short at its bound, or by a cancellation, and merely not waited for, is `_left_behind.bounded` instead.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

__all__ = ["finish", "hold_off_scopes", "to_the_end", "wait_until_ended"]

T = TypeVar("T")


async def finish(task: asyncio.Task[T], *, again: Callable[[], asyncio.Task[T]] | None = None) -> None:
    """Wait for a task whose end is bounded, whatever cancels the one who waits; then let the cancellation go on.

    Arguments:
        task: Whose end is waited for.
        again: Begins it anew, once, if the task itself was cancelled: the event loop's end cancels every task, perhaps before
            its first step.

    Raises:
        asyncio.CancelledError: The caller was cancelled meanwhile; the task has ended.
        BaseException: What the task has raised. That it was cancelled itself is no error.
    """
    cancelled = await wait_until_ended(task)
    if task.cancelled() and again is not None:
        task = again()
        cancelled = await wait_until_ended(task) or cancelled
    _raise(cancelled, task)
    if not task.cancelled():
        task.result()


async def to_the_end(call: Coroutine[Any, Any, T], seconds: float, *, once_cancelled: float = math.inf) -> T:
    """Wait for a call in a task of its own, with an empty context, which goes on whatever is cancelled meanwhile.

    Arguments:
        call: What is to be done.
        seconds: How long it may take; then it's cancelled, and not waited for any longer.
        once_cancelled: How many more seconds it may take at most once the caller is cancelled.

    Raises:
        TimeoutError: It took longer.
        asyncio.CancelledError: The caller was cancelled meanwhile; the call has ended, or was cancelled too.
        BaseException: What the call has raised.
    """
    task = asyncio.get_running_loop().create_task(call, context=Context())
    cancelled = await wait_until_ended(task, seconds, once_cancelled=once_cancelled)
    late = not task.done() and task.cancel()
    _raise(cancelled, task)
    if late:
        raise TimeoutError
    return task.result()


async def wait_until_ended(
    task: asyncio.Task[Any], seconds: float = math.inf, *, once_cancelled: float = math.inf
) -> asyncio.CancelledError | None:
    """Wait until a task has ended, or for so many seconds, whatever cancels the one who waits. The task isn't cancelled.

    Arguments:
        task: Whose end is waited for.
        seconds: At most.
        once_cancelled: Seconds at most from the caller's cancellation on.

    Returns:
        The cancellation that came meanwhile: the caller raises it when it has done what it must.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    with hold_off_scopes():
        while not task.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([task], timeout=None if left == math.inf else left)
            except asyncio.CancelledError as error:  # by Task.cancel(), which no scope holds off
                cancelled = error
                deadline = min(deadline, loop.time() + once_cancelled)
    return cancelled


@contextmanager
def hold_off_scopes() -> Generator[None]:
    """Hold off the cancellation of anyio's scopes within the block, also in a task that outlives its event loop."""
    scope = anyio.CancelScope(shield=True).__enter__()
    try:
        yield
    except GeneratorExit:  # the event loop is closed, and there's no task that could leave a scope
        raise
    except BaseException as error:
        scope.__exit__(type(error), error, error.__traceback__)
        raise
    else:
        scope.__exit__(None, None, None)


def _raise(cancelled: asyncio.CancelledError | None, task: asyncio.Task[Any]) -> None:
    """Let the cancellation go on, if there was one. It's what matters then: nobody gets what the task has raised."""
    if cancelled is None:
        return
    if task.done() and not task.cancelled():
        task.exception()  # looked at, so that asyncio doesn't report it
    raise cancelled
