"""The end of a worker's run: running jobs finish or are interrupted, outcomes are written, the lease is ended."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aioqueue.worker._outcome import CancelReason
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioqueue._resources import ResourceScope
    from aioqueue._settings import WorkerSettings
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._lease import Lease
    from aioqueue.worker._threads import HandlerThreads
    from aioqueue.worker._wakeup import Wakeup
    from aioqueue.worker._writer import Writer

__all__ = ["Shutdown"]

logger = logging.getLogger("aioqueue.worker")

_FLUSH_SECONDS = 10.0
_FORCED_SECONDS = 0.4
_CANCELLED_SECONDS = 1.0


class Shutdown:
    """Stops a worker's parts in order, each step within its bound.

    Arguments:
        settings: With the grace.
        name: The worker's.
        holdings, writer, lease, threads, resources, wakeup: The worker's parts.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        name: str,
        *,
        holdings: Holdings,
        writer: Writer,
        lease: Lease,
        threads: HandlerThreads,
        resources: ResourceScope,
        wakeup: Wakeup,
    ) -> None:
        self._grace = settings.grace
        self._name = one_line(name)
        self._holdings = holdings
        self._writer = writer
        self._lease = lease
        self._threads = threads
        self._resources = resources
        self._wakeup = wakeup
        self._asked = asyncio.Event()
        self._forced = asyncio.Event()

    # -- being asked --------------------------------------------------------------------------------------------------

    def ask(self, *, force: bool) -> None:
        """Stop; with `force`, at once."""
        self._asked.set()
        if force:
            self._forced.set()

    async def asked_or(self, working: asyncio.Task[Any]) -> None:
        """Wait until a stop is asked for, or the task has ended."""
        await _first(working, self._asked.wait())

    async def asked_within(self, seconds: float) -> None:
        """Wait until a stop is asked for, for at most so many seconds."""
        await _first(None, self._asked.wait(), seconds)

    async def forced_or(self, working: asyncio.Task[Any], longest: float | None) -> None:
        """Wait until a stop by force is asked for, or the task has ended, for at most `longest` seconds."""
        await _first(working, self._forced.wait(), longest)

    # -- stopping -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Let running jobs finish, write what became of them, and end the lease; bounded by the grace and a little."""
        left = True
        try:
            left = await self._drain()
            flushed = await self._flush()
            await self._lease.end(keep=left or not flushed, longest=self._unless_forced(_FLUSH_SECONDS), late=_FORCED_SECONDS)
        finally:
            self._writer.abort()
            self._wakeup.close()
            self._threads.close()
            await self._close_resources()
            await self._lease.close(_FORCED_SECONDS)

    def _unless_forced(self, seconds: float) -> float:
        return _FORCED_SECONDS if self._forced.is_set() else seconds

    async def _drain(self) -> bool:
        """Wait for the slots. Returns whether some had to be left behind."""
        running = self._holdings.running
        if not running:
            return False
        if not self._forced.is_set():
            await self._ended_or_forced(self._grace)
        if running:
            logger.info("worker %s: %d jobs are interrupted", self._name, len(running))
            self._holdings.cancel_all(CancelReason.SHUTDOWN)
            await self._ended_or_forced(_CANCELLED_SECONDS)
        if running and not self._forced.is_set():
            logger.warning("worker %s: waiting for %d jobs that don't stop", self._name, len(running))
            await self._ended_or_forced(None)
        if running:
            await self._ended_within(_FORCED_SECONDS)
        left = self._holdings.abandon()
        if left:
            await self._ended_within(0.1)
        for slot in left:
            logger.warning(
                "worker %s: %s %s is left behind while it still runs; others get it when the lease has run out",
                self._name,
                one_line(slot.job.type),
                slot.job.id,
                extra=slot.extra(),
            )
        return bool(left)

    async def _ended_or_forced(self, longest: float | None) -> None:
        ended = asyncio.get_running_loop().create_task(self._holdings.all_ended())
        try:
            await self.forced_or(ended, longest)
        finally:
            ended.cancel()
            await asyncio.wait([ended])

    async def _ended_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._holdings.all_ended()
        except TimeoutError:
            pass

    async def _flush(self) -> bool:
        """Write what waits. Returns whether all of it was written."""
        flushing = asyncio.get_running_loop().create_task(self._writer.flush())
        try:
            await self.forced_or(flushing, _FLUSH_SECONDS)
            if not flushing.done():
                await asyncio.wait([flushing], timeout=_FORCED_SECONDS)
            return not any(True for _ in self._writer.unwritten_slots())
        finally:
            flushing.cancel()
            await asyncio.wait([flushing])

    async def _close_resources(self) -> None:
        try:
            async with asyncio.timeout(self._unless_forced(_FLUSH_SECONDS)):
                await self._resources.aclose()
        except Exception:
            logger.exception("worker %s: a resource has failed to close", self._name)


async def _first(task: asyncio.Task[Any] | None, event: Awaitable[object], longest: float | None = None) -> None:
    """Wait until the task has ended or the event has come; the task goes on, whatever cancels this."""
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait([waiting] if task is None else [task, waiting], timeout=longest, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
