"""A strict sequence keeps its order while whoever runs its first member is killed, which waits for its retry then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults import gated
from tests.faults.gated import SETTINGS
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

WAITS_IN = {"s": 0, "t": 1}
"""The step of each line's members in which the worker is killed."""


def begun(scene: Scene, line: str) -> list[tuple[int, int]]:
    """The numbers and steps of a line's members, in the order in which they began."""
    entries = sorted(scene.ledger.entries("start"), key=lambda entry: entry.at)
    notes = [entry.note.split() for entry in entries if entry.note.startswith(f"{line} ")]
    return [(int(number), int(step)) for _, number, step in notes]


def all_wait(scene: Scene, number: int) -> Callable[[], bool]:
    """Whether a member of each line has begun with the step in which it waits for a file."""
    return lambda: all((number, step) in begun(scene, line) for line, step in WAITS_IN.items())


async def kept_in_order(scene: Scene, *, members: int, kills: int) -> None:
    """Of each line's first so many members, whoever runs them is killed; another worker is there, and goes on."""
    async with scene.client() as client:
        for number in range(kills, members):
            scene.gate(f"gate-{number}").touch()
        handles = await client.enqueue_many(
            gated.strictly_waiting(line, number, 0, step, str(scene.gate(f"gate-{number}")))
            for number in range(members)
            for line, step in WAITS_IN.items()
        )
        scene.worker(serves="gated", **SETTINGS)
        for number in range(kills):
            await until(all_wait(scene, number), f"the members {number}", story=scene.story)
            holders = [worker for worker in scene.workers if worker.alive]
            await scene.worker(serves="gated", **SETTINGS).wait_for("slots for")
            for worker in holders:
                scene.kill(worker)
            scene.gate(f"gate-{number}").touch()
        await scene.finished(handles)
        for line in WAITS_IN:
            steps = begun(scene, line)
            assert steps == sorted(steps), (line, steps)
            assert set(steps) == {(number, step) for number in range(members) for step in (0, 1)}
        chains = [await client.chain_jobs(handle.id) for handle in handles]
        await scene.check([job for chain in chains for job in chain.jobs])


async def test_nobody_passes_whose_worker_is_killed(scene: Scene) -> None:
    """Some seconds, since a lease has to run out."""
    await kept_in_order(scene, members=3, kills=1)


@pytest.mark.soak
async def test_nobody_passes_whose_worker_is_killed_again_and_again(scene: Scene) -> None:
    await kept_in_order(scene, members=15, kills=12)
