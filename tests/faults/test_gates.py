"""Limits and sequences while those who hold places are killed and frozen, and connections are cut: the database is sampled."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.faults import gated
from tests.faults.gated import SETTINGS
from tests.faults.sampler import Sampler, deadlocks, rows
from tests.postgres_server import execute
from tests.processes import until

if TYPE_CHECKING:
    from tests.faults.scene import Scene
    from tests.processes import WorkerProcess

pytestmark = pytest.mark.anyio

WORKERS = 5
LINES, STRICT_LINES = "ab", "st"
RUNNING = "select count(*) from {schema}job where type = 'few' and state = 2"
IN_TURN = "select count(*) from {schema}job where type in ('in_turn', 'strictly') and state = 2"
HOLDERS = """
select distinct l.worker from {schema}job j join {schema}lease l on l.id = j.lease_id where j.type = 'few' and j.state = 2
"""
CUT = """
select pg_terminate_backend(pid) from (select pid from pg_stat_activity where datname = current_database()
    and pid <> pg_backend_pid() and application_name <> 'sampler' order by random() limit 1) as one
"""
DELETED = """
delete from aioqueue.job where id in (select id from aioqueue.job where type = 'few' and state = 2 order by random() limit 1)
returning id
"""
PLACES = "select count(*) from {schema}gate_place"


async def a_holder(scene: Scene) -> WorkerProcess:
    """A worker that lives and holds a place."""
    found: list[WorkerProcess] = []

    def look() -> bool:
        pids = {str(row[0]).rsplit("-", 1)[-1] for row in rows(scene, HOLDERS)}
        found[:] = [worker for worker in scene.workers if worker.alive and str(worker.pid) in pids]
        return bool(found)

    await until(look, "somebody who holds a place", story=scene.story)
    return random.Random(len(scene.workers)).choice(found)


def out_of_order(scene: Scene, frozen: set[int]) -> dict[str, list[str]]:
    """The lines whose members began in another order than theirs: in strict ones each start counts, in others each's first.

    One that is tried again may be passed in those. Whoever was frozen, or has lost its lease, may go on for a moment with what
    isn't its any more.
    """
    late = frozen | scene.late()
    entries = [entry for entry in sorted(scene.ledger.entries("start"), key=lambda entry: entry.at) if entry.pid not in late]
    found: dict[str, list[str]] = {}
    for line in LINES + STRICT_LINES:
        own = [entry for entry in entries if entry.note.startswith(f"{line} ")]
        begun = [[int(each) for each in entry.note.split()[1:]] for entry in own if line in STRICT_LINES or entry.attempt == 1]
        if begun != sorted(begun):
            found[line] = [f"{entry.note} ({entry.attempt}) in {entry.pid} at {entry.at:.3f}" for entry in own]
    return found


async def held_to_the_limit(
    scene: Scene, *, workers: int, jobs: int, seconds: float, kills: int, every: float, freezes: int
) -> None:
    """Holders are killed and replaced, and frozen until others have taken their leases; then all is drained.

    Arguments:
        workers: How many, with four slots each.
        jobs: That wait for the limit; each takes up to so many seconds.
        kills, freezes: How many holders are hit.
        every: Seconds between two kills.
    """
    chance = random.Random(jobs)
    frozen: set[int] = set()
    async with scene.client() as client:
        started = [scene.worker(serves="gated", **SETTINGS) for _ in range(workers)]
        for worker in started:
            await worker.wait_for("slots for")
        with Sampler(scene, RUNNING, IN_TURN) as sampler:
            calls = [gated.few(chance.uniform(0, seconds)) for _ in range(jobs)]
            lines = [gated.in_turn(line, number) for number in range(jobs // 10) for line in LINES]
            strict = [gated.strictly(line, number, 0) for number in range(jobs // 20) for line in STRICT_LINES]
            handles = await client.enqueue_many([*calls, *lines, *strict])
            for hit in range(freezes + kills):
                handles += await client.enqueue_many([gated.few(1 if every else 0.1) for _ in range(gated.LIMIT)])
                hit_at = time.monotonic()
                victim = await a_holder(scene)
                if hit < freezes:
                    frozen.add(victim.pid)
                    await freeze(scene, victim)
                    await until(lambda victim=victim: lease_is_gone(scene, victim), "its lease's end", story=scene.story)
                    victim.cont()
                else:
                    scene.kill(victim)
                    await scene.worker(serves="gated", **SETTINGS).wait_for("slots for")
                    await client.limits.put(gated.few, chance.randint(1, gated.LIMIT))
                    await until(lambda hit_at=hit_at: time.monotonic() - hit_at >= every, "the next kill", within=every + 60)
            await client.limits.put(gated.few, gated.LIMIT)
            done = await scene.finished(handles, within=300 + jobs * seconds)
        assert all(job.state == "completed" for job in done)
        assert sampler.most[RUNNING] == gated.LIMIT, sampler.most
        assert sampler.most[IN_TURN] <= len(LINES + STRICT_LINES), sampler.most
        assert sampler.samples > 100
        assert out_of_order(scene, frozen) == {}
        await until(lambda: rows(scene, PLACES) == [(0,)], "that nobody has a place", story=scene.story)
        assert deadlocks(scene) == 0
        chains = [await client.chain_jobs(job.id) for job in done if job.type == "strictly"]
        await scene.check([*(job for job in done if job.type != "strictly"), *(job for chain in chains for job in chain.jobs)])


async def freeze(scene: Scene, worker: WorkerProcess) -> None:
    """At any moment, also in the middle of a claim, which may have locked gates; on SQLite nobody could write then."""
    if scene.on_sqlite:
        await scene.freeze(worker)
    else:
        scene.hit.add(worker.pid)
        worker.stop()


def lease_is_gone(scene: Scene, worker: WorkerProcess) -> bool:
    return not rows(scene, f"select 1 from {{schema}}lease where worker like '%-{worker.pid}'")


async def test_a_limit_holds_while_a_holder_is_frozen_and_another_killed(scene: Scene) -> None:
    """Some seconds, since leases have to run out."""
    await held_to_the_limit(scene, workers=2, jobs=40, seconds=0.02, kills=1, every=0, freezes=1)


@pytest.mark.soak
async def test_a_limit_holds_for_long(scene: Scene) -> None:
    await held_to_the_limit(scene, workers=WORKERS, jobs=2_000, seconds=0.1, kills=20, every=3, freezes=5)


async def cut_and_deleted(scene: Scene, *, jobs: int, rounds: int) -> None:
    """Connections are cut at any moment, and rows of those that run are deleted: a place is neither given twice nor lost."""
    deleted = 0
    async with scene.client() as client:
        for _ in range(WORKERS):
            scene.worker(serves="gated", **SETTINGS)
        with Sampler(scene, RUNNING) as sampler:
            await client.enqueue_many([gated.few(0.01) for _ in range(jobs)])
            for number in range(rounds):
                begun = scene.ledger.count("start")
                await until(
                    lambda begun=begun: scene.ledger.count("start") > begun, "somebody who has a place", story=scene.story
                )
                execute(scene.direct, CUT)
                if number % 3 == 0:
                    deleted += len(execute(scene.direct, DELETED))
            await until(lambda: live(scene) == 0, "the end of all jobs", within=180, story=scene.story)
        assert sampler.most[RUNNING] == gated.LIMIT
        assert rows(scene, "select count(*) from {schema}archive where state = 4") == [(jobs - deleted,)]
        await until(lambda: rows(scene, PLACES) == [(0,)], "that nobody has a place", story=scene.story)
        assert deadlocks(scene) == 0


def live(scene: Scene) -> int:
    return int(rows(scene, "select count(*) from {schema}job")[0][0])


@pytest.mark.soak
async def test_a_limit_holds_while_connections_are_cut_and_rows_deleted(scene_on_postgres: Scene) -> None:
    await cut_and_deleted(scene_on_postgres, jobs=1_000, rounds=100)
