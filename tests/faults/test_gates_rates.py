"""Rates over several processes, one of which is killed: what started when, by the database's clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.faults import gated
from tests.faults.gated import SETTINGS
from tests.faults.sampler import rows
from tests.processes import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

STARTED = {
    True: "select started_at / 1e6 from archive where type = 'rated' order by started_at",
    False: "select extract(epoch from started_at)::float8 from aioqueue.archive where type = 'rated' order by started_at",
}
EARLY = 0.2
"""Seconds by which a start may be written earlier than it was allowed: a claim's transaction that has waited for the rate."""


def most_beyond(started: list[float]) -> float:
    """By how many starts the worst window exceeds what is granted: the burst, and then so many a second."""
    worst = 0.0
    for first, begin in enumerate(started):
        for last in range(first, len(started)):
            granted = gated.BURST + gated.STARTS * (started[last] - begin + EARLY)
            worst = max(worst, last - first + 1 - granted)
    return worst


async def rated(scene: Scene, *, workers: int, jobs: int, kills: int) -> list[float]:
    """When they were started the last time."""
    chance = random.Random(jobs)
    async with scene.client() as client:
        started = [scene.worker(serves="gated", **SETTINGS) for _ in range(workers)]
        for worker in started:
            await worker.wait_for("slots for")
        handles = await client.enqueue_many([gated.rated() for _ in range(jobs)])
        for number in range(1, kills + 1):
            await scene.started(number * jobs // (kills + 2))
            scene.kill(chance.choice([worker for worker in scene.workers if worker.alive]))
            scene.worker(serves="gated", **SETTINGS)
        await until(lambda: scene.ledger.count("end") >= jobs, "the end of all jobs", story=scene.story)
        await scene.finished(handles)
    return [float(row[0]) for row in rows(scene, STARTED[scene.on_sqlite])]


async def test_a_rate_holds_over_processes(scene: Scene) -> None:
    started = await rated(scene, workers=2, jobs=60, kills=0)
    assert len(started) == 60
    assert most_beyond(started) <= 0


@pytest.mark.soak
async def test_a_rate_holds_while_workers_are_killed(scene: Scene) -> None:
    started = await rated(scene, workers=5, jobs=1_000, kills=8)
    assert len(started) == 1_000
    assert most_beyond(started) <= 0
