"""Who observes, in this process, what its clients and workers do."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from contextvars import Context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from aioqueue.events import Event, Reset
from aioqueue.runtime._exits import from_a_signal
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

__all__ = ["Observation", "Observer", "Observers"]

Observer: TypeAlias = "Callable[[Event], Awaitable[object] | object]"
"""What is called with each event."""

logger = logging.getLogger("aioqueue")

_MOST_WAITING = 10_000
"""Events that wait for one observer; then the oldest are dropped, and it gets a `Reset` in their place."""
_AT_ONCE = 100
"""Events after which an observer lets others run."""
_LOG_EVERY_SECONDS = 60.0


class Observation:
    """One observer, until `stop` is called: `with client.observe(observer):`, or for as long as the program runs.

    Arguments:
        observer: Called with each event, in the order in which they happened.
        observers: Those among whom it is.
    """

    def __init__(self, observer: Observer, observers: Observers) -> None:
        self._observer = observer
        self._observers = observers
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._failed_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Observe nothing more. What has happened before, and waits, isn't handed on any more either."""
        self._observers.remove(self)
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def put(self, happened: Event) -> None:
        """Have the observer called with an event, soon: in a task of its own, so that nobody waits for it."""
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            if not self._dropped:
                logger.warning(
                    "an observer of events is too slow, and misses some: %r", self._observer, extra=event("observer.too_slow")
                )
            self._dropped += 1
        self._waiting.append(happened)
        if self._task is None or self._task.done():
            # One that was cancelled before its first step is done too: the next event begins another.
            self._task = asyncio.get_running_loop().create_task(self._hand_on(), name="aioqueue observer", context=Context())

    async def _hand_on(self) -> None:
        handed_on = 0
        while self._waiting:
            if self._dropped:
                self._dropped = 0
                await self._call(Reset(at=datetime.now(UTC), reason="the observer was too slow"))
            else:
                await self._call(self._waiting.popleft())
            handed_on += 1
            if not handed_on % _AT_ONCE:
                await asyncio.sleep(0)

    async def _call(self, happened: Event) -> None:
        try:
            result: Any = self._observer(happened)
            if inspect.isawaitable(result):
                await result
        except BaseException as error:
            if isinstance(error, GeneratorExit) or from_a_signal(error) or _is_cancelled(error):
                raise
            now = time.monotonic()
            if self._failed_at is None or now - self._failed_at > _LOG_EVERY_SECONDS:
                self._failed_at = now
                logger.exception("an observer of events has failed", extra=event("observer.failed"))

    async def finish(self, seconds: float) -> None:
        """Let it see what waits, for so many seconds at most."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            task.cancel()


class Observers:
    """All observers of one client, and of its workers. Everything here is called in the client's event loop.

    Attributes:
        active: Whether there are any: whoever has something to tell looks at it first, and makes no event otherwise.
    """

    def __init__(self) -> None:
        self.active = False
        self._all: list[Observation] = []

    def add(self, observer: Observer) -> Observation:
        """Hand on what happens from now on."""
        if not callable(observer):
            raise TypeError(f"an observer is called with each event; this is a {type(observer).__qualname__}")
        made = Observation(observer, self)
        self._all.append(made)
        self.active = True
        return made

    def remove(self, observation: Observation) -> None:
        """Hand on nothing more to one of them; doing so again does nothing."""
        if observation in self._all:
            self._all.remove(observation)
        self.active = bool(self._all)

    def tell(self, happened: Event) -> None:
        """Hand on an event. It returns at once, and raises nothing."""
        for each in list(self._all):
            each.put(happened)

    async def finish(self, seconds: float) -> None:
        """Let them see what has happened, for so many seconds at most: the client is being closed."""
        if self._all:
            await asyncio.gather(*(each.finish(seconds) for each in list(self._all)))


def _is_cancelled(error: BaseException) -> bool:
    """Whether it's the task that hands on that was cancelled, and not something that the observer waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
