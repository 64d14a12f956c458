"""Who may take a dead worker's jobs, and when: not right after an outage, nor when a clock was set."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry
from aioqueue._identifiers import new_id
from aioqueue._job import ClaimedJob, LostReason, Settlement, SettlementKind, SettleResult
from aioqueue._settings import WorkerSettings
from aioqueue.worker import Worker, _recovery
from aioqueue.worker._recovery import Recovery
from tests.worker.faults import Faults, Jobs, until

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

pytestmark = pytest.mark.anyio


class FakeTime:
    """Two clocks: one that can be set, and one that can't."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set_by = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.set_by


class Dead:
    """A store with jobs that a dead worker left."""

    def __init__(self) -> None:
        self.left: list[list[ClaimedJob]] = []
        self.taken = 0
        self.written: list[Settlement] = []
        self.lost: LostReason | None = None

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        self.taken += 1
        return self.left.pop(0) if self.left else []

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Sequence[SettleResult]:
        assert orphaned
        self.written += settlements
        return [SettleResult(self.lost) for _ in settlements]


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeTime()
        monkeypatch.setattr(_recovery, "time", self.clock)
        self.store = Dead()
        store: Any = self.store
        self.registry = Registry()
        self.recovery = Recovery(store, self.registry, WorkerSettings.resolve(lease=60, environment={}), "survivor\nERROR x")

    async def looked(self) -> bool:
        """Whether a look at the leases of others is made now."""
        before = self.store.taken
        await self.recovery.reap(())
        return self.store.taken > before

    async def quiet_for(self, seconds: float) -> None:
        """Time passes, with a renewal every now and then."""
        while seconds > 0:
            step = min(seconds, 10)
            self.clock.now += step
            seconds -= step
            self.recovery.in_contact()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def orphan(**changes: Any) -> ClaimedJob:
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "id": new_id(), "type": "a", "payload": b"{}", "priority": 2, "attempt": 1, "claims": 1, "lease_id": 3,
        "created_at": now, "run_at": now, "started_at": now, "max_attempts": 10, **changes,
    }  # fmt: skip
    return ClaimedJob(**values)


async def test_nothing_is_taken_before_a_renewal_interval_has_passed(bench: Bench) -> None:
    assert not await bench.looked()
    await bench.quiet_for(19)
    assert not await bench.looked()
    await bench.quiet_for(2)
    assert await bench.looked()


async def test_looks_are_a_third_of_the_lease_apart(bench: Bench) -> None:
    await bench.quiet_for(21)
    assert await bench.looked()
    assert not await bench.looked()
    assert bench.recovery.wait() == pytest.approx(20)
    await bench.quiet_for(21)
    assert await bench.looked()


async def test_after_an_error_the_others_get_the_time_to_renew(bench: Bench) -> None:
    await bench.quiet_for(100)
    bench.recovery.disturbed()
    assert not await bench.looked()
    await bench.quiet_for(19)
    assert not await bench.looked()
    await bench.quiet_for(2)
    assert await bench.looked()


async def test_after_a_gap_in_our_own_renewals_too(bench: Bench) -> None:
    """Also one without an error: a machine that slept, a process that was stopped."""
    await bench.quiet_for(100)
    bench.clock.now += 300
    bench.recovery.in_contact()
    assert not await bench.looked()
    await bench.quiet_for(21)
    assert await bench.looked()


@pytest.mark.parametrize("step", [-3600.0, 2.0, 900.0])
async def test_after_a_clock_was_set_too(bench: Bench, step: float) -> None:
    await bench.quiet_for(100)
    bench.clock.set_by = step
    assert not await bench.looked()
    await bench.quiet_for(19)
    assert not await bench.looked()
    await bench.quiet_for(2)
    assert await bench.looked()


async def test_a_clock_that_is_slewed_is_no_step(bench: Bench) -> None:
    await bench.quiet_for(100)
    bench.clock.set_by = 0.01
    assert await bench.looked()


async def test_what_is_taken_is_tried_again_or_fails_for_good(bench: Bench, caplog) -> None:
    @bench.registry.job(name="a", retry=Retry(max_attempts=2, backoff=Fixed(7), jitter=0))
    async def a() -> None: ...

    again, last, late, unknown = orphan(), orphan(attempt=2), orphan(expired=True), orphan(type="unknown", attempt=9)
    bench.store.left = [[again, last, late, unknown]]
    await bench.quiet_for(21)
    assert await bench.recovery.reap(()) == 4
    written = {each.id: each for each in bench.store.written}
    assert (written[again.id].kind, written[again.id].delay) == (SettlementKind.RETRIED, 7)
    assert written[last.id].kind is SettlementKind.FAILED
    assert written[late.id].kind is SettlementKind.RETRIED  # it was started in time
    assert written[unknown.id].kind is SettlementKind.RETRIED  # by the worker's default policy
    assert {each.error.type for each in bench.store.written if each.error} == {"WorkerLost"}
    assert all((each.claims, each.lease_id) == (1, 3) for each in bench.store.written)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "took over 4 jobs" in told
    assert "\n" not in told
    assert bench.recovery.wait() <= 0  # where one was, there may be more


async def test_two_that_take_the_same_jobs_count_only_what_they_wrote(bench: Bench) -> None:
    bench.store.left = [[orphan(), orphan()]]
    bench.store.lost = LostReason.TAKEN
    await bench.quiet_for(21)
    assert await bench.recovery.reap(()) == 0
    assert bench.recovery.recovered == 0


# -- with workers -----------------------------------------------------------------------------------------------------


async def test_after_an_outage_longer_than_the_lease_living_workers_keep_their_jobs(
    client: Client, url: str, tmp_path: Path, monkeypatch
) -> None:
    """All leases have run out when the database is back, and whoever comes first would take the others'."""
    jobs = Jobs()
    handles = await client.enqueue_many([jobs.held() for _ in range(4)])
    async with Client(url) as second_client:
        here, there = Faults(client, monkeypatch), Faults(second_client, monkeypatch)
        settings: dict[str, Any] = {"lease": 600, "renew_every": 0.05, "poll_interval": 0.05, "concurrency": 2}
        async with (
            Worker(client, jobs.registry, **settings) as first,
            Worker(second_client, jobs.registry, **settings) as second,
        ):
            assert [await jobs.started() for _ in handles] == [1, 1, 1, 1]
            assert first._run is not None
            assert second._run is not None
            here.away = there.away = True
            await until(lambda: here.failed["renew"] and there.failed["renew"])
            await until(lambda: {"renew"} <= first.health().troubles.keys() & second.health().troubles.keys())
            recovery = first._run.recovery  # with fast renewals until here, so that the test is fast
            recovery._renewal = second._run.recovery._renewal = 200.0
            await until(lambda: not here.busy and not there.busy)
            with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
                assert connection.execute("update lease set expires_at = 1").rowcount == 2
            here.away = False
            await until(lambda: "renew" not in first.health().troubles)
            looks = here.calls["take_expired"]
            assert await recovery.reap(()) == 0
            assert here.calls["take_expired"] == looks  # the first is back, and leaves the second's alone
            there.away = False
            await until(lambda: "renew" not in second.health().troubles)
            jobs.gate.set()
            assert {await handle.result(timeout=60) for handle in handles} == {1}
    assert jobs.cancelled == 0
    assert jobs.starts.empty()


async def test_a_reap_that_fails_is_tried_again_and_seen(client: Client, tmp_path: Path, monkeypatch) -> None:
    jobs, faults = Jobs(), Faults(client, monkeypatch)
    lease = await client.store.open_lease("dead", 600)
    handle = await client.enqueue(jobs.quick())
    assert len(await client.store.claim(lease, ["quick"], 1)) == 1
    faults.failing.add("take_expired")
    # The lease's row goes, its job stays: what an operator's DELETE or a restored backup leaves.
    with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
        connection.execute("delete from lease where id = ?", (lease,))
    async with Worker(client, jobs.registry, lease=600, renew_every=0.05, poll_interval=0.05) as worker:
        await until(lambda: "reap" in worker.health().troubles)
        assert (await handle.snapshot()).state is JobState.RUNNING
        faults.failing.clear()
        assert await handle.result(timeout=60) == 2
        await until(lambda: worker.health().ok)
    job = await handle.snapshot()
    assert (job.state, [error.type for error in job.errors]) == (JobState.COMPLETED, ["WorkerLost"])


async def test_many_dead_workers_are_taken_over_one_after_the_other(client: Client, tmp_path: Path) -> None:
    jobs = Jobs()
    handles = await client.enqueue_many([jobs.quick() for _ in range(6)])
    for number in range(6):
        lease = await client.store.open_lease(f"dead {number}", 600)
        assert len(await client.store.claim(lease, ["quick"], 1)) == 1
    with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
        connection.execute("update lease set expires_at = 1")
    async with Worker(client, jobs.registry, lease=600, renew_every=0.05, poll_interval=600, concurrency=2):
        assert {await handle.result(timeout=60) for handle in handles} == {2}
