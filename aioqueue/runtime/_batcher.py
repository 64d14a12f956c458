"""Coalesces concurrent awaits into one store call: the next batch gathers while one is in flight, without a timer."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from aioqueue.errors import ClientClosed, StoreIncompatible, StoreUnavailable
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

__all__ = ["LARGEST_BATCH_BYTES", "NOT_ABOUT_ROWS", "Batcher", "portions", "write_each"]

logger = logging.getLogger("aioqueue")

T = TypeVar("T")
R = TypeVar("R")

LARGEST_BATCH_BYTES = 16 * 1024 * 1024
"""Bytes of JSON in one batch; an item that is larger goes alone."""

NOT_ABOUT_ROWS = (StoreUnavailable, StoreIncompatible, ClientClosed)
"""What a batch fails with because of the database, and not because of one of its items."""


class Batcher(Generic[T, R]):
    """Gathers items of concurrent callers.

    Arguments:
        write: Stores a batch and gives one result each, in order; see `write_each` for what it may raise.
        limit: Items in one call at most.
        size: How many bytes an item has, so that a batch has `LARGEST_BATCH_BYTES` at most; without it only their number
            counts.
        patience: Seconds after which the call in flight holds nobody up any more: one more may then be in flight beside it.
            None: whoever comes later waits for as long as it takes.
        name: For its tasks and logs.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        limit: int = 1000,
        size: Callable[[T], int] | None = None,
        patience: float | None = None,
        name: str = "batcher",
    ) -> None:
        self._write = write
        self._limit = limit
        self._size = size
        self._patience = patience
        self._name = name
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
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
        if not self._waiting:
            return
        if not self._tasks:
            self._start_one()
        elif self._patience is not None and self._timer is None and len(self._tasks) == 1:
            # At most one timer at a time, and none that is taken back: a busy system pays for one in each such period.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._began + self._patience, self._look, context=contextvars.Context())

    def _start_one(self) -> None:
        # A context of its own: it writes the items of many callers.
        context = contextvars.Context()
        task = asyncio.get_running_loop().create_task(self._run(), name=f"aioqueue {self._name}", context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended, context=context)

    def _look(self) -> None:
        """See whether what waits has been held up for too long by what is in flight."""
        self._timer = None
        assert self._patience is not None
        late = asyncio.get_running_loop().time() >= self._began + self._patience
        if late and self._waiting and len(self._tasks) == 1:
            self._start_one()
        else:
            self._start()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # The event loop ends, or `abort` was called: nobody may be left waiting for ever. Not in the task itself: one
            # that is cancelled before its first step gets nowhere.
            left, self._waiting = self._waiting, []
            for _, future in left:
                future.cancel()
        elif (error := task.exception()) is not None:
            logger.error("the %s has failed", self._name, exc_info=error, extra=event("batch.failed", batcher=self._name))
        # An item that came after the task's last look, and before this callback, has found the task still there.
        self._start()

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            self._began = asyncio.get_running_loop().time()
            try:
                await write_each(self._write, batch)
            except BaseException:
                for _, future in batch:  # only cancellation comes here
                    future.cancel()
                raise

    def _take(self) -> list[tuple[T, asyncio.Future[R]]]:
        """The first of those that wait, as many as one call may have."""
        count = min(len(self._waiting), self._limit)
        if self._size is not None:
            total = 0
            for place in range(count):
                total += self._size(self._waiting[place][0])
                if total > LARGEST_BATCH_BYTES:
                    count = max(place, 1)
                    break
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def drained(self) -> None:
        """Wait until everything that was handed over is stored (or has failed)."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def abort(self) -> None:
        """Refuse new items, and cancel what waits or is being written: whoever waits for it is cancelled too."""
        self._close()
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """Refuse new items and wait until those handed over are stored (or have failed)."""
        self._close()
        await self.drained()

    def _close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


async def write_each(
    write: Callable[[Sequence[T]], Awaitable[Sequence[R]]], batch: Sequence[tuple[T, asyncio.Future[R]]]
) -> None:
    """Write a batch, and tell each item's future what became of it.

    A batch that fails is halved until the guilty item fails alone, unless its error is `NOT_ABOUT_ROWS`: then each item of
    it has failed with that.

    Arguments:
        write: Stores items and gives one result each, in order. What raises has changed nothing, or may be repeated.
        batch: The items, each with the future that waits for it.
    """
    try:
        results = await write([item for item, _ in batch])
    except Exception as error:  # noqa: BLE001 - handed to each caller
        if len(batch) == 1 or isinstance(error, NOT_ABOUT_ROWS):
            _fail(batch, error)
            return
    else:
        if len(results) != len(batch):
            _fail(batch, RuntimeError(f"{len(results)} results for a batch of {len(batch)}"))
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
        return
    middle = len(batch) // 2
    await write_each(write, batch[:middle])
    await write_each(write, batch[middle:])


def _fail(batch: Sequence[tuple[T, asyncio.Future[R]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever awaits it gets it; a caller that was cancelled has nobody to warn


def portions(items: Sequence[T], limit: int, size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Cut items into batches of at most `limit`, and of at most `LARGEST_BATCH_BYTES` bytes by `size` unless it's one item."""
    start = total = 0
    for place, item in enumerate(items):
        own = size(item)
        if place > start and (place - start >= limit or total + own > LARGEST_BATCH_BYTES):
            yield items[start:place]
            start, total = place, 0
        total += own
    if start < len(items):
        yield items[start:]
