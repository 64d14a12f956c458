"""One run of a worker: its parts, put together, and taken apart again."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import anyio

from aioqueue._resources import ResourceScope
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._lease import LeaseKeeper
from aioqueue.worker._loop import Loop
from aioqueue.worker._outcome import CancelReason
from aioqueue.worker._recovery import Recovery
from aioqueue.worker._slots import Slots
from aioqueue.worker._text import one_line
from aioqueue.worker._threads import HandlerThreads
from aioqueue.worker._writer import Writer

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from aioqueue._registry import Registry
    from aioqueue._resources import Resource
    from aioqueue._settings import WorkerSettings
    from aioqueue.client import Client
    from aioqueue.worker._health import Troubles

__all__ = ["Run"]

logger = logging.getLogger("aioqueue.worker")

_BODIES: set[UUID] = set()
"""Ids of the jobs whose bodies run in this process: no worker in it begins one of them again."""

_FLUSH = 10.0
_LAST_CLAIM = 5.0
_FORCED = 0.4


class Run:
    """See above."""

    def __init__(
        self,
        client: Client,
        registry: Registry,
        names: Sequence[str],
        settings: WorkerSettings,
        name: str,
        troubles: Troubles,
        context: contextvars.Context,
        resources: Mapping[Resource[Any], Any] | None,
    ) -> None:
        self.names = names
        self._store = client.store
        self._settings = settings
        self._name = name
        self._forced = asyncio.Event()
        self._stopped = asyncio.Event()
        self._threads = HandlerThreads(name)
        self._resources = ResourceScope(resources)
        self.loop = Loop(self._store, names, settings, name, troubles)
        self.writer = Writer(self._store, troubles, self.loop.freed)
        owner = asyncio.current_task()
        attempts = Attempts(
            registry,
            settings,
            worker_id=name,
            client=client,
            resources=self._resources,
            threads=self._threads,
            bodies=_BODIES,
            ending=lambda: owner is not None and owner.cancelling() > 0,
        )
        self.slots = Slots(
            attempts, settings.concurrency, context, _BODIES, on_outcome=self.writer.take, on_free=self.loop.freed
        )
        self.keeper = LeaseKeeper(
            self._store, settings, self.slots.held, on_renewal=self.loop.renewed, on_error=self.loop.renewal_failed
        )
        self.writer.slots = self.slots
        self.loop.slots, self.loop.writer, self.loop.keeper = self.slots, self.writer, self.keeper
        self.loop.recovery = Recovery(self._store, registry, settings, name)
        self.keeper.start(name)

    def subscribed(self) -> AbstractContextManager[None]:
        """Hear the store's notifications, within the block."""
        return self._store.subscribe(self.loop.notified)

    def stop(self, *, force: bool) -> None:
        """Begin to stop; see `Worker.stop`."""
        self.loop.stop()
        self._stopped.set()
        if force:
            self._forced.set()

    async def stopped(self) -> None:
        """Wait until it was asked to stop."""
        await self._stopped.wait()

    async def ended_or_forced(self, working: asyncio.Task[None]) -> None:
        """Wait until the loop has ended; a statement that hangs doesn't hold up a stop."""
        forced = asyncio.get_running_loop().create_task(self._forced_wait())
        stopped = asyncio.get_running_loop().create_task(self.stopped())
        try:
            await asyncio.wait([working, forced, stopped], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([working, forced], timeout=_LAST_CLAIM, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (working, forced, stopped):
                each.cancel()

    async def close(self) -> None:
        """Let running jobs finish, write what became of them, and end the lease; bounded by the grace and a little."""
        self.loop.stop()
        left = True
        try:
            left = await self._drain()
            flushed = await self._flush()
            await self._end_lease(keep=left or not flushed)
        finally:
            self.writer.abort()
            self.loop.close()
            self.keeper.stop()
            self._threads.close()
            with anyio.move_on_after(_FORCED if self._forced.is_set() else _FLUSH):
                await self._close_resources()
            with anyio.move_on_after(_FORCED):
                await asyncio.wait([self.keeper.ended])

    async def _drain(self) -> bool:
        """Wait for the slots. Returns whether some had to be left behind."""
        if not self.slots.running:
            return False
        if not self._forced.is_set():
            await self._ended_or_forced(self._settings.grace)
        if self.slots.running:
            logger.info("worker %s: %d jobs are interrupted", one_line(self._name), len(self.slots.running))
            self.slots.cancel_all(CancelReason.SHUTDOWN)
            await self._ended_or_forced(1.0)
        if self.slots.running and not self._forced.is_set():
            logger.warning("worker %s: waiting for %d jobs that don't stop", one_line(self._name), len(self.slots.running))
            await self._ended_or_forced(None)
        if self.slots.running:
            with anyio.move_on_after(_FORCED):
                await self.slots.all_ended()
        left = self.slots.abandon()
        if left:
            with anyio.move_on_after(0.1):
                await self.slots.all_ended()
        for slot in left:
            logger.warning(
                "worker %s: %s %s is left behind while it still runs; others get it when the lease has run out",
                one_line(self._name),
                one_line(slot.job.type),
                slot.job.id,
                extra=slot.extra(),
            )
        return bool(left)

    async def _ended_or_forced(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(self.slots.all_ended()), loop.create_task(self._forced_wait())]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)

    async def _forced_wait(self) -> None:
        await self._forced.wait()

    async def _flush(self) -> bool:
        flushing = asyncio.get_running_loop().create_task(self.writer.flush())
        forced = asyncio.get_running_loop().create_task(self._forced_wait())
        try:
            await asyncio.wait([flushing, forced], timeout=_FLUSH, return_when=asyncio.FIRST_COMPLETED)
            if not flushing.done():
                await asyncio.wait([flushing], timeout=_FORCED)
            return flushing.done()
        finally:
            for each in (flushing, forced):
                each.cancel()
            await asyncio.wait([flushing, forced])

    async def _end_lease(self, *, keep: bool) -> None:
        lease_id, self.loop.lease_id = self.loop.lease_id, None
        self.keeper.use(None)
        if lease_id is None:
            lease_id = await self.loop.late_lease(_FORCED)
        if lease_id is None or keep:
            return
        with anyio.move_on_after(_FORCED if self._forced.is_set() else _FLUSH, shield=True):
            try:
                await self._store.release(lease_id, [], end=True)
            except Exception as error:  # noqa: BLE001 - logged; the lease runs out by itself
                logger.warning("worker %s: the lease wasn't ended: %s", one_line(self._name), one_line(repr(error)))

    async def _close_resources(self) -> None:
        try:
            await self._resources.aclose()
        except Exception:
            logger.exception("worker %s: a resource has failed to close", one_line(self._name))
