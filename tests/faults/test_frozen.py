"""Workers that are frozen past their leases again and again, under load."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.scene import FIRST_ON_SQLITE
from tests.postgres_server import execute
from tests.processes import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene
    from tests.processes import WorkerProcess

pytestmark = pytest.mark.anyio

SLOTS = 25


def has_lease(scene: Scene, worker: WorkerProcess) -> bool:
    """Whether there is a lease of this worker, valid or not."""
    query = f"select 1 from {{lease}} where worker like '%-{worker.pid}'"
    if scene.on_sqlite:
        with closing(sqlite3.connect(scene.direct.removeprefix("sqlite:///"), timeout=60)) as connection:
            return connection.execute(query.format(lease="lease")).fetchone() is not None
    return bool(execute(scene.direct, query.format(lease="aioqueue.lease")))


async def frozen_under_load(scene: Scene, *, rounds: int, jobs: int, seed: int) -> None:
    """Each round one of two workers is frozen while both have much to do, until the other has taken its lease.

    Its claims, answers, renewals and notifications come all at once when it goes on. Then both are given as many jobs that wait
    as they have slots together: they run at once only if no slot was lost. And both end at once when they're told to.
    """
    chance = random.Random(seed)
    gate = scene.gate()
    async with scene.client() as client:
        workers = [scene.worker(concurrency=str(SLOTS), lease="2s", renew_every="500ms") for _ in range(2)]
        handles = []
        for _ in range(rounds):
            handles += await client.enqueue_many([app.nap(chance.choice([0, 0.01, 0.1, 0.5])) for _ in range(jobs)])
            await scene.started(len(handles) - jobs // 2)
            victim = chance.choice(workers)
            await until(lambda victim=victim: has_lease(scene, victim), "its lease", story=scene.story)
            await scene.freeze(victim)
            await until(lambda victim=victim: not has_lease(scene, victim), "its lease's end", story=scene.story)
            victim.cont()
            await victim.wait_for(r"the lease \d+ is lost")
        done = await scene.finished(handles)
        started = scene.ledger.count("start")
        waiting = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(2 * SLOTS)])
        await scene.started(started + 2 * SLOTS)
        gate.touch()
        done += await scene.finished(waiting)
        assert {job.state for job in done} == {JobState.COMPLETED}
        await scene.check(done)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            assert await worker.exit_code(within=20) == 0


@FIRST_ON_SQLITE
async def test_workers_that_were_frozen_past_their_leases_keep_all_their_slots(scene: Scene) -> None:
    await frozen_under_load(scene, rounds=3, jobs=200, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 103))
async def test_workers_frozen_for_long_keep_all_their_slots(scene: Scene, seed: int) -> None:
    await frozen_under_load(scene, rounds=25, jobs=300, seed=seed)
