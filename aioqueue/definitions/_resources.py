"""What handlers need and shouldn't be passed: opened once per worker or per attempt, closed in reverse."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from aioqueue.runtime._exits import from_a_signal
from aioqueue.runtime._left_behind import leave
from aioqueue.runtime._log import event
from aioqueue.runtime._shield import wait_until_ended
from aioqueue.vocabulary._safe_text import safe_str, type_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from types import TracebackType

__all__ = ["Resource", "ResourceScope", "Scope", "current_scope"]

logger = logging.getLogger("aioqueue.worker")

_numbers = itertools.count()

_CANCELLED_CLOSING_SECONDS = 1.0
"""For how long a closing that was cancelled is waited for."""

T = TypeVar("T")
Scope = Literal["worker", "attempt"]

current_scope: contextvars.ContextVar[ResourceScope] = contextvars.ContextVar("aioqueue_resources")


class Resource(Generic[T]):
    """A typed key for something that handlers use: `client = await http.get()`.

    `@registry.resource` makes them of async generator functions without parameters that yield once.

    Attributes:
        name: The function's, for errors.
        scope: `worker`: opened once per worker, at first use; `attempt`: once per attempt.
    """

    def __init__(self, factory: Callable[[], AsyncIterator[T]], scope: Scope) -> None:
        self.name: str = getattr(factory, "__qualname__", repr(factory))
        self.scope: Scope = scope
        self.factory = factory
        self.__doc__ = factory.__doc__

    async def get(self) -> T:
        """Give the opened resource, opening it first where needed.

        Raises:
            RuntimeError: Not inside a handler, a middleware or another resource.
            Exception: Whatever opening it raises; the next use tries again.
        """
        return await self._scope().get(self)

    def get_from_thread(self) -> T:
        """As `get`, for handlers that are plain functions and run in a thread. Blocks until it is open.

        Raises:
            RuntimeError: Not inside a handler, or in the event loop's own thread (use `await key.get()` there).
        """
        return self._scope().get_from_thread(self)

    def _scope(self) -> ResourceScope:
        scope = current_scope.get(None)
        if scope is None:
            raise RuntimeError(
                f"the resource {self.name} is only there inside a job's attempt. In a test of the plain function: "
                f"async with registry.resource_scope({{{self.name}: fake}}): ..."
            )
        return scope

    def __repr__(self) -> str:
        return f"<Resource {self.name} ({self.scope})>"


class _Opened:
    """One open resource. A task of its own opens and closes it, so that cancel scopes within it end where they began."""

    def __init__(self, resource: Resource[Any], context: contextvars.Context) -> None:
        loop = asyncio.get_running_loop()
        self.resource = resource
        self.number: float = math.inf  # in the order in which openings ended
        self.value: asyncio.Future[Any] = loop.create_future()
        self._closing: asyncio.Future[BaseException | None] = loop.create_future()
        self.task = loop.create_task(self._live(), name=f"aioqueue resource {resource.name}", context=context)
        # Not in the task itself: one that is cancelled before its first step gets nowhere, and others wait for the value.
        self.task.add_done_callback(self._ended, context=contextvars.Context())

    def _ended(self, _task: asyncio.Task[Exception | None]) -> None:
        if not self.value.done():
            self.value.set_exception(RuntimeError(f"the resource {self.resource.name} was closed before it was opened"))
            self.value.exception()  # whoever waits gets it; perhaps nobody does any more

    async def _live(self) -> Exception | None:
        """Open it, wait until it's to be closed, and close it. Returns the error with which closing has failed."""
        error: BaseException | None = None
        try:
            async with asynccontextmanager(cast("Callable[[], AsyncGenerator[Any]]", self.resource.factory))() as value:
                self.number = next(_numbers)
                self.value.set_result(value)
                error = await self._closing
                if error is not None:
                    raise error
        except BaseException as raised:
            ends_here = not isinstance(raised, asyncio.CancelledError) and not from_a_signal(raised)
            if not self.value.done():
                self.value.set_exception(self._failure(raised))
                self.value.exception()  # whoever waits gets it; perhaps nobody does any more
                if ends_here:
                    return None
            elif raised is error:
                return None
            elif ends_here:
                return self._failure(raised)
            raise
        finally:
            error = None  # its traceback leads to this frame: a circle that would keep both
        return None

    def _failure(self, raised: BaseException) -> Exception:
        """What whoever uses it gets. An exit (a click command, argparse) would end the event loop from this task."""
        if isinstance(raised, Exception):
            return raised
        cancelled = isinstance(raised, asyncio.CancelledError)
        what = "was cancelled while it opened" if cancelled else f"has raised {type_name(raised)}: {safe_str(raised)}"
        failure = RuntimeError(f"the resource {self.resource.name} {what}")
        failure.__cause__ = raised
        return failure

    async def close(self, error: BaseException | None) -> None:
        """Close it, telling it of the error that ended its scope.

        Raises:
            Exception: Closing has failed.
            CancelledError: The caller was cancelled: so was what remained of closing, and it has been waited for.
        """
        if not self.value.done():
            self.task.cancel()
        elif not self._closing.done():
            self._closing.set_result(error)
        try:
            await asyncio.wait([self.task])
        except asyncio.CancelledError:
            self.task.cancel()
            await self._end_of_cancelled()
            raise
        if not self.task.cancelled() and (raised := self.task.result()) is not None:
            raise raised

    async def _end_of_cancelled(self) -> None:
        await wait_until_ended(
            self.task, _CANCELLED_CLOSING_SECONDS
        )  # one more cancellation says no more: one is on its way already
        if not self.task.done():
            leave(self.task)
            logger.error(
                "the resource %s doesn't end though it was cancelled: it's left behind",
                self.resource.name,
                extra=event("resource.left_behind", resource=self.resource.name),
            )


class ResourceScope:
    """Holds what is open: for a worker, or, as its child, for an attempt.

    Arguments:
        overrides: Values to be given instead of opening anything, for tests.
        parent: The worker's scope, for an attempt's.
    """

    def __init__(self, overrides: Mapping[Resource[Any], Any] | None = None, *, parent: ResourceScope | None = None) -> None:
        self._overrides: Mapping[Resource[Any], Any] = overrides or {}
        self._parent = parent
        self._opened: dict[Resource[Any], _Opened] = {}
        self._closed = False
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop() if parent is None else parent._loop
        self._token: contextvars.Token[ResourceScope] | None = None

    def child(self) -> ResourceScope:
        """Make the scope of one attempt."""
        return ResourceScope(self._overrides, parent=self)

    async def get(self, resource: Resource[T]) -> T:
        """Give a resource, opening it at first use; concurrent first uses wait for the same opening."""
        if resource in self._overrides:
            return cast("T", self._overrides[resource])
        if resource.scope == "worker" and self._parent is not None:
            return await self._parent.get(resource)
        if resource.scope == "attempt" and self._parent is None:
            raise RuntimeError(f"{resource.name} lives for one attempt: a resource of the worker's can't use it")
        if self._closed:
            raise RuntimeError(f"{resource.name} can't be opened any more: its {resource.scope} has ended")
        opened = self._opened.get(resource)
        if opened is None or opened.task.done():
            # What is open for a whole worker mustn't see the context of the attempt that happened to ask first, nor keep it.
            context = contextvars.Context() if self._parent is None else contextvars.copy_context()
            context.run(current_scope.set, self)
            opened = self._opened[resource] = _Opened(resource, context)
        # A waiter that is cancelled doesn't end an opening that others wait for.
        return cast("T", await asyncio.shield(opened.value))

    def get_from_thread(self, resource: Resource[T]) -> T:
        """As `get`, from another thread than the event loop's."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            raise RuntimeError(f"in async code, use: await {resource.name}.get()")
        return asyncio.run_coroutine_threadsafe(self.get(resource), self._loop).result()

    @property
    def empty(self) -> bool:
        """Whether nothing is open, so that there is nothing to close."""
        return not self._opened

    async def aclose(self, error: BaseException | None = None) -> None:
        """Close everything in the reverse order of opening.

        Arguments:
            error: What ended the scope, raised at the resources' `yield`, so that they can roll back.

        Raises:
            Exception: The first error of a resource's own; later ones are logged. All are closed all the same.
            CancelledError: The caller was cancelled. All are closed all the same.
        """
        self._closed = True
        first: Exception | None = None
        cancelled: asyncio.CancelledError | None = None
        while self._opened:
            # What was opened first may be in use by what was opened later; what is still opening comes first.
            resource = max(self._opened, key=lambda each: self._opened[each].number)
            opened = self._opened[resource]
            try:
                await opened.close(error)
            except asyncio.CancelledError as raised:
                cancelled = raised
            except Exception as raised:
                if first is None:
                    first = raised
                else:
                    logger.error(
                        "the resource %s has failed to close",
                        resource.name,
                        exc_info=raised,
                        extra=event("resource.not_closed", resource=resource.name),
                    )
            del self._opened[resource]
        if cancelled is not None:
            raise cancelled
        if first is not None:
            raise first

    async def abandon(self, longest: float) -> list[asyncio.Task[Exception | None]]:
        """Interrupt what `aclose` couldn't close, and wait for it for at most `longest` seconds.

        Returns:
            The tasks of those that don't end; they're named after their resources.
        """
        tasks = [each.task for each in self._opened.values()]
        self._opened.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=longest)
        return [task for task in tasks if not task.done()]

    async def __aenter__(self) -> ResourceScope:
        self._token = current_scope.set(self if self._parent is not None else self.child())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            current_scope.reset(self._token)
        await self.aclose(error)
