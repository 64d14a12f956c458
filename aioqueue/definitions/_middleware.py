"""What runs around every attempt, and around every enqueueing: composable functions, folded once."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from aioqueue.vocabulary._job import Inserted, NewJob

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from aioqueue.definitions._completion import Completion
    from aioqueue.definitions._context import Attempt

__all__ = ["CallNext", "CompletionMiddleware", "EnqueueMiddleware", "EnqueueNext", "Middleware", "fold", "fold_enqueue"]

CallNext = Callable[[], Awaitable[object]]
"""Runs the rest: the inner middlewares, and the handler. Returns what the handler returned. At most once."""

Middleware = Callable[["Attempt", CallNext], Awaitable[object]]
"""`async def m(attempt: Attempt, call_next: CallNext) -> object`: what it returns is what the attempt returns."""

CompletionMiddleware = Callable[["Attempt", "Completion"], "AbstractAsyncContextManager[object]"]
"""`@asynccontextmanager async def m(attempt, tx)`, with one `yield`: around the block of `completion()`, in its transaction."""

EnqueueNext = Callable[[Sequence[NewJob]], Awaitable[Sequence[Inserted]]]
"""Inserts the jobs (through the inner middlewares). At most once."""

EnqueueMiddleware = Callable[[Sequence[NewJob], EnqueueNext], Awaitable[Sequence[Inserted]]]
"""`async def m(jobs, call_next)`: may pass other rows on (`dataclasses.replace`), as many and with the same ids."""


class _Once:
    """Lets a middleware go on once, and sees whether it has waited for that."""

    __slots__ = ("_called", "_ended", "_going_on", "_name", "_target")

    def __init__(self, target: Callable[..., Awaitable[Any]], name: str) -> None:
        self._target = target
        self._name = name
        self._called = self._ended = False
        self._going_on: Coroutine[Any, Any, Any] | None = None

    def __call__(self, *arguments: Any) -> Awaitable[Any]:
        if self._called:
            raise RuntimeError(
                f"the middleware {self._name} has called call_next() twice: a job runs at most once per attempt. "
                "To try again, let the error through, or raise RetryIn(...)"
            )
        self._called = True
        self._going_on = self._go_on(*arguments)
        return self._going_on

    async def _go_on(self, *arguments: Any) -> Any:
        try:
            return await self._target(*arguments)
        finally:
            self._ended = True

    def check(self) -> None:
        """Look, once the middleware has returned, whether it waited for what it called.

        Raises:
            RuntimeError: It has called `call_next()` and forgotten to await it.
        """
        if self._called and not self._ended:
            if self._going_on is not None and inspect.getcoroutinestate(self._going_on) == inspect.CORO_CREATED:
                self._going_on.close()
            raise RuntimeError(
                f"the middleware {self._name} has returned without waiting for call_next(), so that what it wraps has not "
                "been run, or not to its end: write `await call_next()`"
            )


def fold(
    middlewares: Sequence[Middleware], handler: Callable[[Attempt], Awaitable[object]]
) -> Callable[[Attempt], Awaitable[object]]:
    """Put middlewares around what runs the handler: the first listed is outermost.

    Arguments:
        middlewares: From the outside in.
        handler: Runs the handler of an attempt.

    Returns:
        What runs everything, for any attempt of the type: fold once, call often.
    """
    for middleware in reversed(middlewares):
        handler = _around(middleware, handler)
    return handler


def _around(middleware: Middleware, inner: Callable[[Attempt], Awaitable[object]]) -> Callable[[Attempt], Awaitable[object]]:
    name = getattr(middleware, "__qualname__", repr(middleware))

    async def run(attempt: Attempt) -> object:
        once = _Once(lambda: inner(attempt), name)
        result = await middleware(attempt, once)
        once.check()
        return result

    return run


def fold_enqueue(middlewares: Sequence[EnqueueMiddleware], insert: EnqueueNext) -> EnqueueNext:
    """Put enqueue middlewares around what inserts: the first listed is outermost."""
    for middleware in reversed(middlewares):
        insert = _around_insert(middleware, insert)
    return insert


def _around_insert(middleware: EnqueueMiddleware, inner: EnqueueNext) -> EnqueueNext:
    name = getattr(middleware, "__qualname__", repr(middleware))

    async def run(jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        once = _Once(inner, name)
        inserted = await middleware(jobs, once)
        once.check()
        return inserted

    return run
