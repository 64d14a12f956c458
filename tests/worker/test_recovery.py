"""Who may take a dead worker's jobs, and when: not right after an outage, nor when a clock was set."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fixed, JobState, LeaseLost, Retry, RowRejected, StoreUnavailable
from aioqueue.vocabulary._job import LostReason, SettlementKind
from aioqueue.worker import Worker
from tests.worker.faults import Faults, Jobs, until
from tests.worker.insides import parts
from tests.worker.recovery_bench import Bench, orphan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


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
    assert bench.recovery.due_in() == pytest.approx(20)
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
    assert bench.recovery.due_in() <= 0  # where one was, there may be more


async def test_two_that_take_the_same_jobs_count_only_what_they_wrote(bench: Bench) -> None:
    bench.store.left = [[orphan(), orphan()]]
    bench.store.lost = LostReason.TAKEN
    await bench.quiet_for(21)
    assert await bench.recovery.reap(()) == 0


# -- when the leases of others run out --------------------------------------------------------------------------------


async def test_a_look_is_made_just_after_the_first_lease_of_somebody_else_has_run_out(bench: Bench) -> None:
    await bench.quiet_for(21)
    assert await bench.looked()
    bench.recovery.expect(7.0)
    assert 7.0 <= bench.recovery.due_in() <= 7.5
    await bench.quiet_for(6.9)
    assert not await bench.looked()
    await bench.quiet_for(0.7)
    bench.recovery.expect(0.0)  # asked again, it's still so
    assert await bench.looked()


async def test_a_lease_that_was_renewed_is_not_looked_at(bench: Bench) -> None:
    await bench.quiet_for(21)
    assert await bench.looked()
    bench.recovery.expect(7.0)
    await bench.quiet_for(7.6)
    bench.recovery.expect(14.0)
    assert not await bench.looked()
    bench.recovery.expect(None)
    assert bench.recovery.due_in() == pytest.approx(20 - 7.6)  # the look that is made whatever the store tells


async def test_workers_that_hear_of_it_at_the_same_moment_look_one_after_the_other(monkeypatch) -> None:
    """A notification wakes all of them."""
    waits = set[float]()
    for _ in range(20):
        bench = Bench(monkeypatch)
        await bench.quiet_for(21)
        assert await bench.looked()
        bench.recovery.expect(0.0)
        waits.add(round(bench.recovery.due_in(), 3))
        assert 0 <= bench.recovery.due_in() <= 0.5
        for _ in range(5):  # being woken again and again puts it off no further
            bench.clock.now += 0.1
            bench.recovery.expect(0.0)
        assert await bench.looked()
    assert len(waits) > 10


async def test_after_a_lease_that_held_nothing_the_store_is_asked_again_at_once(bench: Bench) -> None:
    """There may be many of them, and jobs behind them. Only what is never settled makes looks rarer."""
    await bench.quiet_for(21)
    bench.recovery.expect(0.0)
    looks, began = bench.store.taken, bench.clock.now
    while bench.store.taken < looks + 10:
        bench.recovery.expect(0.0)
        await bench.recovery.reap(())
        await bench.quiet_for(0.05)
    assert bench.clock.now - began < 2
    bench.recovery.expect(None)
    while bench.store.taken < looks + 100:
        bench.recovery.expect(0.0)
        await bench.recovery.reap(())
        await bench.quiet_for(0.05)
    assert bench.clock.now - began > 40


async def test_what_protects_the_leases_of_others_counts_then_too(bench: Bench) -> None:
    await bench.quiet_for(21)
    bench.recovery.expect(1.0)
    bench.recovery.disturbed()
    await bench.quiet_for(5)
    bench.recovery.expect(0.0)
    assert not await bench.looked()
    await bench.quiet_for(15.5)
    assert await bench.looked()


async def test_a_worker_that_has_not_renewed_for_long_looks_at_no_others(bench: Bench) -> None:
    """It was stopped, or cut off, and its loop is the first to go on: before the lease's thread has renewed anything."""
    await bench.quiet_for(100)
    bench.clock.now += 300
    assert not await bench.looked()
    bench.recovery.in_contact()
    await bench.quiet_for(19)
    assert not await bench.looked()
    await bench.quiet_for(2)
    assert await bench.looked()


@pytest.mark.parametrize("error", [RuntimeError("an odd row"), RowRejected("an odd row")])
async def test_an_error_that_comes_from_the_database_is_no_outage(bench: Bench, error: Exception) -> None:
    await bench.quiet_for(21)
    bench.recovery.verb_failed(error)
    assert await bench.looked()


@pytest.mark.parametrize("error", [StoreUnavailable("no connection"), LeaseLost("over")])
async def test_an_outage_that_only_one_verb_has_puts_looks_off_for_a_while_at_most(bench: Bench, error: Exception) -> None:
    """Renewals go well: it's trouble of its own, such as a pool that is never free."""
    await bench.quiet_for(100)
    bench.recovery.verb_failed(error)
    assert not await bench.looked()
    looks, began = bench.store.taken, bench.clock.now
    while bench.clock.now < began + 1200:
        bench.recovery.verb_failed(error)
        bench.recovery.expect(0.0)
        await bench.recovery.reap(())
        await bench.quiet_for(1)
    assert bench.store.taken - looks > 200


# -- with workers -----------------------------------------------------------------------------------------------------


async def test_after_an_outage_longer_than_the_lease_living_workers_keep_their_jobs(
    client: Client, url: str, tmp_path: Path, monkeypatch
) -> None:
    """All leases have run out when the database is back, and whoever comes first would take the others'."""
    jobs = Jobs()
    handles = await client.enqueue_many([jobs.held() for _ in range(4)])
    async with Client(url) as second_client:
        here, there = Faults(client, monkeypatch), Faults(second_client, monkeypatch)
        settings: dict[str, Any] = {"lease": 600, "renew_every": 200, "poll_interval": 0.05, "concurrency": 2}
        async with (
            Worker(client, jobs.registry, **settings) as first,
            Worker(second_client, jobs.registry, **settings) as second,
        ):
            assert [await jobs.started() for _ in handles] == [1, 1, 1, 1]
            here.away = there.away = True
            for worker in (first, second):
                parts(worker).leases.renew_now()
            await until(lambda: here.failed["renew"] and there.failed["renew"])
            await until(lambda: {"renew"} <= first.health().troubles.keys() & second.health().troubles.keys())
            await until(lambda: not here.busy and not there.busy)
            with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection, connection:
                assert connection.execute("update lease set expires_at = 1").rowcount == 2
            here.away = False
            await until(lambda: "renew" not in first.health().troubles)
            looks = here.calls["take_expired"]
            assert await parts(first).recovery.reap(()) == 0
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
