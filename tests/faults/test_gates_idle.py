"""How long a place stays empty: workers look by themselves only every ten minutes, so that it's told or never taken."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.faults import gated
from tests.faults.gated import SETTINGS
from tests.faults.sampler import rows
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioqueue import Client, JobHandle
    from tests.faults.gated import Told
    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

HELD = "select count(*) from {schema}job where type = 'alone' and state = 0"


class Places:
    """A limit of one: a job has the place, and another one waits for it.

    Attributes:
        waits: By way in which it became free, the seconds until the next one began.
    """

    def __init__(self, scene: Scene, client: Client) -> None:
        self._scene = scene
        self._client = client
        self._number = 0
        self.holder: JobHandle[Told] | None = None
        self.waits: dict[str, list[float]] = {}

    def path(self) -> str:
        return str(self._scene.gate(f"gate-{self._number}"))

    async def freed(self, name: str, free: Callable[[], Awaitable[object]]) -> None:
        """Wait until one is held, let the place become free, and wait until the held one has it."""
        self._number += 1
        path = self.path()
        handle = await self._client.enqueue(gated.alone(path))
        await until(lambda: rows(self._scene, HELD) == [(1,)], "one that is held", story=self._scene.story)
        since = time.monotonic()
        await free()
        found: list[float] = []

        def begun() -> bool:
            found[:] = [entry.at for entry in self._scene.ledger.entries("start") if entry.note == path]
            return bool(found)

        await until(begun, f"that somebody takes the place: {name}", story=self._scene.story)
        self.waits.setdefault(name, []).append(found[0] - since)
        self.holder = handle


async def every_way(scene: Scene, *, times: int) -> dict[str, list[float]]:
    """The seconds for which a place has stayed empty, by the way in which it became free."""
    settings = {**SETTINGS, "poll_interval": "600s"}
    async with scene.client() as client:
        started = [scene.worker(serves="gated", **settings) for _ in range(2)]
        for worker in started:
            await worker.wait_for("slots for")
        places = Places(scene, client)
        places.holder = await client.enqueue(gated.alone(places.path()))
        await scene.started(1)

        async def ends() -> None:
            scene.gate(f"gate-{places._number - 1}").touch()

        async def is_cancelled() -> None:
            assert places.holder is not None
            await places.holder.cancel()

        async def is_deleted() -> None:
            assert places.holder is not None
            async with client.transaction() as tx:
                place = "?" if scene.on_sqlite else "$1"
                await tx.execute(
                    f"delete from {'' if scene.on_sqlite else 'aioqueue.'}job where id = {place}",
                    str(places.holder.id) if scene.on_sqlite else places.holder.id,
                )

        async def dies() -> None:
            (entry,) = (entry for entry in scene.ledger.entries("start") if entry.note.endswith(f"-{places._number - 1}"))
            scene.kill(next(worker for worker in scene.workers if worker.pid == entry.pid))
            await scene.worker(serves="gated", **settings).wait_for("slots for")

        for _ in range(times):
            await places.freed("it ends", ends)
            await places.freed("it's cancelled", is_cancelled)
            await places.freed("it's deleted in a caller's transaction", is_deleted)
        await places.freed("its worker dies", dies)
    return places.waits


async def test_a_place_is_taken_as_soon_as_it_is_free(scene: Scene) -> None:
    """What is asserted is that it is at all."""
    await every_way(scene, times=1)


@pytest.mark.soak
async def test_a_place_is_taken_soon(scene: Scene) -> None:
    for way, waits in (await every_way(scene, times=20)).items():
        assert sorted(waits)[len(waits) // 2] < 5, (way, waits)
