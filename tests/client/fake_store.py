"""A store in memory whose answers can be held back, lost and refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioqueue.abc import Notification
from aioqueue.errors import StoreUnavailable
from aioqueue.vocabulary._job import Inserted, Job, JobState, NewJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from uuid import UUID


class FakeTransaction:
    def __init__(self, store: FakeStore) -> None:
        self.connection = object()
        self.store = store
        self.rows: list[NewJob] = []

    async def execute(self, sql: str, *arguments: Any) -> int:
        return 0

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        return []

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        await self.store.step("tx.insert")
        self.rows += jobs
        return [Inserted(job.id, created=True) for job in jobs]


class FakeStore:
    """Faults are queued per method: "before" fails it, "after" loses the answer of a write that happened."""

    description = "fake://"
    troubles: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.jobs: dict[UUID, Job] = {}
        self.faults: dict[str, list[str | Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: Counter[str] = Counter()
        self.arrived: dict[str, asyncio.Event] = {}
        self.inserts: list[tuple[int, bool]] = []
        self.listeners: list[Callable[[Notification], None]] = []
        self.opened = False

    async def step(self, name: str) -> None:
        self.calls[name] += 1
        self.arrived.setdefault(name, asyncio.Event()).set()
        await asyncio.sleep(0)
        if name in self.gates:
            await self.gates[name].wait()
        faults = self.faults.get(name)
        if faults and faults[0] != "after":
            fault = faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            if fault == "before":
                raise StoreUnavailable("no connection")

    def lose_answer(self, name: str) -> None:
        faults = self.faults.get(name)
        if faults and faults[0] == "after":
            faults.pop(0)
            raise StoreUnavailable("the answer was lost")

    async def open(self) -> None:
        self.opened = True
        await self.step("open")

    async def close(self) -> None:
        self.opened = False
        await self.step("close")

    def _keep(self, job: NewJob, *, again: bool) -> Inserted:
        there = self.jobs.get(job.id)
        if there is not None and (again or not there.state.finished):
            return Inserted(job.id, created=False)
        assert there is None, "a finished job was stored twice"
        now = datetime.now(UTC)
        self.jobs[job.id] = Job(
            id=job.id,
            type=job.type,
            state=JobState.READY,
            priority=job.priority,
            payload=job.payload,
            created_at=now,
            run_at=now,
            metadata_json=job.metadata,
        )
        return Inserted(job.id, created=True)

    async def insert(self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False) -> Sequence[Inserted]:
        await self.step("insert")
        self.inserts.append((len(jobs), repeated))
        inserted = [self._keep(job, again=repeated) for job in jobs]
        self.lose_answer("insert")
        return inserted

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[FakeTransaction]:
        await self.step("begin")
        transaction = FakeTransaction(self)
        yield transaction
        await self.step("commit")
        for job in transaction.rows:
            self._keep(job, again=False)
        self.lose_answer("commit")

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        await self.step("fetch")
        return [self.jobs.get(each) for each in ids]

    @contextmanager
    def subscribe(self, listener: Callable[[Notification], None], *, finished: bool = False) -> Iterator[None]:
        self.calls["subscribe"] += 1
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)

    def end(self, *ids: UUID, output: bytes = b"null", tell: bool = True) -> None:
        for each in ids:
            self.jobs[each] = replace(self.jobs[each], state=JobState.COMPLETED, output_json=output)
        if tell:
            self.tell(Notification(finished=frozenset(ids)))

    def tell(self, notification: Notification) -> None:
        for listener in list(self.listeners):
            listener(notification)

    async def claim(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def settle(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    delete = lease_session = list = next_due = open_lease = release = retry = run_now = stats = take_expired = claim
