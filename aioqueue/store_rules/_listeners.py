"""Who is told, within one process, what a store has committed or heard of."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING

from aioqueue.runtime._log import event

if TYPE_CHECKING:
    import logging
    from collections.abc import Generator

    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._store_parts import Listener

__all__ = ["Listeners"]


class Listeners:
    """The listeners of one open store; they're called in its event loop.

    Everything but `tell_from_thread` and `len()` is called in that loop.

    Arguments:
        loop: The event loop of the store.
        logger: Where a listener's failure is logged.

    Attributes:
        finished_wanted: Set while somebody wants to hear of finished jobs, for a store whom such notifications cost something.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, logger: logging.Logger) -> None:
        self._loop = loop
        self._logger = logger
        self._listeners: dict[object, tuple[Listener, bool]] = {}
        self.finished_wanted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._listeners)

    @contextmanager
    def subscribe(self, listener: Listener, *, finished: bool = False) -> Generator[None, None, None]:
        """Call a listener until the block is left, as `aioqueue.abc.Store.subscribe` promises.

        Arguments:
            listener: Called with each notification.
            finished: Whether it wants to hear of finished jobs; it may hear of them anyway.
        """
        token = object()  # the same listener may be there twice
        self._listeners[token] = (listener, finished)
        if finished:
            self.finished_wanted.set()
        try:
            yield
        finally:
            del self._listeners[token]
            if not any(wants for _, wants in self._listeners.values()):
                self.finished_wanted.clear()

    def tell(self, notification: Notification) -> None:
        """Call every listener, in an empty context; one that fails doesn't keep the others from hearing.

        What a listener starts must not see the context of whoever made the news, such as a request that enqueued a job.
        """
        for listener, _ in list(self._listeners.values()):
            try:
                Context().run(listener, notification)
            except Exception:
                self._logger.exception("a listener of notifications has failed", extra=event("notifications.listener_failed"))

    def tell_from_thread(self, notification: Notification) -> None:
        """Have every listener called in the event loop, from a thread of the store's."""
        if not self._listeners:
            return
        try:
            self._loop.call_soon_threadsafe(self.tell, notification)
        except RuntimeError:
            self._logger.debug("a notification came after the event loop was closed", extra=event("notifications.too_late"))
