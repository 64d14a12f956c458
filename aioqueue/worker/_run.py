"""One run of a worker: its parts, put together from the ones that depend on nothing to the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._resources import ResourceScope
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._holdings import Holdings
from aioqueue.worker._lease import Leases, lease_groups
from aioqueue.worker._loop import Loop
from aioqueue.worker._recovery import Recovery
from aioqueue.worker._shutdown import Shutdown
from aioqueue.worker._slots import Slots
from aioqueue.worker._threads import HandlerThreads
from aioqueue.worker._wakeup import Wakeup
from aioqueue.worker._writer import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from aioqueue.client import Client
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._resources import Resource
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.worker._health import Troubles

__all__ = ["Run"]

_BODIES: set[UUID] = set()
"""Ids of the jobs whose bodies run in this process: no worker in it begins one of them again."""


class Run:
    """What a worker has while it runs. `Worker` makes one each time that it's started.

    Arguments:
        client: Open.
        registry: The handlers.
        names: Of the job types to claim.
        settings: The worker's.
        name: The worker's.
        troubles: Where errors show.
        resources: Values in place of resources.
    """

    def __init__(
        self,
        client: Client,
        registry: Registry,
        names: Sequence[str],
        settings: WorkerSettings,
        name: str,
        troubles: Troubles,
        resources: Mapping[Resource[Any], Any] | None,
    ) -> None:
        store = client.store
        owner = asyncio.current_task()
        cancelled_before = 0 if owner is None else owner.cancelling()
        threads = HandlerThreads(name)
        scope = ResourceScope(resources)
        self.names = names
        self._store = store
        # What everyone shares: what wakes the loop, and what this worker holds.
        self.wakeup = Wakeup()
        self.holdings = Holdings()
        # Who writes, who runs, who keeps the lease, who recovers; each is given what it works with.
        self.attempts = attempts = Attempts(
            registry,
            settings,
            worker_id=name,
            client=client,
            resources=scope,
            threads=threads,
            bodies=_BODIES,
            ending=lambda: owner is not None and owner.cancelling() > cancelled_before,
        )
        self.writer = Writer(store, self.holdings, self.wakeup, troubles)
        slots = Slots(
            attempts,
            settings.concurrency,
            _BODIES,
            holdings=self.holdings,
            writer=self.writer,
            wakeup=self.wakeup,
        )
        groups = lease_groups(names, registry.types, settings)
        self.recovery = Recovery(store, registry, settings, name, renew_every=min(group.every for group in groups))
        self.leases = Leases(
            store,
            groups,
            name,
            holdings=self.holdings,
            writer=self.writer,
            wakeup=self.wakeup,
            recovery=self.recovery,
            troubles=troubles,
        )
        self.loop = Loop(
            store,
            names,
            settings,
            wakeup=self.wakeup,
            holdings=self.holdings,
            slots=slots,
            writer=self.writer,
            leases=self.leases,
            recovery=self.recovery,
            troubles=troubles,
        )
        self.shutdown = Shutdown(
            settings,
            name,
            _BODIES,
            holdings=self.holdings,
            writer=self.writer,
            leases=self.leases,
            threads=threads,
            resources=scope,
            wakeup=self.wakeup,
        )

    def subscribed(self) -> AbstractContextManager[None]:
        """Hear the store's notifications, within the block."""
        return self._store.subscribe(self.loop.notified)

    def stop(self, *, force: bool) -> None:
        """Begin to stop; see `Worker.stop`."""
        self.loop.stop()
        self.shutdown.ask(force=force)

    async def close(self, working: asyncio.Task[None]) -> None:
        """Let running jobs finish, write what became of them, and end the lease; bounded by the grace and a little."""
        self.loop.stop()
        await self.shutdown.run(working)
