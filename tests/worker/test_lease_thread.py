"""The thread that renews the lease: blocked event loops, an unreachable database, a lease that is gone."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, JobState, StoreUnavailable
from aioqueue.worker import Worker
from tests.worker.faults import Faults, Jobs, until
from tests.worker.insides import parts
from tests.worker.lease_thread_bench import Bench

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio


async def test_a_loop_blocked_for_five_minutes_lets_the_lease_lapse(monkeypatch, caplog) -> None:
    bench = Bench(monkeypatch)
    bench.run(1000)
    assert bench.session.times == pytest.approx([20.0 * each for each in range(1, 15)], abs=1.5)
    assert bench.session.closed
    lines = [record.getMessage() for record in caplog.records]
    assert "blocked for over 5.0 s" in lines[0]
    assert "still renewed" in lines[0]
    assert "bench.run" in lines[0]  # the code that blocks it is named
    assert not any("\n" in line for line in lines)
    lapsed = [line for line in lines if "left to lapse" in line]
    assert "blocked for over 300.0 s" in lapsed[0]
    assert len(lines) == 2
    assert bench.thread.ended.done() is False  # its callbacks wait for the loop, as everything does
    await bench.thread.ended


async def test_a_loop_that_answers_again_renews_at_once(monkeypatch) -> None:
    bench = Bench(monkeypatch)
    bench.moments[400.0] = bench.watchdog._answered
    bench.run(450)
    assert [each for each in bench.session.times if each >= 300] == pytest.approx([400, 420, 440], abs=1.5)


async def test_an_idle_worker_is_not_watched(monkeypatch, caplog) -> None:
    """A program may block its own loop while nothing of the worker's runs; there is nothing to give up."""
    bench = Bench(monkeypatch, holds=False)
    bench.run(1000)
    assert len(bench.session.times) == 49
    assert caplog.records == []


async def test_failing_renewals_are_tried_again_with_backoff(monkeypatch) -> None:
    bench = Bench(monkeypatch, holds=False)
    bench.session.error = StoreUnavailable("away")

    def repaired() -> None:
        bench.session.error = None

    bench.moments[60.0] = repaired
    bench.run(120)
    times = bench.session.times
    failing = [each for each in times if each < 60]
    waits = [later - earlier for earlier, later in pairwise(failing)]
    assert failing[0] == pytest.approx(20)
    assert waits[0] <= 0.1
    assert all(wait <= 3.0 + 1e-6 for wait in waits)
    assert len(waits) < 40
    working = [each for each in times if each >= 60]
    assert working[0] < 63 + 1
    assert working[1] - working[0] == pytest.approx(20)
    await asyncio.sleep(0)
    assert len(bench.errors) == len(failing)


async def test_a_lease_ends_by_what_was_known_before_its_renewal_was_sent(monkeypatch) -> None:
    """Whatever the answer takes on its way: others count from when the database got the question."""
    bench = Bench(monkeypatch, holds=False)
    bench.session.takes = 9.0
    bench.run(25)
    assert bench.session.times == pytest.approx([20])
    assert bench.lease.ends - 1000 == pytest.approx(80)


async def test_a_silent_line_costs_one_try(monkeypatch) -> None:
    """With the defaults: it's given up after a sixth of the lease, and the next try has half of the lease left."""
    bench = Bench(monkeypatch, holds=False)
    bench.session.error, bench.session.takes = StoreUnavailable("silence"), 10.0

    def repaired() -> None:
        bench.session.error, bench.session.takes = None, 0.0

    bench.moments[30.0] = repaired
    bench.run(35)
    assert len(bench.session.times) == 2
    assert bench.session.times[1] == pytest.approx(30, abs=0.2)
    assert bench.lease.ends - 1000 == pytest.approx(90, abs=0.2)
    assert not bench.lease.failing


async def test_failing_renewals_are_told_at_once_and_loudly_well_before_the_end(monkeypatch, caplog) -> None:
    bench = Bench(monkeypatch, holds=False)
    bench.session.error = StoreUnavailable("away\nERROR forged")
    bench.run(59)
    first, alarm = [record for record in caplog.records if "lease 7" in record.getMessage()]
    assert (first.levelname, alarm.levelname) == ("WARNING", "ERROR")
    assert "ends in 40.0 s" in first.getMessage()
    assert 15 < float(alarm.getMessage().partition("ends in ")[2].partition(" s")[0]) < 20
    assert "no more jobs are claimed" in alarm.getMessage()
    assert not any("\n" in record.getMessage() for record in caplog.records)
    assert not bench.lease.can_be_answered_for(bench.clock.now)


async def test_what_is_claimed_must_be_answered_for(monkeypatch) -> None:
    bench = Bench(monkeypatch, holds=False)
    lease, now = bench.lease, bench.clock.now
    assert lease.can_be_answered_for(now + 59)  # a renewal is due, and nothing says that it will fail
    assert not lease.can_be_answered_for(now + 60)
    lease.failing = True
    assert lease.can_be_answered_for(now + 39)
    assert not lease.can_be_answered_for(now + 41)


async def test_a_try_during_which_the_process_stood_still_is_repeated_before_it_counts(monkeypatch, caplog) -> None:
    """As after SIGSTOP and SIGCONT: its time is over, and the answer may lie there. A machine that's always slow fails."""
    bench = Bench(monkeypatch, holds=False)
    bench.session.error, bench.session.takes = StoreUnavailable("its time is over"), 100.0

    def goes_on() -> None:
        bench.session.error, bench.session.takes = None, 0.0

    bench.moments[120.0] = goes_on
    bench.run(119)
    assert bench.session.times == pytest.approx([20, 120], abs=0.1)
    await asyncio.sleep(0)
    assert len(bench.errors) == 1  # of the second, which took as long
    assert bench.lease.failing
    assert len(caplog.records) == 1


async def test_each_lease_is_renewed_at_its_own_third(monkeypatch) -> None:
    bench = Bench(monkeypatch, holds=False, leases=(60.0, 6.0, 600.0))
    bench.run(210)
    by_lease = {lease: [at for at, each in zip(bench.session.times, bench.session.leases, strict=True) if each == lease]
                for lease in (7, 8, 9)}  # fmt: skip
    assert by_lease[7] == pytest.approx([20.0 * each for each in range(1, 11)], abs=1.1)
    assert len(by_lease[8]) == pytest.approx(105, abs=2)
    assert by_lease[9] == pytest.approx([200], abs=1.1)


async def test_of_several_leases_the_one_that_ends_first_is_tried_first(monkeypatch) -> None:
    """Also while each try takes its whole time: it has two of them before it's over, and one of another lease between them."""
    bench = Bench(monkeypatch, holds=False, leases=(60.0, 6.0))
    for lease in bench.leases:
        lease.due = 1002.0
    bench.session.error, bench.session.takes = StoreUnavailable("silence"), 1.0
    bench.run(6)
    assert bench.session.leases[:3] == [8, 7, 8]
    assert bench.session.times[2] + 1.0 < 6


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("odd")])
async def test_the_thread_outlives_whatever_its_session_raises(monkeypatch, error: BaseException) -> None:
    """A user's `connect=` runs there."""
    bench = Bench(monkeypatch, holds=False)
    bench.session.error = error
    bench.moments[30.0] = lambda: setattr(bench.session, "error", None)
    bench.run(60)
    assert bench.lease.ends - 1000 > 80
    await asyncio.sleep(0)
    assert bench.errors[0] is error


async def test_the_thread_outlives_what_goes_wrong_in_it(monkeypatch, caplog) -> None:
    bench = Bench(monkeypatch)
    look, broken = bench.watchdog.look, 2

    def fails(tell: Any) -> float:
        nonlocal broken
        if broken:
            broken -= 1
            raise RuntimeError("a frame that can't be formatted")
        return look(tell)

    monkeypatch.setattr(bench.watchdog, "look", fails)
    bench.run(30)
    assert bench.session.times == pytest.approx([20], abs=1.1)
    assert len([record for record in caplog.records if "thread has failed" in record.getMessage()]) == 2


# -- with a worker ----------------------------------------------------------------------------------------------------


async def test_renewals_that_fail_for_a_while_lose_nothing(client: Client, jobs: Jobs, faults: Faults) -> None:
    handle = await client.enqueue(jobs.held())
    async with Worker(client, jobs.registry, lease=600, renew_every=0.02) as worker:
        assert await jobs.started() == 1
        faults.failing.add("renew")
        await until(lambda: faults.failed["renew"] >= 3)
        await until(lambda: "renew" in worker.health().troubles)
        assert "database is away" in worker.health().troubles["renew"]
        assert not worker.health().ok
        faults.failing.clear()
        await until(lambda: worker.health().ok)
        jobs.gate.set()
        assert await handle.result(timeout=60) == 1
    assert jobs.cancelled == 0


async def test_a_lease_that_lapsed_unseen_is_renewed_late(client: Client, jobs: Jobs, faults: Faults, tmp_path: Path) -> None:
    """As long as nobody took it: the row is still there."""
    handle = await client.enqueue(jobs.held())
    async with Worker(client, jobs.registry, lease=600, renew_every=0.02) as worker:
        assert await jobs.started() == 1
        faults.failing.add("renew")
        await until(lambda: "renew" in worker.health().troubles)
        with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
            assert connection.execute("update lease set expires_at = 1").rowcount == 1
        faults.failing.clear()
        await until(lambda: worker.health().ok)
        jobs.gate.set()
        assert await handle.result(timeout=60) == 1
    assert jobs.cancelled == 0


async def test_a_lease_whose_row_is_gone_loses_its_jobs_and_another_is_opened(
    client: Client, jobs: Jobs, tmp_path: Path, caplog
) -> None:
    handles = await client.enqueue_many([jobs.held(), jobs.held()])
    async with Worker(client, jobs.registry, lease=600, renew_every=0.05, poll_interval=0.05) as worker:
        assert [await jobs.started(), await jobs.started()] == [1, 1]
        (first,) = parts(worker).leases.own
        with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
            connection.execute("delete from lease")
        assert [await jobs.started(), await jobs.started()] == [2, 2]
        assert first not in parts(worker).leases.own
        assert jobs.cancelled == 2
        jobs.gate.set()
        assert {await handle.result(timeout=60) for handle in handles} == {2}
        await until(lambda: worker.health().ok)
    for handle in handles:
        job = await handle.snapshot()
        assert (job.state, [error.type for error in job.errors]) == (JobState.COMPLETED, ["WorkerLost"])
    lost = [record for record in caplog.records if "taken_by_another_worker" in record.getMessage()]
    assert {record.__dict__["job_id"] for record in lost} == {str(handle.id) for handle in handles}
