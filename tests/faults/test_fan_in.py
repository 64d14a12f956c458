"""Jobs that wait for others, whose workers are killed: none begins before those have ended, and none is left waiting."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.faults.scene import FIRST_ON_POSTGRES, FIRST_ON_SQLITE
from tests.processes import until

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue import Call, Client, Job
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio


class Mesh:
    """A diamond of diamonds: one job, layers of jobs that each wait for two neighbours of the layer before, and one for all.

    Arguments:
        width: Jobs of each layer.
        depth: Layers.
        chance: How long each takes.
    """

    def __init__(self, width: int, depth: int, chance: random.Random) -> None:
        layers: list[list[Call[app.Told]]] = [[app.nap(0)]]
        self.blockers: dict[UUID, set[UUID]] = {layers[0][0].id: set()}
        for _ in range(depth):
            before = layers[-1]
            layer: list[Call[app.Told]] = []
            for place in range(width):
                both = [before[place % len(before)], before[(place + 1) % len(before)]]
                call = app.nap(chance.uniform(0, 0.01)).options(after=both)
                self.blockers[call.id] = {each.id for each in both}
                layer.append(call)
            layers.append(layer)
        self.last = app.gather([call.output for call in layers[-1]])
        self.blockers[self.last.id] = {call.id for call in layers[-1]}


async def killed_at_random(scene: Scene, *, width: int, depth: int, kills: int, seed: int) -> None:
    """Three workers, one of which is killed each time that some more jobs have been started, and started again."""
    chance = random.Random(seed)
    mesh = Mesh(width, depth, chance)
    async with scene.client() as client:
        handle = await client.enqueue(mesh.last)
        workers = [scene.worker() for _ in range(3)]
        for number in range(1, kills + 1):
            await scene.started(number * width * depth // (kills + 2))
            worker = chance.choice(workers)
            scene.kill(worker)
            worker.start()
        await scene.finished([handle], within=300)
        jobs = await all_jobs(client)
    assert jobs.keys() == mesh.blockers.keys()
    assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
    check_order(scene, mesh.blockers, jobs)
    await scene.check(list(jobs.values()))


async def all_jobs(client: Client) -> dict[UUID, Job]:
    found: dict[UUID, Job] = {}
    cursor: str | None = None
    while True:
        page = await client.list_jobs(limit=1000, cursor=cursor)
        found |= {job.id: job for job in page.jobs}
        if (cursor := page.cursor) is None:
            return found


def check_order(scene: Scene, blockers: dict[UUID, set[UUID]], jobs: dict[UUID, Job]) -> None:
    """Nobody has started before all that it waits for had ended, for the attempts that counted."""
    started: dict[str, float] = {}
    ended: dict[tuple[str, int], float] = {}
    for entry in scene.ledger.entries():
        if entry.event == "start":
            started[entry.job] = min(entry.at, started.get(entry.job, entry.at))
        elif entry.event == "end":
            ended[entry.job, entry.attempt] = entry.at
    for waiting, waited_for in blockers.items():
        for blocker in waited_for:
            end = ended[str(blocker), jobs[blocker].output["attempt"]]
            assert end <= started[str(waiting)], f"{waiting} has started before {blocker} had ended\n{scene.story()}"


@FIRST_ON_POSTGRES
@pytest.mark.parametrize("seed", [1])
async def test_a_diamond_of_workers_that_are_killed(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, width=8, depth=5, kills=2, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 102))
async def test_a_large_diamond_of_workers_that_are_killed(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, width=100, depth=50, kills=40, seed=seed)


@FIRST_ON_SQLITE
async def test_a_worker_that_dies_for_good_takes_all_along_that_wait(scene: Scene) -> None:
    """Its job's last attempt kills it. Whoever waits for that hears what went wrong first, and nobody else does."""
    dying = app.die()
    wide = [app.gather([dying.output]) for _ in range(20)]
    deep: list[Call[Any]] = [app.gather([call.output for call in wide])]
    for _ in range(10):
        deep.append(app.gather([deep[-1].output]))
    other = app.nap(0)
    last = app.gather([deep[-1].output, other.output])
    async with scene.client() as client:
        handle = await client.enqueue(last)
        workers = [scene.worker() for _ in range(2)]
        scene.hit.update(worker.pid for worker in workers)

        async def has_ended() -> bool:
            for worker in workers:
                if not worker.alive:
                    worker.start()
                    scene.hit.add(worker.pid)
            return (await handle.snapshot()).state.finished

        await until(has_ended, "the end of the last one", story=scene.story)
        jobs = await all_jobs(client)
    completed = {job.id for job in jobs.values() if job.state is JobState.COMPLETED}
    assert completed == {other.id}
    failed = [job.last_error for job in jobs.values() if job.id not in {other.id, dying.id}]
    assert {error.type for error in failed if error is not None} == {"BlockerFailed"}
    assert all(error is not None and f"{app.die.name} {dying.id}" in error.message for error in failed)
    await scene.check(list(jobs.values()))
