"""A `Store` over the database in memory, behind the faulty network."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.abc import JobFilter, Listener, Notification, Page, Renewal, Stats
from aioqueue.errors import AioqueueError, StoreUnavailable
from aioqueue.vocabulary._job import SettlementKind
from tests.simulation.network import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from uuid import UUID

    from aioqueue.abc import Changed, Due
    from aioqueue.vocabulary._job import Claim, ClaimedJob, Inserted, Job, NewJob, Settlement, SettleResult
    from tests.simulation.network import Network
    from tests.simulation.process import Process

T = TypeVar("T")

_FOR_GOOD = {SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED}


class FaultyStore:
    """One process's connections to the database."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._database = network.database
        self.description = f"simulation of {process.name}"

    async def _call(self, verb: str, work: Callable[[], T]) -> T:
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

        self._network.request(self._process, verb, work, answered)
        return await future

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def migrate(self) -> Sequence[str]:
        return ()

    async def insert(self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False) -> Sequence[Inserted]:
        def work() -> list[Inserted]:
            results = self._database.insert(jobs)
            for job in jobs:
                self._network.notify(Notification(types=frozenset({job.type}), delay=job.delay or 0.0))
            return results

        return await self._call("insert", work)

    def transaction(self) -> Any:
        raise NotImplementedError

    async def open_lease(self, worker: str, duration: float, *, extra: bool = False) -> int:
        asked_at = self._network.scheduler.now
        lease_id = await self._call("open_lease", lambda: self._database.open_lease(worker, duration))
        self._database.checker.lease_told(lease_id, self._process, asked_at)
        return lease_id

    @property
    def troubles(self) -> Mapping[str, str]:
        return {}

    def lease_session(self, *, timeout: float = 10.0) -> SimulatedSession:
        return SimulatedSession(self._network, self._process, timeout)

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        jobs: list[ClaimedJob] = []

        def work() -> list[ClaimedJob]:
            jobs.extend(self._database.claim(lease_id, types, limit, leases or {}))
            return list(jobs)

        try:
            return await self._call("claim", work)
        except StoreUnavailable:
            self._database.checker.claim_unheard(self._process, jobs)
            raise

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        def work() -> Any:
            if not orphaned or self._database.rules.orphans_hold_lease:
                return write()
            believed = self._database.ownerless(settlements)
            return Later(self._network.chance.uniform(0.02, 0.4), lambda: write(believed))

        def write(believed: Collection[UUID] = ()) -> list[SettleResult]:
            results = self._database.settle(settlements, orphaned=orphaned, believed=believed)
            finished = frozenset(each.id for each in settlements if each.kind in _FOR_GOOD)
            waits = [each.delay or 0.0 for each in settlements if each.kind not in _FOR_GOOD]
            owners = frozenset(each.lease_id for each in settlements) if orphaned else frozenset[int]()
            types = None if waits else frozenset[str]()
            self._network.notify(Notification(types=types, delay=min(waits, default=0.0), finished=finished, leases=owners))
            return results

        return await self._call("settle", work)

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        def work() -> None:
            self._database.release(lease_id, claims, end=end)
            self._network.notify(Notification(types=None))

        await self._call("release", work)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        return await self._call("take_expired", lambda: self._database.take_expired(limit, own))

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        return await self._call("next_due", lambda: self._database.next_due(types, own))

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        return await self._call("fetch", lambda: self._database.fetch(ids))

    async def list(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        raise NotImplementedError

    async def stats(self) -> Stats:
        raise NotImplementedError

    async def retry(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        raise NotImplementedError

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        raise NotImplementedError

    async def delete(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        raise NotImplementedError

    @contextmanager
    def subscribe(self, listener: Listener, *, finished: bool = False) -> Iterator[None]:
        entry = (self._process, listener)
        self._network.listeners.append(entry)
        try:
            yield
        finally:
            self._network.listeners.remove(entry)


class SimulatedSession:
    """The lease thread's connection: it blocks the virtual thread that uses it, for no longer than its timeout.

    Attributes:
        silent: Whether nothing comes through the present connection any more.
    """

    def __init__(self, network: Network, process: Process, timeout: float) -> None:
        self._network = network
        self._process = process
        self.timeout = timeout
        self.silent = False
        process.sessions.append(self)

    def _call(self, verb: str, work: Callable[[], T]) -> T:
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

    def connect(self) -> None:
        self._call("connect", lambda: None)

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        database = self._network.database
        gone: list[Claim] = []

        def work() -> Renewal:
            renewal = database.renew(lease_id, duration, held)
            gone.extend(database.checker.gone(lease_id, held))
            return renewal

        asked_at = self._network.scheduler.now
        renewal = self._call("renew", work)
        database.checker.told(self._process, gone)
        if renewal.valid:
            database.checker.lease_told(lease_id, self._process, asked_at)
        return renewal

    def close(self) -> None:
        pass
