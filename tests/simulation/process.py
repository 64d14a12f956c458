"""A simulated process: an event loop with a client and workers, that can be frozen, cut off and killed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aioqueue import Client, Worker
from tests.simulation.bodies import REQUEST
from tests.simulation.scheduler import Host, VirtualLoop
from tests.simulation.store import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from aioqueue import Registry
    from tests.simulation.bodies import Bodies
    from tests.simulation.database import WatchedDatabase
    from tests.simulation.plan import Plan
    from tests.simulation.scheduler import Scheduler
    from tests.simulation.store import SimulatedSession


_PROMPT = 0.7
"""Of the turns of a starved event loop: they come at once."""


_GAP = 3
"""Renewals that are missing when a worker has been away."""


_RETENTION_INTERVAL = 2.0


class Process(Host):
    """See the module.

    Attributes:
        alive: Whether it hasn't been killed. What a dead one still does reaches nobody.
        forced: Whether it was asked to stop at once.
        cut_until: Until when it can't reach the database.
        patience: Seconds after which a call fails while it can't.
        leaving: Whether it was sent a signal to stop.
        stopped_at: When its workers were asked to stop.
        disturbed_at: When something last kept it from renewing its leases.
        erred_at: When a request of it last failed for want of the database, or of its lease: nothing is recovered then for
            a while, as others may have lost theirs, too, and renew or open one.
        active_at: When it last had something to do with a job.
        renew_every: Seconds between the renewals of its workers' leases.
        held_up: How often it was frozen or blocked.
        sessions: The connections of its lease threads.
        away_until: Until when it was frozen last for so long that its own renewals have a gap.
        held_up_until: Until when it's frozen or blocked.
        silent_until: Until when nothing comes through those that they open.
        done: Whether its main function has ended.
        exited: Whether its event loop has ended too. What is left in that never goes on.
    """

    def __init__(
        self, scheduler: Scheduler, database: WatchedDatabase, name: str, *, starved: float = 0.0, bodies: Bodies | None = None
    ) -> None:
        super().__init__(name)
        self._scheduler = scheduler
        network = self._network = database.network
        self._starved = starved
        self._bodies = bodies
        self.forced = False
        self._chance = random.Random(f"processor {network.chance.random()}")
        self.loop = VirtualLoop(scheduler, self._wait)
        self.store = FaultyStore(database, self)
        self.alive = True
        self.cut_until = 0.0
        self.patience = 0.01
        self.leaving = False
        self.stopped_at: float | None = None
        self.disturbed_at = self.erred_at = self.active_at = self._heard_at = scheduler.now
        self.held_up = 0
        self.held_up_until = 0.0
        self.away_until = 0.0
        self.sessions: list[SimulatedSession] = []
        self.silent_until = 0.0
        self.done = self.exited = False
        self.workers: list[Worker] = []
        self.errors: list[str] = []
        self.working = False
        self.renew_every = 0.0
        self._main: asyncio.Task[None] | None = None
        self.loop.set_exception_handler(self._unhandled)

    @property
    def reachable(self) -> bool:
        """Whether the database can be reached from here."""
        return self.alive and self.cut_until <= self._scheduler.now

    @property
    def stopping(self) -> bool:
        return self.stopped_at is not None

    @property
    def answers_for_leases(self) -> bool:
        """Whether it's expected to keep its leases."""
        return self.alive and not self.stopping and not self.done

    @property
    def is_well(self) -> bool:
        """Whether it works, and nothing has been in its way for a second."""
        in_its_way = max(self.held_up_until, self.disturbed_at, self.erred_at)
        return self.answers_for_leases and self.working and not self.leaving and in_its_way + 1.0 <= self._scheduler.now

    def disturbed(self) -> None:
        """Something keeps it from renewing its leases."""
        self.disturbed_at = max(self.disturbed_at, self._scheduler.now)

    def heard_of_its_lease(self) -> None:
        """A lease of it is valid. After a gap in that nothing is recovered for a while, as others may have had one, too."""
        now = self._scheduler.now
        if now - self._heard_at > 2 * self.renew_every:
            self.erred_at = now
        self._heard_at = now

    def _wait(self) -> float:
        if not self._starved or self._network.calm or not self.alive or self._chance.random() < _PROMPT:
            return 0.0
        return self._chance.uniform(0, self._starved)

    # -- what it runs -------------------------------------------------------------------------------------------------

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run an async function as its main one."""

        async def held() -> None:
            self._main = asyncio.current_task()
            if self.stopping:  # before its first turn
                self.done = True
                return
            try:
                await main()
            except asyncio.CancelledError:
                if not self.stopping and self.alive:
                    raise
            else:
                if self.alive and self.stopping and not self.forced and self._bodies is not None:
                    self._bodies.left(self)
            finally:
                self.done = True

        def run() -> None:
            try:
                self.loop.run(held())
            except Exception as error:
                self.errors.append(repr(error))
            finally:
                self.done = self.exited = True

        self._scheduler.start(self, run, self.name)

    async def work(self, registry: Registry, release: int | None, plan: Plan) -> None:
        """Run workers of this code until they're stopped."""
        self.renew_every = plan.lease / 3
        REQUEST.set(f"the start of {self.name}")
        async with Client(self.store) as client:
            self.workers = [
                Worker(
                    client,
                    registry,
                    name=f"{self.name}{letter}",
                    concurrency=plan.concurrency,
                    lease=plan.lease,
                    poll_interval=plan.poll_interval,
                    grace=plan.grace,
                    retention_completed=plan.retention,
                    retention_failed=plan.retention,
                    retention_interval=_RETENTION_INTERVAL if plan.retention else 0.0,
                    release=release,
                )
                for letter in "ab"[: plan.workers]
            ]
            running = [self.loop.create_task(worker.run()) for worker in self.workers]
            try:
                await asyncio.sleep(0)
                self.working = True
                self.active_at = self._scheduler.now
                for each in running:
                    await asyncio.wait([each])
            except asyncio.CancelledError:
                for each in running:
                    each.cancel()
                for each in running:
                    await asyncio.wait([each])
                raise
            for each in running:
                each.result()

    # -- what happens to it -------------------------------------------------------------------------------------------

    def stop(self, *, force: bool = False) -> None:
        """As a signal does: a frozen process gets it when it goes on."""
        self.leaving = True

        def tell() -> None:
            if self.stopped_at is None:
                self.stopped_at = self._scheduler.now
            self.forced |= force
            if self._bodies is not None:
                self._bodies.asked_to_stop(self, force=force)
            if not self.working and self._main is not None:
                self._main.cancel()
            for worker in self.workers:
                worker.stop(force=force)

        self._in_loop(tell)

    def cancel(self) -> None:
        """Cancel its main task."""
        self.leaving = True

        def tell() -> None:
            if self.stopped_at is None:
                self.stopped_at = self._scheduler.now
            self.forced = True
            if self._main is not None:
                self._main.cancel()

        self._in_loop(tell)

    def kill(self) -> None:
        """As SIGKILL does: nobody hears of it again. What runs here is wound up where nobody sees it."""
        self.alive = False
        self.frozen_until = 0.0
        self.cancel()

    def freeze(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT do."""
        self.frozen_until = max(self.frozen_until, self._scheduler.now + seconds)
        self.held_up += 1
        if seconds > _GAP * self.renew_every:
            self.away_until = max(self.away_until, self.frozen_until)
        self.held_up_until = max(self.held_up_until, self.frozen_until)
        self.disturbed_at = max(self.disturbed_at, self.frozen_until)

    def cut(self, seconds: float, patience: float) -> None:
        """Take the network away."""
        self.cut_until = max(self.cut_until, self._scheduler.now + seconds)
        self.patience = patience
        self.disturbed_at = max(self.disturbed_at, self.cut_until + patience)

    def silence(self, seconds: float, *, new: bool) -> None:
        """Nothing comes any more through the connections of its lease threads; with `new`, nor through those they open."""
        for session in self.sessions:
            session.silent = True
        if new:
            self.silent_until = max(self.silent_until, self._scheduler.now + seconds)
            self.disturbed_at = max(
                self.disturbed_at, self.silent_until + max((each.timeout for each in self.sessions), default=0.0)
            )

    def _in_loop(self, work: Callable[[], None]) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(work)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")
