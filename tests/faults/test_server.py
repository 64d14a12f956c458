"""PostgreSQL restarts, ends connections, refuses writes and is away, while workers are at it."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from aioqueue import JobState
from aioqueue.errors import StoreUnavailable
from tests.faults import app
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue import Client, JobHandle
    from tests.faults.scene import Scene
    from tests.postgres_server import Server

pytestmark = pytest.mark.anyio

LISTENERS = "(query ilike 'listen %' or query = 'SELECT 1')"


async def disturbed(scene: Scene, disturb: Callable[[int], object], *, jobs: int, times: int) -> None:
    """Two workers work off a number of jobs, and something happens each time that some more have been started.

    A lease is longer than the disturbances here, so that no attempt is lost to them.
    """
    async with scene.client() as client:
        handles = await client.enqueue_many([app.nap(0.01 * (number % 7)) for number in range(jobs)])
        for _ in range(2):
            scene.worker(lease="60s", renew_every="1s")
        for number in range(1, times + 1):
            await scene.started(number * jobs // (times + 1))
            disturb(number)
        finished = await scene.finished(handles)
    assert {(job.state, job.attempt) for job in finished} == {(JobState.COMPLETED, 1)}
    assert all(worker.alive for worker in scene.workers)
    await scene.check(finished)


async def test_restarts_under_load(postgres_scene: Scene, own_postgres: Server) -> None:
    await disturbed(postgres_scene, lambda number: own_postgres.restart(immediate=number % 2 == 0), jobs=120, times=2)


async def test_every_backend_is_terminated_under_load(postgres_scene: Scene, own_postgres: Server) -> None:
    await disturbed(postgres_scene, lambda _: own_postgres.terminate_backends(), jobs=120, times=4)


@pytest.mark.soak
async def test_many_restarts_under_load(postgres_scene: Scene, own_postgres: Server) -> None:
    await disturbed(postgres_scene, lambda number: own_postgres.restart(immediate=number % 2 == 0), jobs=3000, times=20)


@pytest.mark.soak
async def test_restarts_for_three_minutes(postgres_scene: Scene, own_postgres: Server) -> None:
    """Every 5 to 40 seconds, while jobs are enqueued, run and finished without a pause."""
    scene, chance = postgres_scene, random.Random(4)
    handles: list[JobHandle[app.Told]] = []
    stopped = anyio.Event()

    async def enqueue(client: Client) -> None:
        while not stopped.is_set():
            call = app.nap(chance.uniform(0, 0.2))
            while True:
                with suppress(StoreUnavailable):  # the same call again, until it's known to be there
                    handles.append(await client.enqueue(call))
                    break
                await anyio.sleep(0.2)
            await anyio.sleep(0.05)

    async with scene.client() as client:
        for _ in range(2):
            scene.worker(lease="60s", renew_every="1s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enqueue, client)
            deadline = anyio.current_time() + 180
            while anyio.current_time() < deadline:
                await anyio.sleep(chance.uniform(5, 40))
                await anyio.to_thread.run_sync(lambda: own_postgres.restart(immediate=chance.random() < 0.5))
            stopped.set()
        jobs = await scene.finished(handles)
    assert len({job.id for job in jobs}) == len(jobs) > 200
    assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
    assert scene.ledger.count("start") == len(jobs)
    assert all(worker.alive for worker in scene.workers)
    await scene.check(jobs)


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_a_listener_that_was_cut_off_listens_again(postgres_scene: Scene, own_postgres: Server, times: int) -> None:
    """Polling is out of the question: what is enqueued in the gap, and after it, is found by the catch-up and by notes."""
    scene = postgres_scene

    def listening() -> int:
        return len(own_postgres.execute(f"select 1 from pg_stat_activity where {LISTENERS}"))

    jobs = []
    async with scene.client() as client:
        scene.worker(poll_interval="1h", lease="600s")
        jobs += await scene.finished([await client.enqueue(app.nap(0))])
        for _ in range(times):
            own_postgres.terminate_backends(LISTENERS)
            in_the_gap = [await client.enqueue(app.nap(0)) for _ in range(3)]
            jobs += await scene.finished(in_the_gap)
            await until(lambda: listening() == 2, "the worker's listener and the client's", story=scene.story)
            jobs += await scene.finished([await client.enqueue(app.nap(0))])
    assert {job.attempt for job in jobs} == {1}
    await scene.check(jobs)


@pytest.mark.parametrize("seconds", [0, pytest.param(20, marks=pytest.mark.soak)])
async def test_a_read_only_server_costs_no_attempt(postgres_scene: Scene, own_postgres: Server, seconds: int) -> None:
    scene, gate = postgres_scene, postgres_scene.gate()
    async with scene.client() as client:
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        worker = scene.worker(lease="600s", renew_every="1s")
        await scene.started(3)
        own_postgres.configure(default_transaction_read_only="on")
        gate.touch()
        await scene.ended(3)
        await worker.wait_for("read-only|25006")
        await anyio.sleep(seconds)
        own_postgres.configure(default_transaction_read_only="off")
        jobs = await scene.finished(handles)
    assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
    assert worker.alive
    await scene.check(jobs)


@pytest.mark.parametrize("seconds", [0, pytest.param(60, marks=pytest.mark.soak)])
async def test_a_server_that_is_away_is_waited_for(postgres_scene: Scene, own_postgres: Server, seconds: int) -> None:
    """While jobs run that end meanwhile, while others are waiting, by an idle worker, and at a worker's start."""
    scene, gate = postgres_scene, postgres_scene.gate()
    async with scene.client() as client:
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(2)])
        handles += await client.enqueue_many([app.nap(0) for _ in range(20)])
    running = scene.worker(lease="600s", renew_every="1s", concurrency="2")
    await scene.started(2)
    idle = scene.worker("--types", "fail_twice", lease="600s", renew_every="1s")
    await idle.wait_for("slots for fail_twice")
    own_postgres.stop()
    gate.touch()
    await scene.ended(2)
    starting = scene.worker(lease="600s", renew_every="1s")
    await starting.wait_for("(?i)reach|connect|refused")
    await anyio.sleep(seconds)
    own_postgres.start()
    async with scene.client() as client:
        jobs = await scene.finished([client.handle(app.nap, handle.id) for handle in handles])
        (other,) = await scene.finished([await client.enqueue(app.fail_twice())])
    assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
    assert (other.state, other.attempt) == (JobState.COMPLETED, 3)
    assert all(worker.alive for worker in (running, idle, starting))
    await scene.check([*jobs, other])
