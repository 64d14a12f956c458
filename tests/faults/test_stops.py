"""Workers that are asked to stop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from aioqueue.cli._worker import longest_end
from tests.faults import app
from tests.faults.scene import FIRST_ON_POSTGRES
from tests.faults.test_line import behind_proxy
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aioqueue import JobHandle
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio


@FIRST_ON_POSTGRES
async def test_a_worker_that_is_asked_to_stop_finishes_what_it_runs(scene: Scene) -> None:
    """Longer than its lease; and it begins nothing more."""
    gate = scene.gate()
    async with scene.client() as client:
        running = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(2)])
        worker = scene.worker(concurrency="2", grace="600s")
        await scene.started(2)
        waiting = await client.enqueue_many([app.nap(0) for _ in range(20)])
        worker.terminate()
        await worker.wait_for(r": stopping")
        await until(lambda: lease_renewed_after_a_while(scene), "a lease's time", within=60)
        gate.touch()
        assert await worker.exit_code() == 0
        jobs = await scene.finished(running)
        assert [(job.state, job.attempt) for job in jobs] == [(JobState.COMPLETED, 1)] * 2
        assert {(await handle.snapshot()).state for handle in waiting} == {JobState.READY}
        assert scene.ledger.count("start") == 2
        scene.worker()
        jobs += await scene.finished(waiting)
    assert all(job.attempt == 1 for job in jobs)
    await scene.check(jobs)


def lease_renewed_after_a_while(scene: Scene) -> bool:
    """Whether the running jobs have run for longer than a lease."""
    starts = scene.ledger.entries("start")
    return bool(starts) and scene.age(starts[0]) > 4


@pytest.mark.parametrize("signals", [1, 2])
async def test_what_a_stopping_worker_interrupts_costs_no_attempt(scene: Scene, signals: int) -> None:
    """At the end of the grace, or at the second signal."""
    gate = scene.gate()
    async with scene.client() as client:
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        worker = scene.worker(grace="1s" if signals == 1 else "600s")
        await scene.started(3)
        worker.terminate()
        await worker.wait_for(r": stopping")
        if signals == 2:
            worker.terminate()
        assert await worker.exit_code() >= 0
        assert scene.ledger.count("cancelled") == 3
        jobs = [await handle.snapshot() for handle in handles]
        assert [(job.state, job.attempt, job.errors) for job in jobs] == [(JobState.READY, 0, ())] * 3
        gate.touch()
        other = scene.worker()
        jobs = await scene.finished(handles)
    assert [(job.state, job.attempt, job.output["pid"]) for job in jobs] == [(JobState.COMPLETED, 1, other.pid)] * 3
    await scene.check(jobs)


@pytest.mark.parametrize("during", ["claim", "settle"])
async def test_a_worker_that_is_asked_to_stop_while_the_database_is_busy(scene: Scene, during: str) -> None:
    """What it's about to claim isn't begun or is finished, and what has ended is written: no attempt is lost."""
    gate = scene.gate()
    async with scene.client() as client:
        worker = scene.worker(lease="600s", renew_every="60s", grace="600s")
        jobs = await scene.finished([await client.enqueue(app.nap(0))])
        delay = 1.0 if during == "claim" else 0.0
        handles = await client.enqueue_many([app.until_exists(str(gate)).options(delay=delay) for _ in range(4)])
        if during == "settle":
            await scene.started(5)
        with scene.locked():
            gate.touch()
            if during == "settle":
                await scene.ended(5)
            else:
                await until(lambda: none_scheduled(handles), "jobs that are due", story=scene.story)
            await until(scene.waiting, "somebody who waits for the lock", story=scene.story)
            worker.terminate()
            await worker.wait_for(r": stopping")
        assert await worker.exit_code() == 0
        if during == "settle":
            assert {(await handle.snapshot()).state for handle in handles} == {JobState.COMPLETED}
        scene.worker()
        jobs += await scene.finished(handles)
    assert {(job.state, job.attempt, job.errors) for job in jobs} == {(JobState.COMPLETED, 1, ())}
    assert scene.ledger.count("start") == 5
    await scene.check(jobs)


async def none_scheduled(handles: Sequence[JobHandle[app.Told]]) -> bool:
    return not any([(await handle.snapshot()).state is JobState.SCHEDULED for handle in handles])


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_a_job_that_cant_be_stopped_runs_elsewhere_when_the_lease_has_run_out(scene: Scene, signals: int) -> None:
    """Its process ends all the same, says which job it was, and its neighbours are given back."""
    gate = scene.gate()
    async with scene.client() as client:
        deaf = await client.enqueue(app.swallow_until_exists(str(gate)))
        others = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(2)])
        worker = scene.worker(grace="500ms" if signals == 1 else "600s")
        await scene.started(3)
        scene.hit.add(worker.pid)
        worker.terminate()
        await worker.wait_for(": stopping")
        if signals == 2:
            worker.terminate()
        assert await worker.exit_code(within=longest_end(0.5) + 5) == 4
        assert f"{deaf.id} doesn't stop" in worker.output()
        assert (await deaf.snapshot()).state is JobState.RUNNING
        assert {((job := await each.snapshot()).state, job.attempt) for each in others} == {(JobState.READY, 0)}
        gate.touch()
        scene.worker()
        jobs = await scene.finished([deaf, *others])
    assert [job.attempt for job in jobs] == [2, 1, 1]
    assert [error.type for error in jobs[0].errors] == ["WorkerLost"]
    await scene.check(jobs)


@pytest.mark.soak
async def test_outcomes_are_waited_for_as_long_as_the_grace(scene: Scene) -> None:
    gate = scene.gate()
    async with scene.client() as client:
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        worker = scene.worker(grace="60s", lease="60s", renew_every="20s")
        await scene.started(3)
        with scene.locked():
            gate.touch()
            await scene.ended(3)
            worker.terminate()
            await worker.wait_for(": stopping")
            with pytest.raises(AssertionError, match="not within"):
                await worker.exit_code(within=15)
        assert await worker.exit_code() == 0
        jobs = [await handle.snapshot() for handle in handles]
    assert [(job.state, job.attempt) for job in jobs] == [(JobState.COMPLETED, 1)] * 3
    await scene.check(jobs)


LONG = pytest.mark.soak


@pytest.mark.parametrize(
    ("fault", "busy"),
    [
        ("silence", True),
        pytest.param("silence", False, marks=LONG),
        pytest.param("refusal", True, marks=LONG),
        ("refusal", False),
    ],
)
async def test_how_long_a_stop_takes_without_the_database(postgres_url: str, tmp_path: Path, fault: str, *, busy: bool) -> None:
    """Never longer than the documentation says, and whatever couldn't be written is named."""
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        gate = scene.gate()
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)]) if busy else []
        worker = scene.worker(lease="600s", renew_every="1s", grace="1s")
        await (scene.started(3) if busy else worker.wait_for("slots for"))
        if fault == "silence":
            proxy.pause()
        else:
            proxy.refuse()
            proxy.cut()
        gate.touch()
        if busy:
            await scene.ended(3)
        worker.terminate()
        assert await worker.exit_code(within=longest_end(1.0) + 5) == (4 if busy else 0)
        for handle in handles:
            assert len(re.findall(f"ERROR.*{handle.id}", worker.output())) == 1
            assert (await handle.snapshot()).state is JobState.RUNNING
