"""Jobs that complete in transactions of theirs, whose workers are killed: what each writes and enqueues is there once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.scene import FIRST_ON_POSTGRES

if TYPE_CHECKING:
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio


async def killed_at_random(scene: Scene, *, count: int, kills: int, seed: int) -> None:
    """Three workers, one of which is killed each time that some more jobs have been started, and started again."""
    chance = random.Random(seed)
    async with scene.client() as client:
        async with client.transaction() as tx:
            await tx.execute("create table booking (job varchar(40))")
        handles = await client.enqueue_many([app.book(chance.uniform(0, 0.02)) for _ in range(count)])
        workers = [scene.worker() for _ in range(3)]
        for number in range(1, kills + 1):
            await scene.started(number * count // (kills + 2))
            worker = chance.choice(workers)
            scene.kill(worker)
            worker.start()
        jobs = await scene.finished(handles)
        followers = [(await client.list_jobs(key=str(handle.id))).jobs for handle in handles]
        assert {len(each) for each in followers} == {1}
        jobs += await scene.finished([client.handle(app.nap, follower.id) for (follower,) in followers])
        async with client.transaction() as tx:
            booked = sorted(row[0] for row in await tx.fetch("select job from booking"))
    assert {job.state for job in jobs} == {JobState.COMPLETED}
    assert booked == sorted(str(handle.id) for handle in handles)
    await scene.check(jobs)


@FIRST_ON_POSTGRES
@pytest.mark.parametrize("seed", [1])
async def test_completing_transactions_of_workers_that_are_killed(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, count=40, kills=2, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 103))
async def test_completing_transactions_of_workers_that_are_killed_for_long(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, count=2000, kills=40, seed=seed)
