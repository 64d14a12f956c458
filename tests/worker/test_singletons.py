"""Workers of which one works at a time: the name is on the lease, on each store."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import ConfigurationError, JobState, Registry, SingletonHeld, Worker
from aioqueue.worker._signals import exit_code
from tests.worker.faults import Faults, Jobs, ended, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import Client

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True
NAME = "reports"
LONG = 600.0


async def held_by(client: Client, worker: str, *, seconds: float = LONG) -> int:
    """Have another worker work under the name, which never renews its lease."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.store.open_lease(worker, seconds, singleton=NAME)
            except SingletonHeld:  # somebody was faster
                await asyncio.sleep(0)


async def lose_lease(client: Client, worker: str) -> None:
    """End a worker's lease, as whoever takes it over does."""
    (lease,) = [each for each in await client.leases() if each.worker == worker]
    await client.store.release(lease.id, [], end=True)


def alone(client: Client, registry: Registry, **settings: Any) -> Worker:
    return Worker(client, registry, singleton=NAME, **settings)


# -- while another has the name -------------------------------------------------------------------------------------------


async def test_a_second_one_is_told_who_works_and_runs_nothing(client: Client, jobs: Jobs) -> None:
    handle = await client.enqueue(jobs.quick())
    await held_by(client, "first")
    with pytest.raises(SingletonHeld, match="first") as caught:
        await alone(client, jobs.registry).run()
    assert (caught.value.name, caught.value.worker) == (NAME, "first")
    assert 0 < caught.value.ends_in <= LONG
    with pytest.raises(SingletonHeld):
        await alone(client, jobs.registry).run_once()
    with pytest.raises(SingletonHeld):
        async with alone(client, jobs.registry):
            raise AssertionError
    assert (await handle.snapshot()).state is JobState.READY
    await Worker(client, jobs.registry, singleton="another name").run_once()
    assert await handle.result(timeout=60) == 1


async def test_one_at_a_time_also_one_after_the_other(client: Client, jobs: Jobs) -> None:
    for _ in range(2):
        await client.enqueue(jobs.quick())
        assert (await alone(client, jobs.registry).run_once()).completed == 1


async def test_leases_are_known_by_the_name(client: Client, jobs: Jobs) -> None:
    async with alone(client, jobs.registry, name="first"), Worker(client, jobs.registry, name="second"):
        assert {each.worker: each.singleton for each in await client.leases()} == {"first": NAME, "second": None}


# -- standing by ----------------------------------------------------------------------------------------------------------


async def test_who_stands_by_is_ready_and_says_what_it_waits_for(client: Client, jobs: Jobs) -> None:
    await held_by(client, "first")
    async with alone(client, jobs.registry, standby=True, poll_interval=LONG) as worker:
        health = worker.health()
        assert health.standing_by == "standing by for reports (held by first)"
        assert health.standing_by in health.notes
        assert (health.ready, health.ok, health.lease_valid, health.busy) == (True, True, False, 0)
        assert worker._run is not None
        readiness = worker._run.view.readiness()  # which anybody may read
        assert (readiness.reasons, readiness.notes) == ((), (health.standing_by,))


async def test_a_stop_ends_the_standing_by_at_once(client: Client, jobs: Jobs) -> None:
    await held_by(client, "first")
    worker = alone(client, jobs.registry, standby=True, poll_interval=LONG)
    task = asyncio.create_task(worker.run())
    await until(lambda: worker.health().standing_by)
    worker.stop()
    await ended(task, within=10)
    assert [each.worker for each in await client.leases()] == ["first"]


async def test_a_cancel_too(client: Client, jobs: Jobs) -> None:
    await held_by(client, "first")
    worker = alone(client, jobs.registry, standby=True, poll_interval=LONG)
    task = asyncio.create_task(worker.run())
    await until(lambda: worker.health().standing_by)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task, within=10)


async def test_who_stands_by_takes_over_when_the_other_ends(client: Client, jobs: Jobs) -> None:
    first = await held_by(client, "first")
    handle = await client.enqueue(jobs.quick())
    async with alone(client, jobs.registry, standby=True, poll_interval=0.1) as worker:
        await client.store.release(first, [], end=True)
        assert await handle.result(timeout=60) == 1
        assert worker.health().standing_by is None


async def test_who_stands_by_takes_over_when_the_others_lease_runs_out_and_runs_its_jobs(client: Client, jobs: Jobs) -> None:
    """However often it polls: it knows until when the other has the name."""
    handle = await client.enqueue(jobs.quick())
    first, over = await held_by(client, "first", seconds=1.0), time.monotonic() + 1.0
    assert len(await client.store.claim(first, ["quick"], 1)) == 1
    async with alone(client, jobs.registry, standby=True, poll_interval=LONG, lease=1) as worker:
        await until(lambda: worker.health().standing_by is None)
        assert over - 0.2 < time.monotonic() < over + 1.0
        assert await handle.result(timeout=60) == 2


async def test_standing_by_costs_a_statement_a_poll_whatever_else_happens(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for one that has had the name, and whose main loop is woken by each job that becomes due."""
    faults = Faults(client, monkeypatch)
    async with alone(client, jobs.registry, name="second", standby=True, poll_interval=LONG, lease=1) as worker:
        await lose_lease(client, "second")
        await held_by(client, "first")
        await until(lambda: worker.health().standing_by)
        before = faults.calls["open_lease"]
        for _ in range(20):
            await client.enqueue(jobs.quick())
        assert worker.health().standing_by
        assert faults.calls["open_lease"] == before


# -- waiting for one lease ------------------------------------------------------------------------------------------------


async def test_who_waits_has_the_name_of_one_that_has_died(client: Client, jobs: Jobs) -> None:
    await held_by(client, "first", seconds=1.0)
    await client.enqueue(jobs.quick())
    assert (await alone(client, jobs.registry, wait=True, poll_interval=LONG).run_once()).completed == 1


async def test_who_waits_for_one_that_lives_gives_up_after_a_lease(client: Client, jobs: Jobs) -> None:
    async with alone(client, jobs.registry, name="first", lease=1):
        began = time.monotonic()
        with pytest.raises(SingletonHeld, match="first"):
            await ended(asyncio.create_task(alone(client, jobs.registry, wait=True, lease=1.5).run()))
        assert 1.5 <= time.monotonic() - began < 10


# -- having it --------------------------------------------------------------------------------------------------------------


async def test_the_name_is_kept_until_the_bodies_have_ended(client: Client, jobs: Jobs) -> None:
    handle = await client.enqueue(jobs.held())
    first = alone(client, jobs.registry, name="first", grace=60)
    running = asyncio.create_task(first.run())
    assert await jobs.started() == 1
    async with alone(client, jobs.registry, standby=True, poll_interval=0.02) as second:
        first.stop()
        await until(lambda: first.health().stopping)
        for _ in range(3):
            with pytest.raises(SingletonHeld):
                await client.store.open_lease("third", LONG, singleton=NAME)
        assert second.health().standing_by == "standing by for reports (held by first)"
        jobs.gate.set()
        await ended(running)
        await until(lambda: second.health().standing_by is None)
    assert await handle.result(timeout=60) == 1


async def test_the_name_is_kept_until_the_resources_are_closed(client: Client) -> None:
    registry, closing, closed = Registry(), asyncio.Event(), asyncio.Event()

    @registry.resource
    async def port() -> AsyncIterator[str]:
        yield "open"
        closing.set()
        await closed.wait()

    @registry.job
    async def send() -> str:
        return await port.get()

    handle = await client.enqueue(send())
    first = alone(client, registry)
    running = asyncio.create_task(first.run())
    assert await handle.result(timeout=60) == "open"
    first.stop()
    await closing.wait()
    for _ in range(20):
        with pytest.raises(SingletonHeld):
            await client.store.open_lease("second", LONG, singleton=NAME)
    closed.set()
    await ended(running)
    await client.store.open_lease("second", LONG, singleton=NAME)


async def test_there_is_one_lease_for_all_types(client: Client) -> None:
    """Whoever loses the name loses all jobs with it: another lease might outlive it."""
    registry = Registry()

    @registry.job(lease=600)
    async def long() -> None: ...

    @registry.job(lease=1)
    async def short() -> None: ...

    async with alone(client, registry):
        (lease,) = await client.leases()
        assert (lease.singleton, lease.types) == (NAME, ("long", "short"))
        assert 1 < lease.ends_in <= 60


async def test_one_that_has_lost_its_lease_opens_another_of_the_name(client: Client, jobs: Jobs) -> None:
    async with alone(client, jobs.registry, name="first", lease=1) as worker:
        (before,) = await client.leases()
        await lose_lease(client, "first")
        handle = await client.enqueue(jobs.held())
        assert await jobs.started() == 1
        (after,) = await client.leases()
        assert (after.singleton, after.worker) == (NAME, "first")
        assert after.id != before.id
        jobs.gate.set()
        assert await handle.result(timeout=60) == 1
        assert worker.health().standing_by is None


async def test_one_that_was_frozen_is_fenced_and_ends(client: Client, jobs: Jobs) -> None:
    """Its lease is gone, and another has the name."""
    await client.enqueue(jobs.held())
    worker = alone(client, jobs.registry, name="first", lease=1)
    running = asyncio.create_task(worker.run())
    assert await jobs.started() == 1
    await lose_lease(client, "first")
    await held_by(client, "second")
    with pytest.raises(SingletonHeld, match="second"):
        await ended(running)
    assert jobs.cancelled == 1


async def test_the_exit_code_of_one_that_skips_isnt_that_of_one_that_has_lost_the_name(client: Client, jobs: Jobs) -> None:
    other = await held_by(client, "second")
    assert await exit_code(alone(client, jobs.registry), once=True) == 0
    assert await exit_code(alone(client, jobs.registry), once=False) == 5
    await client.store.release(other, [], end=True)
    await client.enqueue(jobs.held())
    running = asyncio.create_task(exit_code(alone(client, jobs.registry, name="first", lease=1), once=True))
    assert await jobs.started() == 1
    await lose_lease(client, "first")
    await held_by(client, "second")
    assert await running == 5


async def test_one_that_was_frozen_and_may_wait_stands_by_again(client: Client, jobs: Jobs) -> None:
    handle = await client.enqueue(jobs.held())
    async with alone(client, jobs.registry, name="first", lease=1, standby=True, poll_interval=0.1) as worker:
        assert await jobs.started() == 1
        await lose_lease(client, "first")
        second = await held_by(client, "second")
        await until(lambda: worker.health().standing_by)
        await until(lambda: jobs.cancelled)
        jobs.gate.set()
        await client.store.release(second, [], end=True)
        assert await handle.result(timeout=60)
        assert worker.health().standing_by is None


async def test_a_lease_whose_answer_was_lost_isnt_taken_for_anothers(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name until it runs out, as nobody renews it."""
    faults = Faults(client, monkeypatch)
    faults.after["open_lease"] = 1
    handle = await client.enqueue(jobs.quick())
    async with asyncio.timeout(60):
        async with alone(client, jobs.registry, name="first", lease=1, poll_interval=0.2):
            assert await handle.result(timeout=60) == 1
    assert faults.failed["open_lease"] == 1


async def test_another_error_doesnt_end_the_standing_by(client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(client, monkeypatch)
    first = await held_by(client, "first")
    handle = await client.enqueue(jobs.quick())
    async with alone(client, jobs.registry, standby=True, poll_interval=0.05) as worker:
        faults.failing.add("open_lease")
        await until(lambda: faults.failed["open_lease"] and "claim" in worker.health().troubles)
        assert not worker.health().ready
        faults.failing.clear()
        await until(lambda: worker.health().ready)
        assert worker.health().standing_by
        await client.store.release(first, [], end=True)
        assert await handle.result(timeout=60) == 1


async def test_three_that_stand_by_work_one_after_the_other(client: Client) -> None:
    registry, running, most = Registry(), [0], [0]

    @registry.job
    async def count() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1

    workers = [alone(client, registry, name=f"worker {number}", standby=True, poll_interval=0.02) for number in range(3)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    worked: set[str | None] = set()
    for _ in workers:
        handle = await client.enqueue(count())
        await handle.result(timeout=60)
        worker = next(each for each in workers if each.health().lease_valid)
        assert worker.name not in worked
        worked.add(worker.name)
        worker.stop()
        await ended(tasks[workers.index(worker)])
    assert most == [1]


async def test_a_name_with_once_and_standby_is_refused(client: Client, jobs: Jobs) -> None:
    with pytest.raises(ConfigurationError, match="once"):
        await alone(client, jobs.registry, standby=True).run_once()
