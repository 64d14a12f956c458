"""One thread keeps all of a worker's leases: what fails for one of them is soon known of the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Registry
from aioqueue.abc import Renewal
from aioqueue.errors import StoreUnavailable
from aioqueue.worker import Worker, _lease_thread
from aioqueue.worker._health import Troubles
from aioqueue.worker._lease_thread import KeptLease, LeaseThread
from aioqueue.worker._watchdog import Watchdog
from tests.worker.faults import until
from tests.worker.insides import parts
from tests.worker.lease_thread_bench import FakeThreading, FakeTime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aioqueue import Client
    from aioqueue.vocabulary._job import Claim

pytestmark = pytest.mark.anyio


async def test_one_that_is_lost_while_another_is_opened_is_opened_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody deletes the first one's row at that moment; the worker ended with an error."""
    registry = Registry()

    @registry.job
    async def usual() -> int:
        return 1

    @registry.job(lease=30)
    async def short() -> int:
        return 2

    worker = Worker(client, registry, lease=60)
    open_lease: Any = client.store.open_lease
    opened: list[int] = []

    async def opening(*arguments: Any, **named: Any) -> int:
        opened.append(await open_lease(*arguments, **named))
        if len(opened) == 2:
            with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
                connection.execute("delete from lease where id = ?", (opened[0],))
            leases = parts(worker).leases
            leases.renew_now()
            await until(lambda: opened[0] not in leases.own)
        return opened[-1]

    monkeypatch.setattr(client.store, "open_lease", opening)
    async with worker:
        handles = await client.enqueue_many([usual(), short()])
        assert [await handle.result(timeout=60) for handle in handles] == [1, 2]
    assert len(opened) == 3


LONGEST_TRY = 1.0


class Silent:
    """A lease session that works for some time; then no answer comes any more."""

    def __init__(self, clock: FakeTime, works_until: float) -> None:
        self._clock = clock
        self._works_until = works_until

    def connect(self) -> None: ...

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        if self._clock.now < self._works_until:
            return Renewal(valid=True)
        self._clock.now += LONGEST_TRY
        raise StoreUnavailable("silence")

    def close(self) -> None: ...


@pytest.mark.parametrize(
    "leases",
    [[(6.0, 6.0), (6.0, 6.001)], [(6.0, 6.0), (12.0, 12.0)], [(6.0, 6.0), (7.0, 7.0), (8.0, 8.0)]],
    ids=["that end together", "of which one is over first", "three of them"],
)
async def test_each_lease_is_known_to_fail_before_it_is_over(
    monkeypatch: pytest.MonkeyPatch, leases: list[tuple[float, float]]
) -> None:
    """So that nothing more is claimed for it, and what runs under it is cancelled at its end."""
    clock = FakeTime()
    monkeypatch.setattr(_lease_thread, "time", clock)
    session: Any = Silent(clock, clock.now + 1.0)
    failed: dict[int, float] = {}

    def waited() -> None:
        for lease in kept:
            if lease.failing:
                failed.setdefault(lease.id, lease.ends - clock.now)
        if clock.now > 1030:
            thread.stop()

    threads = FakeThreading(clock, waited)
    monkeypatch.setattr(_lease_thread, "threading", threads)
    thread = LeaseThread(
        session,
        "worker",
        LONGEST_TRY,
        {},
        several=True,
        watchdog=Watchdog("worker", 0, {}, Troubles("worker")),
        on_renewal=lambda lease, renewal: None,
        on_error=lambda lease, error: None,
    )
    kept = [KeptLease(number, duration, duration / 3, clock.now + ends) for number, (duration, ends) in enumerate(leases, 1)]
    for lease in kept:
        thread.keep(lease)
    thread.start()
    threads.run()
    assert failed.keys() == {lease.id for lease in kept}
    assert min(failed.values()) > 0, failed
