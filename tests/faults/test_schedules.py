"""Ticks that five worker processes decide, some of which are killed, frozen, or have another clock; and deploys of them."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.faults.clock import set_clock
from tests.faults.scene import FIRST_ON_POSTGRES
from tests.processes import until

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue import Client
    from tests.faults.scene import Scene
    from tests.processes import WorkerProcess

pytestmark = pytest.mark.anyio

PATIENT = {"lease": "30s", "renew_every": "5s"}
"""One whose clock is ahead is to take nobody's jobs."""


async def ticked(client: Client) -> dict[str, list[datetime]]:
    """The times of the ticks that have jobs, in order, by schedule."""
    found: dict[str, list[datetime]] = {}
    cursor = None
    while True:
        page = await client.list_jobs(limit=1000, cursor=cursor)
        for job in page.jobs:
            assert job.origin is not None
            assert job.nominal_time is not None
            found.setdefault(str(job.origin.schedule), []).append(job.nominal_time)
        if (cursor := page.cursor) is None:
            return {name: sorted(times) for name, times in found.items()}


async def disturb(scene: Scene, workers: list[WorkerProcess], seconds: float, seed: int) -> None:
    """Kill workers and start them again, freeze others and have them go on, wherever they are at that moment.

    On SQLite whoever is frozen within a transaction holds the file, so that nobody can write: there it's outside of one.
    """
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        worker = chance.choice(workers)
        if chance.random() < 0.3:
            scene.kill(worker)
            worker.start()
            await anyio.sleep(min(left, 0.3))
            continue
        if scene.on_sqlite:
            await scene.freeze(worker)
        else:
            worker.stop()
        await anyio.sleep(chance.uniform(0.2, 1.2))
        worker.cont()


async def each_tick_once(scene: Scene, *, seconds: float, schedules: int, seed: int) -> None:
    said = {f"s{number}": {"version": "1", "every": 1.0} for number in range(schedules)}
    ahead = set_clock(scene.gate("ahead"), 2.0)
    async with scene.client() as client:
        workers = [scene.worker(schedules=said, clock=ahead if number == 4 else None, **PATIENT) for number in range(5)]
        await scene.started(schedules)
        before = {name: len(times) for name, times in (await ticked(client)).items()}
        await disturb(scene, workers, seconds, seed)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            await worker.exit_code()
        times = await ticked(client)
    assert times.keys() == {f"shop/s{number}" for number in range(schedules)}
    for name, each in times.items():
        assert {after - earlier for earlier, after in pairwise(each)} == {timedelta(seconds=1)}, name
        assert len(each) > before.get(name, 0) + seconds / 2, name
    for worker in workers:
        assert " ERROR " not in worker.output(), worker.output()


async def test_each_tick_is_decided_once_whatever_becomes_of_workers(scene: Scene) -> None:
    await each_tick_once(scene, seconds=4, schedules=5, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
async def test_each_tick_is_decided_once_for_long(scene: Scene, seed: int) -> None:
    await each_tick_once(scene, seconds=60, schedules=20, seed=seed)


def said(version: str, **schedules: float) -> dict[str, Any]:
    return {name: {"version": version, "every": every} for name, every in schedules.items()}


OLD, NEW = said("old", kept=1.0, removed=1.0), said("new", kept=1.0, added=1.0)


async def stored(client: Client) -> set[str]:
    return {each.name.removeprefix("shop/") for each in (await client.schedules.list()).schedules}


@FIRST_ON_POSTGRES
async def test_a_rolling_deploy_and_a_rollback(scene: Scene) -> None:
    """From the old schedules to the new ones once, though workers of the old code start again; and back."""
    seen: list[set[str]] = []

    async def look() -> set[str]:
        if (now := await stored(client)) not in seen[-1:]:
            seen.append(now)
        return now

    async def shown(wanted: set[str]) -> None:
        async def is_so() -> bool:
            return await look() == wanted

        await until(is_so, f"the schedules {wanted}", story=scene.story)

    async with scene.client() as client:
        workers = [scene.worker(schedules=OLD, **PATIENT) for _ in range(2)]
        await shown(set(OLD))
        new = scene.worker(schedules=NEW, **PATIENT)
        await shown(set(NEW))
        await workers[0].wait_for("those of newer code")
        scene.kill(workers[0])
        workers[0].start()
        await workers[0].wait_for("those of newer code", times=2)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            await worker.exit_code()
        assert await look() == set(NEW)
        assert [each for each in seen if each] == [set(OLD), set(NEW)]
        new.terminate()
        await new.exit_code()
        scene.worker(schedules=OLD, **PATIENT)
        await shown(set(OLD))
        times = await ticked(client)
    for name, each in times.items():
        assert len(each) == len(set(each)), name
