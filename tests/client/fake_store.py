"""The store in memory, whose answers can be held back, lost and refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import StoreUnavailable
from aioqueue.testing import MemoryStore
from aioqueue.testing.memory._insert import insert
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from aioqueue.abc import Listener
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Inserted, NewJob

T = TypeVar("T")


class FakeStore(MemoryStore):
    """Faults are queued per verb: "before" fails it, "after" loses the answer of a write that happened.

    Attributes:
        gates: Verbs that wait for an event.
        calls: How often each verb was asked for.
        arrived: Set when a verb is asked for.
        inserts: How many jobs each insert had that was carried out, and whether it was a repetition.
        subscribed: How many listeners there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, list[str | Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: Counter[str] = Counter()
        self.arrived: dict[str, asyncio.Event] = {}
        self.inserts: list[tuple[int, bool]] = []
        self.subscribed = 0

    @property
    def jobs(self) -> dict[UUID, Row]:
        return self.database.rows

    @property
    def opened(self) -> bool:
        return self._life.opened is not None

    async def perform(self, verb: str, work: Callable[[], T]) -> T:
        self.calls[verb] += 1
        self.arrived.setdefault(verb, asyncio.Event()).set()
        if verb in self.gates:
            await self.gates[verb].wait()
        faults = self.faults.get(verb)
        if faults and faults[0] != "after":
            fault = faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            if fault == "before":
                raise StoreUnavailable("no connection")
        answer = await super().perform(verb, work)
        if faults and faults[0] == "after":
            faults.pop(0)
            raise StoreUnavailable("the answer was lost")
        return answer

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        del tx  # what it stands for commits at once

        def work() -> Sequence[Inserted]:
            self.inserts.append((len(jobs), repeated))
            # Real stores don't find them, unless they're told that this is a repetition, or the id was chosen.
            plain = [job.id for job in jobs if not job.chosen_id]
            assert repeated or all(self.jobs[each].live for each in plain if each in self.jobs), "stored twice"
            inserted = insert(self.database, jobs, repeated=repeated, apart=apart)
            self.database.tell_of_events()
            return inserted

        return await self.perform("insert", work)

    @contextmanager
    def subscribe(self, listener: Listener, *, finished: bool = False) -> Iterator[None]:
        self.calls["subscribe"] += 1
        with super().subscribe(listener, finished=finished):
            self.subscribed += 1
            try:
                yield
            finally:
                self.subscribed -= 1

    def finish(self, *ids: UUID, output: bytes = b"null", tell: bool = True) -> None:
        for each in ids:
            row = self.jobs[each]
            row.state, row.output, row.finished_at = StoredState.COMPLETED, output, self.database.now()
        if tell:
            self.tell(Notification(finished=frozenset(self.jobs[each].chain_id or each for each in ids)))

    def tell(self, notification: Notification) -> None:
        self.database.tell(notification)
