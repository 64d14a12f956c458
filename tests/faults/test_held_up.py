"""What users and strangers hold on the database, transactions and locks, holds up nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.test_signals import PATIENT
from tests.processes import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio


async def test_jobs_that_hold_transactions_dont_keep_free_slots_from_working(scene_on_postgres: Scene) -> None:
    """More of them than there are connections for transactions; new jobs run meanwhile, and those of a killed worker."""
    scene = scene_on_postgres
    gate, other_gate = scene.gate(), scene.gate("other")
    async with scene.client() as client:
        doomed = scene.worker()
        orphans = await client.enqueue_many([app.until_exists(str(other_gate)) for _ in range(2)])
        await scene.started(2)
        scene.worker(concurrency="20", **PATIENT)
        holding = await client.enqueue_many([app.hold_transaction(str(gate)) for _ in range(6)])
        await until(lambda: scene.ledger.count("start") >= 6, "the first that hold a transaction", story=scene.story)
        scene.kill(doomed)
        other_gate.touch()
        jobs = await scene.finished([*orphans, *await client.enqueue_many([app.nap(0) for _ in range(30)])])
        assert {(await handle.snapshot()).state for handle in holding} == {JobState.RUNNING}
        gate.touch()
        jobs += await scene.finished(holding)
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    await scene.check(jobs)


async def test_a_locked_row_doesnt_hold_up_the_outcomes_of_others(scene_on_postgres: Scene) -> None:
    """Nor are they written a second time after a stop, which waits for the one that is locked until its grace is over."""
    scene = scene_on_postgres
    gate = scene.gate()
    async with scene.client() as client:
        worker = scene.worker(concurrency="20", lease="600s", renew_every="1s", grace="2s")
        locked = await client.enqueue(app.until_exists(str(gate)))
        await scene.started(1)
        with psycopg.connect(scene.direct) as other, other.transaction(force_rollback=True):
            other.execute("select from aioqueue.job where id = %s for update", [locked.id])
            gate.touch()
            await scene.ended(1)
            neighbours = await client.enqueue_many([app.nap(0) for _ in range(30)])
            jobs = await scene.finished(neighbours)
            worker.terminate()
            await worker.exit_code(within=60)
            assert (await locked.snapshot()).state is JobState.RUNNING
        scene.hit.add(worker.pid)
        scene.forget_leases()
        scene.worker(**PATIENT)
        jobs += await scene.finished([locked])
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert [job.attempt for job in jobs] == [*[1] * 30, 2]
    await scene.check(jobs)
