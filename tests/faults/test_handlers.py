"""Handlers that raise what nobody expects, leave, fork and block: their neighbours don't notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.scene import FIRST_ON_SQLITE
from tests.faults.test_signals import PATIENT

if TYPE_CHECKING:
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio


async def test_whatever_a_handler_raises_is_a_failed_attempt(scene: Scene) -> None:
    async with scene.client() as client:
        worker = scene.worker(concurrency="30")
        kinds = {
            kind: [await client.enqueue(make(kind)) for make in (app.raise_odd, app.raise_odd_in_thread)] for kind in app.ODD
        }
        canaries = await client.enqueue_many([app.nap(0.01) for _ in range(20)])
        jobs = await scene.finished(canaries)
        assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
        for kind, handles in kinds.items():
            for job in await scene.finished(handles):
                assert (job.state, job.attempt, len(job.errors)) == (JobState.FAILED, 2, 2), f"{kind}: {job}"
                assert all(len(error.message) < 100_000 for error in job.errors)
                jobs.append(job)
        assert worker.alive
    await scene.check(jobs)


@pytest.mark.parametrize("loop", ["--uvloop", "--no-uvloop"])
async def test_exits_in_a_handlers_tasks_are_failed_attempts_and_the_worker_lives(scene: Scene, loop: str) -> None:
    """The next worker would die of it again, and the one after that, and their other jobs with them."""
    gate = scene.gate()
    async with scene.client() as client:
        worker = scene.worker(loop)
        beside = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        await scene.started(3)
        guilty = await client.enqueue_many([app.raise_odd_in_tasks(kind) for kind in ("SystemExit", "KeyboardInterrupt")])
        jobs = await scene.finished(guilty)
        assert {(job.state, job.attempt, len(job.errors)) for job in jobs} == {(JobState.FAILED, 3, 3)}
        assert [{error.type for error in job.errors} for job in jobs] == [{"SystemExit"}, {"KeyboardInterrupt"}]
        gate.touch()
        others = await scene.finished(beside)
        assert {(job.state, job.attempt, job.output["pid"]) for job in others} == {(JobState.COMPLETED, 1, worker.pid)}
    await scene.check([*jobs, *others])
    worker.terminate()
    assert await worker.exit_code() == 0


@FIRST_ON_SQLITE
async def test_a_handler_that_ends_its_process(scene: Scene) -> None:
    async with scene.client() as client:
        handle = await client.enqueue(app.leave(7))
        worker = scene.worker()
        assert await worker.exit_code() == 7
        scene.hit.add(worker.pid)
        worker.start()
        (job,) = await scene.finished([handle])
    assert (job.state, job.attempt, [error.type for error in job.errors]) == (JobState.FAILED, 1, ["WorkerLost"])
    await scene.check([job])


async def test_a_child_that_comes_out_of_a_handler_isnt_a_second_worker(scene: Scene) -> None:
    async with scene.client() as client:
        worker = scene.worker()
        handles = await client.enqueue_many([app.fork(), *[app.nap(0.01) for _ in range(30)]])
        jobs = await scene.finished(handles)
        jobs += await scene.finished(await client.enqueue_many([app.nap(0.01) for _ in range(30)]))
    assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 1, worker.pid)}
    assert {entry.pid for entry in scene.ledger.entries()} == {worker.pid}
    await scene.check(jobs)


async def test_a_blocked_loop_loses_no_lease(scene: Scene) -> None:
    """Neither its own nor its neighbours', with another worker waiting for just that."""
    gate = scene.gate()
    async with scene.client() as client:
        blocked = scene.worker(lease="3s", renew_every="1s")
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        await scene.started(3)
        handles.append(await client.enqueue(app.block_loop(5)))
        await scene.started(4)
        scene.worker()
        await scene.ended(1)
        gate.touch()
        jobs = await scene.finished(handles)
    assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 1, blocked.pid)}
    await scene.check(jobs)


@FIRST_ON_SQLITE
async def test_a_handler_that_closes_what_isnt_its_own(scene: Scene) -> None:
    """The worker can't go on, so it ends; what it held runs elsewhere, and the database is whole."""
    async with scene.client() as client:
        handles = [await client.enqueue(app.close_descriptors())]
        worker = scene.worker(concurrency="1")
        scene.hit.add(worker.pid)
        await scene.started(1)
        handles += await client.enqueue_many([app.nap(0) for _ in range(10)])
        scene.worker(**PATIENT)
        jobs = await scene.finished(handles)
        assert await worker.exit_code() != 0
    scene.workers.remove(worker)  # what it says in the end is the interpreter's, which has lost its files as well
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    await scene.check(jobs)


@pytest.mark.soak
async def test_a_handler_that_needs_two_gigabytes(scene: Scene) -> None:
    async with scene.client() as client:
        worker = scene.worker(lease="60s", renew_every="1s")
        handles = await client.enqueue_many([app.allocate(2 << 30), *[app.nap(0.01) for _ in range(50)]])
        jobs = await scene.finished(handles)
    assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 1, worker.pid)}
    await scene.check(jobs)
