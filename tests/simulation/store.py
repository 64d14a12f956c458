"""A `Store` over the database in memory, behind a network that loses requests, answers and whole connections."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue._job import SettlementKind
from aioqueue.abc import JobFilter, Listener, Notification, Page, Renewal, Stats
from aioqueue.errors import AioqueueError, StoreUnavailable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from uuid import UUID

    from aioqueue._job import Claim, ClaimedJob, Inserted, Job, NewJob, Settlement, SettleResult
    from aioqueue.abc import Changed, Due
    from tests.simulation.database import Database
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler

T = TypeVar("T")

_FOR_GOOD = {SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED}
_CALM_LATENCY = 0.01


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong.

    Attributes:
        request_lost: Of all calls: it never reaches the database.
        answer_lost: Of all calls: it's carried out, and the caller gets an error.
        late: Of lost requests: they are carried out after all, seconds after the caller got its error.
        notification_lost: Of all notifications.
        slowest: Seconds that a request or an answer takes at most.
    """

    request_lost: float
    answer_lost: float
    late: float
    notification_lost: float
    slowest: float


class Network:
    """What the stores of one history share: the database, its listeners and the faults."""

    def __init__(self, scheduler: Scheduler, database: Database, chance: random.Random, faults: Faults) -> None:
        self.scheduler = scheduler
        self.database = database
        self.chance = chance
        self.faults = faults
        self.calm = False
        self.listeners: list[tuple[Process, Listener]] = []

    def happens(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    def latency(self) -> float:
        return self.chance.uniform(0.0005, _CALM_LATENCY if self.calm else self.faults.slowest)

    def notify(self, notification: Notification) -> None:
        for process, listener in self.listeners:
            if process.reachable and not self.happens(self.faults.notification_lost):
                self._deliver(process, listener, notification)

    def _deliver(self, process: Process, listener: Listener, notification: Notification) -> None:
        def arrive() -> None:
            if any(known is listener for _, known in self.listeners):
                process.loop.call_soon_threadsafe(listener, notification)

        self.scheduler.call_at(self.scheduler.now + self.latency(), arrive)

    def request(self, process: Process, work: Callable[[], T], answer: Callable[[T | AioqueueError], None]) -> None:
        """Send something to the database; the answer, or an error, comes later."""
        now, at = self.scheduler.now, self.scheduler.call_at
        if not process.reachable or self.happens(self.faults.request_lost):
            process.disturbed()
            if process.reachable and self.happens(self.faults.late):
                at(now + self.chance.uniform(0, 3.0), lambda: self._late(work))
            wait = process.patience if not process.reachable else self.latency()
            at(now + wait, lambda: answer(StoreUnavailable("the request was lost")))
            return

        def arrive() -> None:
            if not process.alive and self.chance.random() < 0.5:
                return
            try:
                result: T | AioqueueError = work()
            except AioqueueError as error:
                result = error
            if not process.reachable or self.happens(self.faults.answer_lost):
                process.disturbed()
                result = StoreUnavailable("the answer was lost")
            at(self.scheduler.now + self.latency(), lambda: answer(result))

        at(now + self.latency(), arrive)

    def _late(self, work: Callable[[], object]) -> None:
        with suppress(AioqueueError):
            work()


class FaultyStore:
    """One process's connections to the database."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._database = network.database
        self.description = f"simulation of {process.name}"

    async def _call(self, work: Callable[[], T]) -> T:
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

        self._network.request(self._process, work, answered)
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

        return await self._call(work)

    def transaction(self) -> Any:
        raise NotImplementedError

    async def open_lease(self, worker: str, duration: float) -> int:
        lease_id = await self._call(lambda: self._database.open_lease(worker, duration))
        self._database.checker.lease_told(lease_id, self._process)
        return lease_id

    @property
    def troubles(self) -> Mapping[str, str]:
        return {}

    def lease_session(self, *, timeout: float = 10.0) -> SimulatedSession:
        return SimulatedSession(self._network, self._process, timeout)

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, *, leases: Mapping[str, int] | None = None
    ) -> Sequence[ClaimedJob]:
        return await self._call(lambda: self._database.claim(lease_id, types, limit, leases or {}))

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        def work() -> list[SettleResult]:
            results = self._database.settle(settlements, orphaned=orphaned)
            finished = frozenset(each.id for each in settlements if each.kind in _FOR_GOOD)
            waits = [each.delay or 0.0 for each in settlements if each.kind not in _FOR_GOOD]
            owners = frozenset(each.lease_id for each in settlements) if orphaned else frozenset[int]()
            types = None if waits else frozenset[str]()
            self._network.notify(Notification(types=types, delay=min(waits, default=0.0), finished=finished, leases=owners))
            return results

        return await self._call(work)

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        def work() -> None:
            self._database.release(lease_id, claims, end=end)
            self._network.notify(Notification(types=None))

        await self._call(work)

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        return await self._call(lambda: self._database.take_expired(limit, own))

    async def next_due(self, types: Sequence[str], *, own: Collection[int] = ()) -> Due:
        return await self._call(lambda: self._database.next_due(types, own))

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        return await self._call(lambda: self._database.fetch(ids))

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
    """The lease thread's connection: it blocks the virtual thread that uses it, for no longer than its timeout."""

    def __init__(self, network: Network, process: Process, timeout: float) -> None:
        self._network = network
        self._process = process
        self._timeout = timeout

    def _call(self, work: Callable[[], T]) -> T:
        scheduler = self._network.scheduler
        thread = scheduler.current
        assert thread is not None
        answers: list[T | AioqueueError] = []

        def answered(answer: T | AioqueueError) -> None:
            if not answers:
                answers.append(answer)
                scheduler.wake(thread)

        until = scheduler.now + self._timeout
        self._network.request(self._process, work, answered)
        while not answers:
            if not scheduler.block(max(0.0, until - scheduler.now)) and not answers:
                answers.append(StoreUnavailable(f"no answer within {self._timeout:g} s"))
        if isinstance(answers[0], AioqueueError):
            raise answers[0]
        return answers[0]

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        renewal = self._call(lambda: self._network.database.renew(lease_id, duration, held))
        self._network.database.checker.told(self._process, lease_id, list(held), renewal)
        return renewal

    def connect(self) -> None:
        pass

    def close(self) -> None:
        pass
