"""A client's store whose verbs fail, or lose their answers, when a test says so."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from aioqueue import Fixed, Registry, Retry, StoreUnavailable, current_attempt

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    import pytest

    from aioqueue import Client
    from aioqueue.abc import LeaseSession, Renewal
    from aioqueue.vocabulary._job import Claim

VERBS = ("open_lease", "claim", "settle", "release", "take_expired", "next_due")


class Faults:
    """Wraps the verbs that workers use, and renewals too.

    Attributes:
        away: While it's true, every verb fails.
        failing: Verbs that fail while they're here.
        before: Errors that the next calls of a verb raise in place of doing anything.
        after: How many of the next calls of a verb are done, and raise `StoreUnavailable` in place of their answer.
        calls, failed: By verb.
        gates: A call of the verb waits for its event before it's done.
        busy: Calls that are being done.
    """

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = False
        self.failing: set[str] = set()
        self.before: dict[str, list[Exception]] = {}
        self.after: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.gates: dict[str, asyncio.Event] = {}
        self.busy = 0
        self._sets: dict[str, list[Any]] = {}
        store = client.store
        for verb in VERBS:
            monkeypatch.setattr(store, verb, self._wrap(verb, getattr(store, verb)))
        make = store.lease_session
        monkeypatch.setattr(store, "lease_session", lambda **named: FaultySession(make(**named), self))

    def _wrap(self, verb: str, works: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            self.begin(verb)
            self.busy += 1
            try:
                if verb in self.gates:
                    await self.gates[verb].wait()
                answer = await works(*arguments, **named)
            finally:
                self.busy -= 1
            self.end(verb)
            return answer

        return call

    def begin(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.away or verb in self.failing:
            self.failed[verb] += 1
            raise StoreUnavailable("the database is away")
        if self.before.get(verb):
            self.failed[verb] += 1
            raise self.before[verb].pop(0)

    def end(self, verb: str) -> None:
        if self.after[verb]:
            self.after[verb] -= 1
            self.failed[verb] += 1
            raise StoreUnavailable("the answer was lost")
        if verb in self._sets:
            self._sets[verb][0] -= 1
            if self._sets[verb][0] == 0:
                self._sets.pop(verb)[1].set()

    def let_go_after(self, verb: str, count: int, event: threading.Event) -> None:
        """Set an event, in whatever thread that is, once the verb was done so often."""
        self._sets[verb] = [count, event]


class FaultySession:
    def __init__(self, session: LeaseSession, faults: Faults) -> None:
        self._session = session
        self._faults = faults

    def connect(self) -> None:
        self._session.connect()

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        self._faults.begin("renew")
        renewal = self._session.renew(lease_id, duration, held)
        self._faults.end("renew")
        return renewal

    def close(self) -> None:
        self._session.close()


class Jobs:
    """One that ends at once, and one that waits until it's let go."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.gate = asyncio.Event()
        self.starts: asyncio.Queue[int] = asyncio.Queue()
        self.cancelled = 0
        soon = Retry(max_attempts=5, backoff=Fixed(0))

        @self.registry.job(retry=soon)
        async def quick() -> int:
            return current_attempt().number

        @self.registry.job(retry=soon)
        async def held() -> int:
            self.starts.put_nowait(current_attempt().number)
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return current_attempt().number

        self.quick, self.held = quick, held

    async def started(self) -> int:
        async with asyncio.timeout(60):
            return await self.starts.get()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what no event tells."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def ended(task: asyncio.Task[Any], within: float = 60.0) -> None:
    """Wait until a task has ended, and raise what it has raised."""
    async with asyncio.timeout(within):
        await task
