"""The store in memory, behind the faulty network."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.errors import AioqueueError, StoreUnavailable
from aioqueue.testing.memory._gates import look_at_gates
from aioqueue.testing.memory._lease import MemoryLeaseSession, renew
from aioqueue.testing.memory._settle import settle
from tests.simulation.store_gates import GatesStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioqueue.abc import Listener
    from aioqueue.runtime._home import Home
    from aioqueue.vocabulary._answers import Renewal
    from aioqueue.vocabulary._job import Claim, Settlement, SettleResult
    from tests.simulation.database import WatchedDatabase
    from tests.simulation.process import Process

T = TypeVar("T")


class FaultyStore(GatesStore):
    """One process's connections to the database."""

    def __init__(self, database: WatchedDatabase, process: Process) -> None:
        super().__init__(database=database)
        self._watched = database
        self.checker = database.checker
        self._process = process
        self.network = database.network
        self.description = f"simulation of {process.name}"

    async def perform(self, verb: str, work: Callable[[], T]) -> T:
        """Send a request, and wait for its answer."""
        if verb in {"open", "close"}:
            return work()
        done: list[T] = []

        def carried_out() -> T:
            done.append(work())
            return done[0]

        try:
            return await self._request(verb, carried_out)
        except StoreUnavailable:
            if verb == "claim" and done:
                self._watched.checker.claim_unheard(self._process, done[0])
            raise

    async def _request(self, verb: str, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def take(answer: T | AioqueueError) -> None:
            if future.done():
                return
            if isinstance(answer, AioqueueError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        def answered(answer: T | AioqueueError) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(take, answer)

        self.network.request(self._process, verb, work, answered)
        return await future

    async def open_lease(self, worker: str, duration: float, **told: Any) -> int:
        """As it says."""
        asked_at = self.network.scheduler.now
        lease_id = await super().open_lease(worker, duration, **told)
        self._watched.checker.lease_told(lease_id, self._process, asked_at)
        return lease_id

    def lease_session(self, *, timeout: float = 10.0) -> SimulatedSession:
        """As it says."""
        return SimulatedSession(self._watched, self._life.home, self._process, timeout)

    async def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
    ) -> Sequence[SettleResult]:
        """As it says."""
        assert tx is None
        return await self.perform("settle", lambda: self.settle_now(settlements, orphaned=orphaned))

    def settle_now(self, settlements: Sequence[Settlement], *, orphaned: bool) -> list[SettleResult]:
        """What the database does about it."""
        results = settle(self._watched, settlements, orphaned=orphaned)
        self._watched.settled(settlements, results, orphaned=orphaned)
        look_at_gates(self._watched)
        return results

    @contextmanager
    def subscribe(self, listener: Listener, *, finished: bool = False) -> Iterator[None]:
        """As it says: through the network."""
        del finished
        entry = (self._process, listener)
        self.network.listeners.append(entry)
        try:
            yield
        finally:
            self.network.listeners.remove(entry)


class SimulatedSession(MemoryLeaseSession):
    """The lease thread's connection: it blocks the virtual thread that uses it, for no longer than its timeout.

    Attributes:
        silent: Whether nothing comes through the present connection any more.
    """

    def __init__(self, database: WatchedDatabase, home: Home, process: Process, timeout: float) -> None:
        super().__init__(database, home, timeout)
        self._watched = database
        self._network = database.network
        self._process = process
        self.silent = False
        process.sessions.append(self)

    def perform(self, verb: str, work: Callable[[], T]) -> T:
        """Send a request, and block until its answer comes."""
        scheduler, process = self._network.scheduler, self._process
        thread = scheduler.current
        assert thread is not None
        answers: list[T | AioqueueError] = []

        def answered(answer: T | AioqueueError) -> None:
            if not answers:
                answers.append(answer)
                scheduler.wake(thread)

        until = scheduler.now + self.timeout
        if not self.silent and process.silent_until <= scheduler.now:
            self._network.request(process, verb, work, answered)
        while not answers:
            if not scheduler.block(max(0.0, until - scheduler.now)) and not answers:
                self.silent = False  # it's given up, and the next call has a new one
                answers.append(StoreUnavailable(f"no answer within {self.timeout:g} s"))
        if isinstance(answers[0], AioqueueError):
            raise answers[0]
        return answers[0]

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """As it says."""
        gone: list[Claim] = []
        asked: list[Claim] = []

        def work() -> Renewal:
            renewal = renew(self._watched, lease_id, duration, held)
            gone.extend(self._watched.checker.gone(lease_id, held))
            asked.extend(self._watched.checker.requests.held(lease_id))
            return renewal

        asked_at = self._network.scheduler.now
        renewal = self.perform("renew", work)
        self._watched.checker.told(self._process, gone)
        if renewal.valid:
            self._watched.checker.requests.told(self._process, asked)
            self._watched.checker.lease_told(lease_id, self._process, asked_at)
        else:
            self._process.erred_at = self._network.scheduler.now
        return renewal
