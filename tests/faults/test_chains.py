"""Chains whose workers are killed: each step follows its own, once, and each chain comes to one end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from aioqueue import JobState
from tests.faults import app
from tests.processes import until

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue import Client, Job
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio


async def killed_at_random(scene: Scene, *, chains: int, steps: int, kills: int, seed: int) -> None:
    """Three workers, one of which is killed each time that some more steps have been started, and started again."""
    chance = random.Random(seed)
    async with scene.client() as client:
        calls = {str(number): app.walk(steps, chance.uniform(0, 0.02)) for number in range(chains)}
        first = await client.enqueue_many([call.options(key=key, unique=True) for key, call in calls.items()])
        ids = {key: [handle.id] for key, handle in zip(calls, first, strict=True)}
        workers = [scene.worker() for _ in range(3)]
        for number in range(1, kills + 1):
            await scene.started(number * chains * steps // (kills + 2))
            worker = chance.choice(workers)
            scene.kill(worker)
            worker.start()
            await want_keys(client, ids)
        await until(lambda: have_ended(client, ids), "the end of all chains", story=scene.story)
        found = {chain_id: await steps_of(client, chain_id) for of_key in ids.values() for chain_id in of_key}
    for key, of_key in ids.items():
        for place, chain_id in enumerate(of_key):
            chain, length = found[chain_id], 1 if place else steps
            assert [job.position for job in chain] == list(range(length))
            assert [job.state for job in chain] == [JobState.CONTINUED] * (length - 1) + [JobState.COMPLETED]
            assert {(job.chain_id, job.key) for job in chain} == {(chain_id, key)}
    # And no step ran that no chain knows.
    await scene.check([job for chain in found.values() for job in chain])


async def want_keys(client: Client, ids: dict[str, list[UUID]]) -> None:
    """Try to begin a second chain with each key: that goes only where the first has ended."""
    for key, of_key in ids.items():
        again = await client.enqueue(app.walk(1, 0).options(key=key, unique=True))
        if again.created:
            (end,) = await client.store.fetch_ends(of_key[-1:])
            assert end is not None
            assert end.state is JobState.COMPLETED, f"the key of {end} was taken"
            of_key.append(again.id)
        else:
            assert again.id == of_key[-1]


async def have_ended(client: Client, ids: dict[str, list[UUID]]) -> bool:
    ends = await client.store.fetch_ends([chain_id for of_key in ids.values() for chain_id in of_key])
    return all(end is not None and end.state.finished for end in ends)


async def steps_of(client: Client, chain_id: UUID) -> list[Job]:
    return list((await client.store.list_chain(chain_id, 1000)).jobs)


@pytest.mark.parametrize("seed", [1])
async def test_chains_of_workers_that_are_killed(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, chains=20, steps=10, kills=5, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 103))
async def test_chains_of_workers_that_are_killed_for_long(scene: Scene, seed: int) -> None:
    await killed_at_random(scene, chains=100, steps=20, kills=40, seed=seed)
