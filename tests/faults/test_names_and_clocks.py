"""Workers whose names are the same, and workers whose clocks are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.clock import set_clock
from tests.faults.scene import FIRST_ON_POSTGRES
from tests.faults.test_signals import PATIENT

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue import Client, JobHandle
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

QUARTER = 15 * 60.0


@FIRST_ON_POSTGRES
async def test_two_workers_of_one_name_one_of_which_is_killed_and_comes_back(scene: Scene) -> None:
    """A name is for people: each has a lease of its own, and a new process has no claim on what an old one held."""
    gate = scene.gate()
    async with scene.client() as client:
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(2)])
        killed = scene.worker("--name", "twin", concurrency="2")
        await scene.started(2)
        others = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(2)])
        twin = scene.worker("--name", "twin", concurrency="4", **PATIENT)
        await scene.started(4)
        scene.kill(killed)
        again = scene.worker("--name", "twin", concurrency="2", **PATIENT)
        await scene.started(6)
        gate.touch()
        lost, kept = await scene.finished(handles), await scene.finished(others)
    assert [(job.state, job.attempt, job.errors[0].type) for job in lost] == [(JobState.COMPLETED, 2, "WorkerLost")] * 2
    assert [(job.state, job.attempt, job.output["pid"]) for job in kept] == [(JobState.COMPLETED, 1, twin.pid)] * 2
    assert {job.output["pid"] for job in lost} <= {twin.pid, again.pid}
    await scene.check([*lost, *kept])


async def held_and_lost(scene: Scene, client: Client, fast: Path, slow: Path) -> list[JobHandle[app.Told]]:
    """Two workers hold four jobs, with those clocks; a third one's job is lost. Returns the jobs, the lost one first."""
    gate = str(scene.gate())
    handles = [await client.enqueue(app.until_exists(gate))]
    third = scene.worker(clock=slow, concurrency="1")
    await scene.started(1)
    handles += await client.enqueue_many([app.until_exists(gate) for _ in range(4)])
    for clock in (fast, slow):
        scene.worker(clock=clock, concurrency="3", **PATIENT)
    await scene.started(5)
    scene.kill(third)
    return handles


async def test_clocks_half_an_hour_apart(scene_on_postgres: Scene) -> None:
    """And then set, to the opposite: leases and delays are the database's."""
    scene = scene_on_postgres
    fast, slow = set_clock(scene.gate("fast"), QUARTER), set_clock(scene.gate("slow"), -QUARTER)
    async with scene.client() as client:
        handles = await held_and_lost(scene, client, fast, slow)
        set_clock(fast, -QUARTER)
        set_clock(slow, QUARTER)
        await scene.started(6)  # somebody has looked for what is lost
        delayed = [await client.enqueue(app.nap(0).options(delay=1)) for _ in range(6)]
        never = await client.enqueue(app.nap(0).options(delay=600))
        scene.gate().touch()
        jobs, late = await scene.finished(handles), await scene.finished(delayed)
        assert (await never.snapshot()).state is JobState.SCHEDULED
        assert [(job.state, job.attempt) for job in jobs] == [(JobState.COMPLETED, attempt) for attempt in (2, 1, 1, 1, 1)]
        assert {(job.state, job.attempt) for job in late} == {(JobState.COMPLETED, 1)}
        for job in late:
            assert job.started_at is not None
            assert 1 <= (job.started_at - job.created_at).total_seconds() < 600
    await scene.check([*jobs, *late])


@pytest.mark.parametrize("step", [3600.0, pytest.param(-3600.0, marks=pytest.mark.soak)], ids=["ahead", "back"])
async def test_a_clock_that_is_set_ends_no_lease(scene_on_sqlite: Scene, step: float) -> None:
    """Every worker's clock at once, as on one machine; it's right before that or after it."""
    scene = scene_on_sqlite
    clock = set_clock(scene.gate("clock"), max(0.0, -step))
    async with scene.client() as client:
        handles = await held_and_lost(scene, client, clock, clock)
        set_clock(clock, max(0.0, step))
        await scene.started(6)
        scene.gate().touch()
        jobs = await scene.finished(handles)
    assert [(job.state, job.attempt) for job in jobs] == [(JobState.COMPLETED, attempt) for attempt in (2, 1, 1, 1, 1)]
    assert scene.ledger.count("start") == 6
    for job in jobs[1:]:  # the workers' clock is what the times are by
        assert job.started_at is not None
        assert job.finished_at is not None
        earlier, later = (job.started_at, job.finished_at) if step > 0 else (job.created_at, job.started_at)
        assert (later - earlier).total_seconds() > 3000
    await scene.check(jobs)
