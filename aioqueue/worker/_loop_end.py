"""`SystemExit` and `KeyboardInterrupt` in a job's child task or callback: asyncio lets them end the whole event loop.

In a handler's own body they're errors like any other. Out of a task or a callback that a handler has started, asyncio
hands them on to whoever runs the loop, who cancels all tasks and ends. So that the job which did it is charged an attempt,
and nobody else, it's found by its context: each attempt's carries the attempt, and what it starts inherits that.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aioqueue._context import attempt_in
from aioqueue._exits import is_exit, traceback_of

if TYPE_CHECKING:
    import contextvars
    from types import CodeType

    from aioqueue._context import Attempt

__all__ = ["LoopEnd", "loop_end", "what_ended"]

_HANDLE_RUN: CodeType = cast("Any", asyncio.Handle)._run.__code__


class LoopEnd(NamedTuple):
    """Why the event loop has ended.

    Attributes:
        error: The exit that has ended it; None if there was none, or it can't be seen.
        known: Whether it's known in which task or callback it was raised.
        attempt: The attempt that had started these; None if none had.
    """

    error: BaseException | None
    known: bool = False
    attempt: Attempt | None = None


def loop_end() -> LoopEnd:
    """See why the event loop has ended, while it's run once more so that its tasks can clean up.

    Whoever runs it for that (`asyncio.run` and its like) does so while the exit is being handled. To be called from a
    callback: in a coroutine, an exception that is handled there would hide it.
    """
    error = sys.exception()
    return LoopEnd(None) if error is None or not is_exit(error) else what_ended(error)


def what_ended(error: BaseException) -> LoopEnd:
    """Find out whose task or callback has ended the event loop with an exit.

    The frames of asyncio's own loop tell in which context it was raised; those of others, such as uvloop, don't.
    """
    context: contextvars.Context | None = None
    where = traceback_of(error)
    while where is not None:
        if where.tb_frame.f_code is _HANDLE_RUN:
            context = getattr(where.tb_frame.f_locals["self"], "_context", None)
        where = where.tb_next
    return LoopEnd(error) if context is None else LoopEnd(error, known=True, attempt=attempt_in(context))
