"""One opening of a client: what belongs to one event loop and one process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from typing import TYPE_CHECKING, Any

from aioqueue.client._enqueue import Enqueuer
from aioqueue.client._waiters import Waiters
from aioqueue.errors import StoreError
from aioqueue.runtime._left_behind import bounded
from aioqueue.runtime._shield import finish

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aioqueue.abc import Store
    from aioqueue.definitions._middleware import EnqueueMiddleware

__all__ = ["Session"]

logger = logging.getLogger("aioqueue")


class Session:
    """What a client has while it's open.

    Arguments:
        store: Not open yet.
        middlewares, poll_interval, retry_for, uncommitted_grace, close_timeout: The client's.
    """

    def __init__(
        self,
        store: Store,
        *,
        middlewares: Sequence[EnqueueMiddleware],
        poll_interval: float,
        retry_for: float,
        uncommitted_grace: float,
        close_timeout: float,
    ) -> None:
        self.store = store
        self.uncommitted_grace = uncommitted_grace
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.enqueuer = Enqueuer(store, middlewares, retry_for)
        self.waiters = Waiters(store, poll_interval)
        self._close_timeout = close_timeout

    def usable(self) -> bool:
        """Whether it belongs to this process and to a loop that isn't over."""
        return self.pid == os.getpid() and not self.loop.is_closed()

    async def open(self) -> None:
        """Open the store. What fails or is cancelled leaves nothing open."""
        try:
            await self.store.open()
        except BaseException:
            await finish(self._begin_to_close_store(), again=self._begin_to_close_store)
            raise

    def begin_to_close(self) -> asyncio.Task[None]:
        """`close`, in a task of its own."""
        return self._task(self.close())

    def _begin_to_close_store(self) -> asyncio.Task[None]:
        return self._task(self._close_store(self._close_timeout))

    def _task(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.loop.create_task(call, name="aioqueue close", context=contextvars.Context())

    async def close(self) -> None:
        """Finish what is in flight, and close the store; within the timeout as a whole, whatever the store does.

        Cancelling it leaves the rest undone; it may be called again.
        """
        eighth = self._close_timeout / 8
        began = self.loop.time()
        try:
            await bounded(self.enqueuer.aclose(4 * eighth), 5 * eighth, name="aioqueue close")
            await bounded(self.waiters.aclose(), eighth, name="aioqueue close")
        finally:
            await self._close_store(self._close_timeout - (self.loop.time() - began))

    async def _close_store(self, longest: float) -> None:
        try:
            if not await bounded(self.store.close(), longest, name="aioqueue close"):
                logger.warning("%s couldn't be closed within %.1f s", self.store.description, longest)
        except StoreError as error:
            logger.warning("%s couldn't be closed properly: %s", self.store.description, type(error).__name__)
