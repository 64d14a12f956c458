"""Single workers as real processes: whatever becomes of the one that has the name, the next one has it within a lease.

These take seconds: a lease that is much shorter would be over whenever the machine is busy.
"""

from __future__ import annotations

import signal
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.scene import FIRST_ON_POSTGRES, FIRST_ON_SQLITE

if TYPE_CHECKING:
    from tests.faults.scene import Scene
    from tests.processes import WorkerProcess

pytestmark = pytest.mark.anyio

ALONE = ("--singleton", "reports")
LEASE = 3.0
BUSY = 5.0
"""Seconds that a busy machine may take for what is done at once."""
SLOW_POLLS = "600s"
"""Whoever polls as rarely doesn't find out by polling."""
STANDS_BY, TAKES_OVER = "standing by for reports", "it has the name reports from now on"
STARTED = "alone as reports"


def has_run(scene: Scene, worker: WorkerProcess) -> list[str]:
    return [entry.job for entry in scene.ledger.entries("start") if entry.pid == worker.pid]


async def test_the_next_one_has_the_name_within_a_lease_of_a_kill(scene: Scene) -> None:
    gate = scene.gate()
    async with scene.client() as client:
        first = scene.worker(*ALONE)
        await first.wait_for(STARTED)
        handle = await client.enqueue(app.until_exists(str(gate)))
        await scene.started(1)
        second = scene.worker(*ALONE, "--standby", poll_interval=SLOW_POLLS)
        await second.wait_for(STANDS_BY)
        scene.kill(first)
        killed = time.monotonic()
        await second.wait_for(TAKES_OVER)
        assert time.monotonic() - killed < LEASE + BUSY
        await scene.started(2)
        gate.touch()
        (job,) = await scene.finished([handle])
        assert (job.state, job.attempt, job.output["pid"]) == (JobState.COMPLETED, 2, second.pid)
        await scene.check([job])


async def test_one_that_is_frozen_past_its_lease_is_fenced_and_stands_by_again(scene: Scene) -> None:
    async with scene.client() as client:
        first = scene.worker(*ALONE, "--standby")
        await first.wait_for(STARTED)
        gate = scene.gate()
        handle = await client.enqueue(app.until_exists(str(gate)))
        await scene.started(1)
        second = scene.worker(*ALONE, "--standby", poll_interval=SLOW_POLLS)
        await second.wait_for(STANDS_BY)
        await scene.freeze(first)
        await second.wait_for(TAKES_OVER)
        await scene.started(2)
        first.cont()
        await first.wait_for("the lease .* is lost")
        await first.wait_for(STANDS_BY)
        gate.touch()
        (job,) = await scene.finished([handle])
        assert (job.state, job.attempt, job.output["pid"]) == (JobState.COMPLETED, 2, second.pid)
        second.terminate()
        assert await second.exit_code() == 0
        await first.wait_for(TAKES_OVER)
        await scene.check([job])


@FIRST_ON_SQLITE
async def test_one_that_is_frozen_and_mustnt_wait_ends_with_a_code_of_its_own(scene: Scene) -> None:
    async with scene.client() as client:
        first = scene.worker(*ALONE)
        await first.wait_for(STARTED)
        await scene.freeze(first)
        second = scene.worker(*ALONE, "--wait")
        await second.wait_for(STARTED)
        first.cont()
        assert await first.exit_code() == 5
        assert f"-{second.pid} works as reports" in first.output()
        await scene.check(await scene.finished([await client.enqueue(app.nap(0))]))


@FIRST_ON_POSTGRES
async def test_a_second_one_ends_or_waits_for_a_lease(scene: Scene) -> None:
    first = scene.worker(*ALONE, "--name", "the first")
    await first.wait_for(STARTED)
    second, patient, next_one = scene.worker(*ALONE), scene.worker(*ALONE, "--wait"), scene.worker(*ALONE, "--standby")
    assert await second.exit_code() == 5
    assert "the first works as reports, whose lease lasts for" in second.output()
    await patient.wait_for(STANDS_BY)
    assert await patient.exit_code() == 5
    await next_one.wait_for(STANDS_BY)
    next_one.terminate()
    assert await next_one.exit_code() == 0
    first.terminate()
    assert await first.exit_code() == 0


@FIRST_ON_SQLITE
async def test_the_name_is_kept_until_the_last_job_has_ended(scene: Scene) -> None:
    gate = scene.gate()
    async with scene.client() as client:
        first = scene.worker(*ALONE, "--grace", "600")
        await first.wait_for(STARTED)
        await client.enqueue(app.until_exists(str(gate)))
        await scene.started(1)
        second = scene.worker(*ALONE, "--standby", poll_interval="50ms")
        await second.wait_for(STANDS_BY)
        first.send(signal.SIGTERM)
        await first.wait_for("SIGTERM: stopping")
        handle = await client.enqueue(app.nap(0))
        gate.touch()
        (job,) = await scene.finished([handle])
        assert job.output["pid"] == second.pid
        assert await first.exit_code() == 0
        ended, began = scene.ledger.entries("end")[0], scene.ledger.entries("start")[-1]
        assert (ended.pid, began.pid) == (first.pid, second.pid)
        assert ended.at < began.at


async def test_two_that_run_once_never_overlap(scene: Scene) -> None:
    gate = scene.gate()
    async with scene.client() as client:
        handles = [await client.enqueue(app.until_exists(str(gate)))]
        first = scene.worker(*ALONE, "--once")
        await scene.started(1)
        second = scene.worker(*ALONE, "--once")
        assert await second.exit_code() == 0
        assert "it does nothing now" in second.output()
        assert f"-{first.pid} works as reports" in second.output()
        assert first.alive
        gate.touch()
        assert await first.exit_code() == 0
        handles += await client.enqueue_many([app.nap(0.05) for _ in range(20)])
        several = [scene.worker(*ALONE, "--once", *(["--wait"] if number % 2 else [])) for number in range(3)]
        assert [await each.exit_code() for each in several] == [0, 0, 0]
        await scene.finished(handles)
    spans: dict[int, list[float]] = {}
    for entry in scene.ledger.entries():
        spans.setdefault(entry.pid, []).append(entry.at)
    for (_, ended), (began, _) in pairwise(sorted((min(times), max(times)) for times in spans.values())):
        assert ended < began, scene.story()
    assert has_run(scene, second) == []


@FIRST_ON_SQLITE
async def test_once_says_that_jobs_have_failed(scene: Scene) -> None:
    async with scene.client() as client:
        await client.enqueue(app.raise_odd("MemoryError"))
    worker = scene.worker(*ALONE, "--once")
    assert await worker.exit_code() == 3
