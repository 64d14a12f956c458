"""A `LeaseThread` whose function runs in the test's own thread, in time that is made up."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import Renewal
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim
from aioqueue.worker import _lease_thread, _watchdog
from aioqueue.worker._health import Troubles
from aioqueue.worker._lease_thread import KeptLease, LeaseThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FakeTime:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class FakeCondition:
    def __init__(self, clock: FakeTime, waited: Callable[[], None]) -> None:
        self._clock = clock
        self._waited = waited

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify(self) -> None: ...

    def wait(self, timeout: float) -> None:
        self._clock.now += timeout
        self._waited()


class FakeThreading:
    """In place of the module: the thread's function is called by the test, and waiting moves the clock."""

    def __init__(self, clock: FakeTime, waited: Callable[[], None]) -> None:
        self.run: Callable[[], None]
        self._clock = clock
        self._waited = waited

    def Condition(self) -> FakeCondition:  # noqa: N802 - the module's name for it
        return FakeCondition(self._clock, self._waited)

    def Thread(self, *, target: Callable[[], None], **_: object) -> SimpleNamespace:  # noqa: N802 - as above
        self.run = target
        return SimpleNamespace(start=lambda: None)

    def get_ident(self) -> int:
        return threading.get_ident()


class Recorder:
    """A lease session that notes when it was used, and for which lease."""

    def __init__(self, clock: FakeTime) -> None:
        self._clock = clock
        self.times: list[float] = []
        self.leases: list[int] = []
        self.error: BaseException | None = None
        self.takes = 0.0
        self.closed = False

    def connect(self) -> None: ...

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        self.times.append(self._clock.now - 1000)
        self.leases.append(lease_id)
        self._clock.now += self.takes
        if self.error is not None:
            raise self.error
        return Renewal(valid=True)

    def close(self) -> None:
        self.closed = True


class Bench:
    """A lease thread whose thread's function runs here: the event loop is blocked by that, in time that is made up."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        holds: bool = True,
        leases: Sequence[float] = (60.0,),
        blocked_after: float = 5.0,
    ) -> None:
        self.clock = FakeTime()
        for module in (_lease_thread, _watchdog):
            monkeypatch.setattr(module, "time", self.clock)
        self.session = Recorder(self.clock)
        self.until = 0.0
        self.moments: dict[float, Callable[[], None]] = {}
        self.errors: list[BaseException] = []
        slot = SimpleNamespace(job=SimpleNamespace(type="stuck\nERROR forged", id=new_id()), task=None)
        held: dict[Any, Any] = {Claim(slot.job.id, 1): slot} if holds else {}
        self.leases = [
            KeptLease(7 + number, duration, duration / 3, self.clock.now + duration) for number, duration in enumerate(leases)
        ]
        self.lease = self.leases[0]
        self.watchdog = _watchdog.Watchdog("worker", blocked_after, held, Troubles("worker"))
        self._threading = FakeThreading(self.clock, self._waited)
        monkeypatch.setattr(_lease_thread, "threading", self._threading)
        self.thread = LeaseThread(
            self.session,
            "worker",
            min(leases) / 6,
            held,
            several=len(leases) > 1,
            watchdog=self.watchdog,
            on_renewal=lambda lease, renewal: None,
            on_error=lambda lease, error: self.errors.append(error),
        )
        self.thread.start()
        for lease in self.leases:
            self.thread.keep(lease)

    def _waited(self) -> None:
        for moment in [each for each in self.moments if each <= self.clock.now - 1000]:
            self.moments.pop(moment)()
        if self.clock.now - 1000 >= self.until:
            self.thread.stop()

    def run(self, until: float) -> None:
        self.until = until
        self._threading.run()
