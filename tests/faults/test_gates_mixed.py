"""Jobs that wait at all kinds of gates at once, while somebody else does to them what can be done, and workers are killed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from aioqueue import InSequence
from tests.faults import gated
from tests.faults.gated import SETTINGS
from tests.faults.sampler import Sampler, deadlocks, rows
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue import Client, JobHandle
    from tests.faults.gated import Told
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

TENANTS = "abc"
LINES = "mnop"
BLOCKING = "o"
"""Lines that wait behind what has failed."""

MOST_OF_A_TENANT = 3
MOST_OF_ALL = 6
"""The highest that the limits ever are."""

_MOST = (
    "select coalesce(max(n), 0) from (select count(*) as n from {{schema}}job where state = 2 and type = 'mixed' {by}) as one"
)
OF_A_TENANT = _MOST.format(by="group by payload->>'tenant'")
OF_A_LINE = _MOST.format(by="group by payload->>'line'")
OF_ALL = _MOST.format(by="")
LEFT = "select count(*) from {schema}job where type = 'mixed'"
BEHIND = "select (select count(*) from {schema}gate_place) + (select count(*) from {schema}gate_mark)"


class Operator:
    """Does at random what people and programs do to jobs and limits.

    Arguments:
        client: Of another process than the workers.
        chance: Draws.
    """

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self._handles: list[JobHandle[Told]] = []

    async def enqueue(self, jobs: int) -> None:
        chance = self._chance
        calls = []
        for _ in range(jobs):
            line = chance.choice(LINES)
            sequence = InSequence(line, strict=line == "p", on_failure="block" if line in BLOCKING else "continue")
            tenant = chance.choice(TENANTS)
            call = gated.mixed(tenant, line, chance.uniform(0, 0.02), fails=chance.random() < 0.05)
            calls.append(call.options(sequence=sequence, key=tenant, delay=chance.choice([0, 0, 0, 0.3])))
        self._handles += await self._client.enqueue_many(calls)

    async def act(self) -> None:
        """Do one thing."""
        client, chance = self._client, self._chance
        handle, tenant = chance.choice(self._handles), chance.choice(TENANTS)
        verbs: Sequence[Callable[[], Awaitable[object]]] = [
            lambda: client.cancel(handle),
            lambda: client.delete(handle),
            lambda: client.retry(handle),
            lambda: client.run_now(*chance.sample(self._handles, 5)),
            lambda: client.reschedule(handle, delay=chance.choice([0, 0.2, 1])),
            lambda: client.pause(key=tenant),
            lambda: client.resume(key=tenant),
            lambda: client.pause(gated.mixed),
            lambda: client.resume(gated.mixed),
            lambda: client.resume(gated.mixed),
            lambda: client.limits.put(gated.mixed, chance.randint(0, MOST_OF_A_TENANT)),
            lambda: client.limits.put("shared", chance.randint(0, MOST_OF_ALL)),
            lambda: client.limits.put_rate(gated.mixed, chance.randint(0, 200), per=1),
            lambda: client.limits.remove_rate(gated.mixed),
            lambda: client.sequences.resume(chance.choice(BLOCKING)),
            lambda: self.enqueue(3),
            self._within,
        ]
        await chance.choice(verbs)()

    async def _within(self) -> None:
        """Some of it in one transaction, which may be rolled back."""
        handles = self._chance.sample(self._handles, 3)
        try:
            async with self._client.transaction() as tx:
                await self._client.cancel(*handles[:2], tx=tx)
                await self._client.delete(*handles[2:], tx=tx)
                if self._chance.random() < 0.3:
                    raise _RolledBack
        except _RolledBack:
            pass

    async def let_all_go(self) -> None:
        """Undo what keeps jobs."""
        client = self._client
        await client.resume(gated.mixed)
        for tenant in TENANTS:
            await client.resume(key=tenant)
        await client.limits.put(gated.mixed, MOST_OF_A_TENANT)
        await client.limits.put("shared", MOST_OF_ALL)
        await client.limits.put_rate(gated.mixed, 1000, per=1)


class _RolledBack(Exception):
    pass


async def all_kinds_at_once(scene: Scene, *, workers: int, jobs: int, steps: int, kills: int, seed: int) -> None:
    """Random verbs while workers run jobs; in the end all of these are done, and nothing is left behind."""
    chance = random.Random(seed)
    async with scene.client() as client:
        await client.limits.put("shared", MOST_OF_ALL)
        await client.limits.put(gated.mixed, MOST_OF_A_TENANT)
        operator = Operator(client, chance)
        await operator.enqueue(jobs)
        started = [scene.worker(serves="gated", **SETTINGS) for _ in range(workers)]
        for worker in started:
            await worker.wait_for("slots for")
        # Code's own limits are there now; what somebody has put counts before them.
        with Sampler(scene, OF_A_TENANT, OF_A_LINE, OF_ALL) as sampler:
            for step in range(steps):
                await operator.act()
                if kills and step % (steps // (kills + 1)) == steps // (kills + 1) - 1 and kills > len(scene.hit):
                    scene.kill(chance.choice([worker for worker in scene.workers if worker.alive]))
                    scene.worker(serves="gated", **SETTINGS)
            await operator.let_all_go()

            async def drained() -> bool:
                await client.sequences.resume(BLOCKING)
                return rows(scene, LEFT) == [(0,)]

            await until(drained, "the end of all jobs", within=60 + jobs, story=scene.story)
        assert sampler.most[OF_A_TENANT] <= MOST_OF_A_TENANT, sampler.most
        assert sampler.most[OF_A_LINE] <= 1, sampler.most
        assert sampler.most[OF_ALL] <= MOST_OF_ALL, sampler.most
        assert sampler.samples > 100
        assert deadlocks(scene) == 0
        await until(lambda: rows(scene, BEHIND) == [(0,)], "that nothing is left at gates", story=scene.story)


async def test_all_kinds_of_gates_at_once(scene: Scene) -> None:
    await all_kinds_at_once(scene, workers=2, jobs=40, steps=50, kills=0, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_all_kinds_of_gates_at_once_for_long(scene: Scene, seed: int) -> None:
    await all_kinds_at_once(scene, workers=5, jobs=400, steps=1500, kills=6, seed=seed)
