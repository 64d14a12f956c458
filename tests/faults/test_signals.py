"""Workers that are killed and frozen: real processes, real signals."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.scene import FIRST_ON_POSTGRES, FIRST_ON_SQLITE
from tests.processes import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

PATIENT = {"lease": "12s", "renew_every": "1s"}
"""Settings of a worker that must not lose its own lease on a slow machine. It looks for lost jobs every third of it."""


# -- SIGKILL ----------------------------------------------------------------------------------------------------------


async def killed_at_random(scene: Scene, *, jobs: int, kills: int, seed: int) -> None:
    """Three workers, one of which is killed each time that some more jobs have been started, and started again."""
    chance = random.Random(seed)
    async with scene.client() as client:
        handles = await client.enqueue_many([app.nap(chance.uniform(0, 0.1)) for _ in range(jobs)])
        workers = [scene.worker() for _ in range(3)]
        for number in range(1, kills + 1):
            await scene.started(number * jobs // (kills + 2))
            worker = chance.choice(workers)
            scene.kill(worker)
            worker.start()
        finished = await scene.finished(handles)
    assert {job.state for job in finished} == {JobState.COMPLETED}
    await scene.check(finished)


@pytest.mark.parametrize("seed", [1])
async def test_workers_killed_at_random_lose_and_double_nothing(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, jobs=200, kills=5, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 105))
async def test_workers_killed_at_random_for_long(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, jobs=2000, kills=40, seed=seed)


@FIRST_ON_SQLITE
@pytest.mark.parametrize("tidied", [False, True], ids=["", "lease-row-deleted"])
async def test_jobs_of_a_killed_worker_run_again(scene: Scene, tidied: bool) -> None:
    gate = scene.gate()
    async with scene.client() as client:
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(4)])
        first = scene.worker()
        await scene.started(4)
        scene.kill(first)
        if tidied:
            scene.forget_leases()
        scene.worker(**PATIENT)
        await scene.started(8)
        gate.touch()
        jobs = await scene.finished(handles)
    assert [(job.state, job.attempt, len(job.errors)) for job in jobs] == [(JobState.COMPLETED, 2, 1)] * 4
    assert {job.errors[0].type for job in jobs} == {"WorkerLost"}
    await scene.check(jobs)


@FIRST_ON_POSTGRES
async def test_a_job_that_kills_its_worker_fails_after_its_attempts(scene: Scene) -> None:
    async with scene.client() as client:
        handle = await client.enqueue(app.die())
        worker = scene.worker()
        for _ in range(2):
            await worker.exit_code()
            scene.hit.add(worker.pid)
            worker.start()
        (job,) = await scene.finished([handle])
    assert (job.state, job.attempt) == (JobState.FAILED, 2)
    assert [error.type for error in job.errors] == ["WorkerLost"] * 2
    assert scene.ledger.count("start") == 2
    await scene.check([job])


# -- SIGSTOP ----------------------------------------------------------------------------------------------------------


async def test_a_frozen_worker_is_refused_when_it_wakes_up(scene: Scene) -> None:
    """Its lease ends, another runs its jobs to their ends; then it returns, returns in a thread, raises and reschedules,
    and nothing changes."""
    gate = scene.gate()
    async with scene.client() as client:
        kinds = (app.until_exists, app.thread_until_exists, app.raise_when_exists, app.reschedule_when_exists)
        handles = await client.enqueue_many([kind(str(gate)) for kind in kinds])
        frozen = scene.worker()
        await scene.started(4)
        await scene.freeze(frozen)
        other = scene.worker(**PATIENT)
        await scene.started(8)
        gate.touch()
        jobs = await scene.finished(handles)
        assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 2, other.pid)}
        frozen.cont()
        await frozen.wait_for(r"(?i)lost|no longer")
        scene.kill(other)
        after = await scene.finished([await client.enqueue(app.nap(0)) for _ in range(3)])
        assert {each.output["pid"] for each in after} == {frozen.pid}
        assert [await handle.snapshot() for handle in handles] == jobs
    await scene.check([*jobs, *after])


@FIRST_ON_SQLITE
async def test_a_frozen_worker_stops_the_attempt_that_it_lost(scene: Scene) -> None:
    """It wakes up while the other one still runs the job."""
    gate = scene.gate()
    async with scene.client() as client:
        handle = await client.enqueue(app.until_exists(str(gate)))
        frozen = scene.worker()
        await scene.started(1)
        await scene.freeze(frozen)
        other = scene.worker(**PATIENT)
        await scene.started(2)
        frozen.cont()
        await until(lambda: scene.ledger.count("cancelled") == 1, "the lost attempt's end", story=scene.story)
        assert scene.ledger.entries("cancelled")[0].pid == frozen.pid
        gate.touch()
        (job,) = await scene.finished([handle])
        assert (job.state, job.attempt, job.output["pid"]) == (JobState.COMPLETED, 2, other.pid)
    await scene.check([job])
