"""`SystemExit` and `KeyboardInterrupt` in a job's child task or callback: asyncio lets them end the whole event loop.

In a handler's own body they're errors like any other. Out of a task or a callback that a handler has started, asyncio
hands them on to whoever runs the loop, who cancels all tasks and ends. So that the job which did it is charged an attempt,
and nobody else, it's found by its context: each attempt's carries the attempt, and what it starts inherits that.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from aioqueue.definitions._context import attempt_in
from aioqueue.runtime._contexts import context_of
from aioqueue.runtime._exits import is_exit, traceback_of

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable, Coroutine
    from types import CodeType

    from aioqueue.definitions._context import Attempt

__all__ = ["EventLoopEnd", "WatchfulTask", "hook_exception_handler", "event_loop_end", "what_ended"]

T = TypeVar("T")

_HANDLE_RUN: CodeType = cast("Any", asyncio.Handle)._run.__code__


class EventLoopEnd(NamedTuple):
    """Why the event loop has ended.

    Attributes:
        error: The exit that has ended it; None if there was none, or it can't be seen.
        known: Whether it's known in which task or callback it was raised.
        attempt: The attempt that had started these; None if none had.
    """

    error: BaseException | None
    known: bool = False
    attempt: Attempt | None = None


class WatchfulTask(asyncio.Task[T]):
    """A task that sees why the event loop has ended: when it's cancelled, since whoever ends a loop cancels all tasks.

    Later may be too late: the task that has raised the exit is gone as soon as the loop runs again.

    Arguments:
        coroutine, name, context: As for `create_task`.
        cancelled: Called before each cancellation.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        name: str,
        context: contextvars.Context,
        cancelled: Callable[[], None],
    ) -> None:
        self._before = cancelled
        super().__init__(coroutine, loop=asyncio.get_running_loop(), name=name, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task, as of every task, after having told whoever wanted to know before."""
        self._before()
        return super().cancel(msg)


def event_loop_end() -> EventLoopEnd:
    """See why the event loop has ended, while somebody cleans up after it.

    Whoever does that (`asyncio.run` and its like) does it while the exit is being handled. Not to be called from a
    coroutine: an exception that is handled there would hide it.
    """
    error = sys.exception()
    if error is None or not is_exit(error):
        return EventLoopEnd(None)
    try:
        return what_ended(error)
    except Exception:  # noqa: BLE001 - classified: an event loop whose frames or tasks are of a kind that we don't know
        return EventLoopEnd(error)


def what_ended(error: BaseException) -> EventLoopEnd:
    """Find out whose task or callback has ended the event loop with an exit.

    The frames of asyncio's own loop tell in which context that was. Those of others, such as uvloop, don't: there it's
    found if it was a task, and isn't known if it was a callback.
    """
    context = _context_in_traceback(error) or _context_of_task(error)
    if context is not None:
        return EventLoopEnd(error, known=True, attempt=attempt_in(context))
    stray = next((attempt for exit_, attempt in _strays if exit_ is error), None)
    return EventLoopEnd(error, known=stray is not None, attempt=stray)


def _context_in_traceback(error: BaseException) -> contextvars.Context | None:
    context: contextvars.Context | None = None
    where = traceback_of(error)
    while where is not None:
        if where.tb_frame.f_code is _HANDLE_RUN:
            context = getattr(where.tb_frame.f_locals["self"], "_context", None)
        where = where.tb_next
    return context


def _context_of_task(error: BaseException) -> contextvars.Context | None:
    """The context of a task that has ended with this error. It takes a while, and a loop's end is rare."""
    for each in gc.get_objects():
        if isinstance(each, asyncio.Task):
            task = cast("asyncio.Task[object]", each)
            if any(referent is error for referent in gc.get_referents(task)):
                return context_of(task)
    return None


# -- tasks that nobody waits for --------------------------------------------------------------------------------------

_strays: list[tuple[BaseException, Attempt]] = []
"""The last exit with which a task has ended that nobody waits for, and the attempt whose task it was. Not by the exit's id:
another exit may have it by the time that somebody asks."""
_hearing: WeakKeyDictionary[asyncio.AbstractEventLoop, bool] = WeakKeyDictionary()


def hook_exception_handler(loop: asyncio.AbstractEventLoop) -> None:
    """Hear of a job's tasks that raise an exit and that nobody waits for: in uvloop nothing else is left of them.

    It sets an exception handler on uvloop's loops, once for each, in front of the loop's own, which gets whatever else there
    is. asyncio's own loop needs no such thing.
    """
    if isinstance(loop, asyncio.BaseEventLoop) or loop in _hearing:
        return
    _hearing[loop] = True
    before = cast("Callable[[Any, dict[str, Any]], object] | None", loop.get_exception_handler())

    def heard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and is_exit(error):
            own = context_of(context.get("future"))
            if own is not None and (attempt := attempt_in(own)) is not None:
                _strays[:] = [(error, attempt)]
        if before is None:
            loop.default_exception_handler(context)
        else:
            before(loop, context)

    loop.set_exception_handler(heard)
