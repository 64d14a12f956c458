"""Coalesces concurrent awaits into one store call: the next batch gathers while one is in flight, without a timer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from aioqueue.errors import ClientClosed, RowRejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Batcher"]

logger = logging.getLogger("aioqueue")

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Gathers items of concurrent callers.

    Arguments:
        write: Stores a batch and gives one result each, in order. A batch that raises `RowRejected` is halved until
            the guilty item fails alone; any other error fails each item of the batch.
        limit: Items in one call at most.
        concurrency: Calls in flight at most.
        name: For its tasks and logs.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        limit: int = 1000,
        concurrency: int = 1,
        name: str = "batcher",
    ) -> None:
        self._write = write
        self._limit = limit
        self._concurrency = concurrency
        self._name = name
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit_nowait(self, item: T) -> asyncio.Future[R]:
        """Hand an item over; the future has its result after it was stored. Cancelling the future doesn't take it back.

        Raises:
            ClientClosed: The batcher was closed.
        """
        if self._closed:
            raise ClientClosed(f"the {self._name} is closed")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start()
        return future

    async def submit(self, item: T) -> R:
        """Store an item together with those of concurrent callers, and return its result.

        A caller that is cancelled while its item is still waiting takes it back; once it's being written, the write
        goes on, and is all or nothing.
        """
        future = self.submit_nowait(item)
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting = [entry for entry in self._waiting if entry[1] is not future]
            raise

    def _start(self) -> None:
        if self._waiting and len(self._tasks) < self._concurrency:
            task = asyncio.get_running_loop().create_task(self._run(), name=f"aioqueue {self._name}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the %s has failed", self._name, exc_info=error)
        # An item that came after the task's last look, and before this callback, has found the task still there.
        self._start()

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            try:
                await self._store(batch)
            except BaseException:
                # Only cancellation comes here (the event loop ends): nobody may be left waiting for ever.
                left, self._waiting = [*batch, *self._waiting], []
                for _, future in left:
                    future.cancel()
                raise

    async def _store(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write([item for item, _ in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results for a batch of {len(batch)}")
        except RowRejected as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            middle = len(batch) // 2
            await self._store(batch[:middle])
            await self._store(batch[middle:])
        except Exception as error:  # noqa: BLE001 - handed to each caller
            for _, future in batch:
                _fail(future, error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def drained(self) -> None:
        """Wait until everything that was handed over is stored (or has failed)."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def abort(self) -> None:
        """Refuse new items, and cancel what waits or is being written: whoever waits for it is cancelled too."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """Refuse new items and wait until those handed over are stored (or have failed)."""
        self._closed = True
        await self.drained()


def _fail(future: asyncio.Future[R], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever awaits it gets it; a caller that was cancelled has nobody to warn
