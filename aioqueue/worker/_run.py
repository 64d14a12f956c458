"""One run of a worker: its parts, put together from the ones that depend on nothing to the loop."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from aioqueue.definitions._gates_of_types import gate_rules, limits_of
from aioqueue.definitions._resources import ResourceScope
from aioqueue.definitions._schedules import generation_of
from aioqueue.errors import StoreUnavailable
from aioqueue.events import WorkerStarted, WorkerStopped, WorkerStopping
from aioqueue.runtime._log import enable_loggers, event
from aioqueue.telemetry._counters import Counters
from aioqueue.telemetry._instruments import recorders
from aioqueue.telemetry._tracing import Tracing
from aioqueue.worker._attempt import Attempts
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._captured import capturing
from aioqueue.worker._completion import Completions
from aioqueue.worker._gates import Gates
from aioqueue.worker._holdings import Holdings
from aioqueue.worker._interruption import Interruptions
from aioqueue.worker._lease import Leases
from aioqueue.worker._lease_groups import lease_groups
from aioqueue.worker._loop import Loop
from aioqueue.worker._notifications import Notifications
from aioqueue.worker._policy import Policies
from aioqueue.worker._processes import HandlerProcesses
from aioqueue.worker._recovery import Recovery
from aioqueue.worker._retention import Retention
from aioqueue.worker._schedules import Schedules
from aioqueue.worker._schedules_reconciled import Reconciling
from aioqueue.worker._shutdown import Shutdown
from aioqueue.worker._slots import Slots
from aioqueue.worker._stages import Stages
from aioqueue.worker._standby import Standby
from aioqueue.worker._tending import Tending
from aioqueue.worker._text import one_line
from aioqueue.worker._threads import HandlerThreads
from aioqueue.worker._type_concurrency import TypeConcurrency
from aioqueue.worker._until_idle import UntilIdle
from aioqueue.worker._view import WorkerView
from aioqueue.worker._wakeup import Wakeup
from aioqueue.worker._watchdog import Watchdog
from aioqueue.worker._webhooks import webhooks_of
from aioqueue.worker._writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.client import Client
    from aioqueue.definitions._registry import Registry
    from aioqueue.definitions._resources import Resource
    from aioqueue.definitions._settings import WorkerSettings
    from aioqueue.events import WorkerEvent
    from aioqueue.worker._health import Health, Troubles
    from aioqueue.worker._lease_groups import LeaseGroup
    from aioqueue.worker._retention import OnPurge
    from aioqueue.worker._webhooks import Webhooks

__all__ = ["Run"]

logger = logging.getLogger("aioqueue.worker")

_BODIES: set[UUID] = set()
"""Ids of the jobs whose bodies run in this process: no worker in it begins one of them again."""


class Run:
    """What a worker has while it runs. `Worker` makes one each time that it's started, in the task that runs it.

    Arguments:
        client: Open.
        registry: The handlers.
        names: Of the job types to claim.
        settings: The worker's.
        name: The worker's.
        troubles: Where errors show.
        resources: Values in place of resources.
        health: Gives the worker's.
        on_purge: Called before old jobs are removed, if given.

    Attributes:
        names: Of the job types to claim.
        holdings, writer, recovery, leases, standby, interruptions, tending, loop, shutdown: The parts that `Worker` speaks to.
        schedules: Decides their ticks.
        webhooks: Sends these; None if the worker has nothing to sign them with.
        view: What other threads see of it.
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
        health: Callable[[], Health],
        on_purge: OnPurge | None = None,
    ) -> None:
        store = client.store
        self.names = names
        self._store, self._settings, self._troubles = store, settings, troubles
        # What everyone shares: what wakes the loop, and what this worker holds.
        self._wakeup = wakeup = Wakeup()
        labels = {each: job_type.name for each, job_type in registry.types.items()}
        self._tracing = tracing = Tracing(on=settings.tracing, client_id=name, links=settings.trace_links)
        self._name, self._observers = name, client.observers
        self.holdings = holdings = Holdings(name, Counters(labels, recorders()), self._observers)
        # Who tends, who writes, who recovers, and who keeps the leases.
        self.tending = tending = Tending(store, name, troubles=troubles, counters=holdings.counters, wakeup=wakeup)
        self.webhooks = self._made_webhooks(store, settings, troubles)
        self._retention = Retention(
            client, settings, name, on_purge, troubles=troubles, counters=holdings.counters, wakeup=wakeup
        )
        self.schedules, self._reconciling = self._made_schedules(client, registry)
        self._gates = self._made_gates(registry)
        policies, groups = Policies(registry, settings), lease_groups(names, registry.types, settings)
        self.writer = writer = Writer(store, policies, holdings, wakeup, tending, troubles, tracing)
        renew_every, left = min(group.renew_every for group in groups), tending.soon
        self.recovery = Recovery(store, policies, settings, name, renew_every=renew_every, left=left, observers=self._observers)
        self.leases = leases = self._made_leases(store, groups, settings, troubles)
        self.standby = Standby(leases, settings, name)
        self.interruptions = Interruptions(policies, _cancellation_of_this_task())
        threads, scope = HandlerThreads(name), ResourceScope(resources)
        self._processes = HandlerProcesses(name, threads)
        self._stages = stages = Stages(client, threads, _BODIES, troubles, holdings.counters)
        attempts = self._made_attempts(name, client, registry, policies, scope, threads)
        self.loop = self._made_loop(store, registry, settings, troubles, attempts)
        self.shutdown = Shutdown(
            settings,
            name,
            _BODIES,
            holdings=holdings,
            writer=writer,
            leases=leases,
            threads=threads,
            processes=self._processes,
            resources=scope,
            tending=(tending, self._retention, self.schedules, self._reconciling, self._gates),
            stages=stages,
            wakeup=wakeup,
            webhooks=self.webhooks,
        )
        self.view = WorkerView(name, store, holdings, troubles, health, registry.declared)
        self._captures = any(registry.types[each].capture_logs for each in names)
        notifications = Notifications(names, wakeup, leases, self.schedules, self.webhooks, self._gates)
        self._subscribed = functools.partial(store.subscribe, notifications.heard)

    def _made_gates(self, registry: Registry) -> Gates:
        """Who knows at which gates jobs wait."""
        types = {name: registry.types[name] for name in self.names}
        dry_run, troubles = self._settings.dry_run, self._troubles
        return Gates(self._store, gate_rules(types), limits_of(types), dry_run=dry_run, troubles=troubles, wakeup=self._wakeup)

    def _made_leases(self, store: Store, groups: Sequence[LeaseGroup], settings: WorkerSettings, troubles: Troubles) -> Leases:
        """Who keeps the leases."""
        return Leases(
            store,
            groups,
            self._name,
            holdings=self.holdings,
            writer=self.writer,
            wakeup=self._wakeup,
            recovery=self.recovery,
            watchdog=Watchdog(self._name, settings.blocked_after, self.holdings.held, troubles),
            troubles=troubles,
            singleton=settings.singleton,
        )

    def _made_webhooks(self, store: Store, settings: WorkerSettings, troubles: Troubles) -> Webhooks | None:
        """Who sends them, if somebody does: not a worker that only tries jobs out."""
        if settings.dry_run:
            return None
        return webhooks_of(
            store,
            settings,
            self._name,
            troubles=troubles,
            counters=self.holdings.counters,
            observers=self._observers,
            tracing=self._tracing,
        )

    def _made_schedules(self, client: Client, registry: Registry) -> tuple[Schedules, Reconciling]:
        """Who decides their ticks, and who says which there are. A worker of a few types doesn't know what its registry has."""
        settings, troubles = self._settings, self._troubles
        schedules = Schedules(
            client,
            settings,
            self._name,
            cron=find_spec("cronsim") is not None,
            troubles=troubles,
            counters=self.holdings.counters,
            wakeup=self._wakeup,
        )
        generation, scheduled = None, registry.schedules if settings.types is None else ()
        if settings.types is None and registry.name is not None:
            generation = generation_of(registry.name, scheduled, settings.release)
        reconciling = Reconciling(
            client.store, generation, scheduled, self._name, schedules=schedules, troubles=troubles, wakeup=self._wakeup
        )
        return schedules, reconciling

    def _made_attempts(
        self, name: str, client: Client, registry: Registry, policies: Policies, scope: ResourceScope, threads: HandlerThreads
    ) -> Attempts:
        """Who runs one attempt."""
        return Attempts(
            registry,
            policies,
            self.interruptions,
            worker_id=name,
            client=client,
            resources=scope,
            threads=threads,
            processes=self._processes,
            bodies=_BODIES,
            completions=Completions(client, registry, self.holdings, self.tending, self._stages),
            stages=self._stages,
            tracing=self._tracing,
        )

    def _made_loop(
        self, store: Store, registry: Registry, settings: WorkerSettings, troubles: Troubles, attempts: Attempts
    ) -> Loop:
        """Who claims, over who runs what was claimed."""
        slots = Slots(
            attempts,
            self.interruptions,
            settings.concurrency,
            _BODIES,
            holdings=self.holdings,
            writer=self.writer,
            wakeup=self._wakeup,
            leases=self.leases,
            stages=self._stages,
            tracing=self._tracing,
            pause_between=settings.pause_between,
        )
        return Loop(
            store,
            self.names,
            settings,
            wakeup=self._wakeup,
            holdings=self.holdings,
            slots=slots,
            leases=self.leases,
            standby=self.standby,
            recovery=self.recovery,
            schedules=self.schedules,
            type_concurrency=TypeConcurrency(self.names, registry.types, self.holdings),
            gates=self._gates,
            troubles=troubles,
        )

    @contextmanager
    def subscribed(self) -> Generator[None]:
        """Hear the store's notifications for the length of a block, which is the worker's life."""
        with self._subscribed(), capturing() if self._captures else nullcontext():
            try:
                yield
            finally:
                self._tell(WorkerStopped)

    def _tell(self, happened: type[WorkerEvent]) -> None:
        if self._observers.active:
            self._observers.tell(happened(at=datetime.now(UTC), worker=self._name))

    async def start(self, began: Callable[[], None]) -> None:
        """Open the leases, and wait until they're this worker's to have: for the database, and for who has its name.

        Arguments:
            began: Called once that is done, or a stop is asked for; and when the worker begins to stand by, for whoever waits
                for its start.

        Raises:
            SingletonHeld: Another worker has the name, and that isn't to be waited for.
            StoreError: They can't be opened.
            ConfigurationError: The database's role may not do what a worker does.
        """
        backoff, standby = Backoff(), self.standby
        while not self.loop.stopping:
            try:
                await self.shutdown.unless_asked(standby.opened())
            except StoreUnavailable as error:
                self._troubles.add("claim", error)
                await self.shutdown.asked_within(backoff.next())
            else:
                if not standby.retry_in:
                    break
                if self._settings.standby:
                    began()
                self._troubles.clear("claim")
                await self.shutdown.asked_within(standby.retry_in)
        if not self.loop.stopping:
            self._log_start()
        began()

    def _log_start(self) -> None:
        enable_loggers()
        settings = self._settings
        logger.info(
            "worker %s: %d slots for %s, in %s%s%s",
            one_line(self._name),
            settings.concurrency,
            ", ".join(self.names),
            one_line(self._store.description),
            "" if settings.singleton is None else f", alone as {one_line(settings.singleton)}",
            ": a dry run" if settings.dry_run else "",
            extra=event("worker.started", worker=self._name, slots=settings.concurrency),
        )

    async def work(self, *, once: bool) -> None:
        """Run the loop until it's told to stop; with `once`, until nothing is due, runs, or waits to be written or told."""
        self._tell(WorkerStarted)
        if once:
            await self._work_once()
            return
        if not self.loop.stopping:
            self._gates.begin()
            self.tending.begin(at_once=False)
            if self.webhooks is not None:
                self.webhooks.begin()
            if not self._settings.dry_run:
                self._retention.begin()
                self._reconciling.begin()
                self.schedules.begin()
        await self.loop.run()

    async def _work_once(self) -> None:
        """Ticks are decided that are due when it begins, and what is due by the end, which it works off, too."""
        ticks = not self._settings.dry_run
        if not self.loop.stopping:
            self._gates.begin()
            self.tending.begin(at_once=True)
            if ticks:
                await self._reconciling.reconcile_once()
                await self.schedules.decide_due()
        idle = UntilIdle(self.holdings, self._wakeup, self.tending)
        await self.loop.run(enough=idle.reached)
        if ticks and await self.schedules.decide_due():
            await self.loop.run(enough=idle.reached)
        if self.webhooks is not None:
            await self.webhooks.send_due()

    def stop(self, *, force: bool) -> None:
        """Begin to stop; see `Worker.stop`."""
        if not self.loop.stopping:
            self._tell(WorkerStopping)
        self.loop.stop()
        self.tending.stop()
        if self.webhooks is not None:
            self.webhooks.stop()
        self._stop_schedules()
        self._gates.stop()
        self._retention.stop()
        self.shutdown.ask(force=force)

    async def close(self, working: asyncio.Task[None]) -> None:
        """Let running jobs finish, write what became of them, and end the lease; bounded by the grace and a little."""
        self.loop.stop()
        self.tending.stop()
        if self.webhooks is not None:
            self.webhooks.stop()
        self._stop_schedules()
        self._gates.stop()
        self._retention.stop()
        await self.shutdown.run(working)

    def _stop_schedules(self) -> None:
        self._reconciling.stop()
        self.schedules.stop()


def _cancellation_of_this_task() -> Callable[[], bool]:
    """Give what tells whether this task, the worker's, is cancelled from now on."""
    owner = asyncio.current_task()
    before = 0 if owner is None else owner.cancelling()
    return lambda: owner is not None and owner.cancelling() > before
