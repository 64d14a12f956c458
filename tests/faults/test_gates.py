"""Limits and sequences while those who hold places are killed and frozen, and connections are cut: the database is sampled."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.faults import gated
from tests.postgres_server import execute
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.faults.scene import Scene
    from tests.processes import WorkerProcess

pytestmark = pytest.mark.anyio

WORKERS = 5
RUNNING = "select count(*) from {schema}job where type = 'few' and state = 2"
IN_TURN = "select count(*) from {schema}job where type = 'in_turn' and state = 2"
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
SETTINGS = {"lease": "1500ms", "renew_every": "500ms", "poll_interval": "30s"}


class Sampler:
    """Counts what runs, by looking at the database all the time, in a thread with a connection of its own.

    Attributes:
        most: The highest of each count.
        samples: How many looks there were.
    """

    def __init__(self, scene: Scene, *queries: str) -> None:
        self._scene = scene
        self._queries = queries
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most = dict.fromkeys(queries, 0)
        self.samples = 0
        self.error: Exception | None = None

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _look(self) -> None:
        try:
            if self._scene.on_sqlite:
                with closing(sqlite3.connect(self._scene.direct.removeprefix("sqlite:///"), timeout=60)) as connection:
                    self._sample(lambda query: connection.execute(query.format(schema="")).fetchone()[0])
            else:
                with psycopg.connect(self._scene.direct, autocommit=True, application_name="sampler") as connection:
                    self._sample(lambda query: _first(connection, query.format(schema="aioqueue.")))
        except Exception as error:  # raised by whoever leaves the block
            self.error = error

    def _sample(self, count: Callable[[str], int]) -> None:
        while not self._over.is_set():
            for query in self._queries:
                self.most[query] = max(self.most[query], count(query))
            self.samples += 1
            time.sleep(0.001)  # for those who are looked at


def _first(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def rows(scene: Scene, query: str) -> list[tuple[Any, ...]]:
    if scene.on_sqlite:
        with closing(sqlite3.connect(scene.direct.removeprefix("sqlite:///"), timeout=60)) as connection:
            return connection.execute(query.format(schema="")).fetchall()
    return list(execute(scene.direct, query.format(schema="aioqueue.")))


async def a_holder(scene: Scene) -> WorkerProcess:
    """A worker that lives and holds a place."""
    found: list[WorkerProcess] = []

    def look() -> bool:
        pids = {str(row[0]).rsplit("-", 1)[-1] for row in rows(scene, HOLDERS)}
        found[:] = [worker for worker in scene.workers if worker.alive and str(worker.pid) in pids]
        return bool(found)

    await until(look, "somebody who holds a place", story=scene.story)
    return random.Random(len(scene.workers)).choice(found)


def in_order(scene: Scene) -> bool:
    """Whether each line's jobs have begun in their order for the first time."""
    lines: dict[str, list[int]] = {}
    for entry in sorted(scene.ledger.entries(), key=lambda entry: entry.at):
        if entry.event == "start" and entry.note:
            line, number = entry.note.split()
            if int(number) not in lines.setdefault(line, []):
                lines[line].append(int(number))
    return all(numbers == sorted(numbers) for numbers in lines.values())


async def held_to_the_limit(scene: Scene, *, jobs: int, seconds: float, kills: int, every: float, freezes: int) -> None:
    """Holders are killed and replaced, and frozen until others have taken their leases; then all is drained.

    Arguments:
        jobs: That wait for the limit; each takes up to so many seconds.
        kills, freezes: How many holders are hit.
        every: Seconds between two kills.
    """
    chance = random.Random(jobs)
    async with scene.client() as client:
        started = [scene.worker(serves="gated", **SETTINGS) for _ in range(WORKERS)]
        for worker in started:
            await worker.wait_for("slots for")
        with Sampler(scene, RUNNING, IN_TURN) as sampler:
            calls = [gated.few(chance.uniform(0, seconds)) for _ in range(jobs)]
            lines = [gated.in_turn(line, number) for number in range(jobs // 10) for line in "ab"]
            handles = await client.enqueue_many([*calls, *lines])
            for _ in range(freezes):
                victim = await a_holder(scene)
                await freeze(scene, victim)
                await until(lambda victim=victim: lease_is_gone(scene, victim), "its lease's end", story=scene.story)
                victim.cont()
            for number in range(kills):
                if number:
                    hit_at = time.monotonic()
                    await until(lambda hit_at=hit_at: time.monotonic() - hit_at >= every, "the next kill", within=every + 60)
                if all([(await handle.snapshot()).state.finished for handle in handles]):
                    handles += await client.enqueue_many([gated.few(chance.uniform(0, seconds)) for _ in range(jobs)])
                scene.kill(await a_holder(scene))
                scene.worker(serves="gated", **SETTINGS)
            done = await scene.finished(handles, within=60 + jobs * seconds)
        assert all(job.state == "completed" for job in done)
        assert sampler.most[RUNNING] == gated.LIMIT, sampler.most
        assert sampler.most[IN_TURN] <= 2, sampler.most
        assert sampler.samples > 100
        assert in_order(scene)
        assert rows(scene, PLACES) == [(0,)]
        await scene.check(done)


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
    await held_to_the_limit(scene, jobs=60, seconds=0.05, kills=1, every=0, freezes=1)


@pytest.mark.soak
async def test_a_limit_holds_for_long(scene: Scene) -> None:
    await held_to_the_limit(scene, jobs=2_000, seconds=0.1, kills=20, every=3, freezes=5)


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


def live(scene: Scene) -> int:
    return int(rows(scene, "select count(*) from {schema}job")[0][0])


@pytest.mark.soak
async def test_a_limit_holds_while_connections_are_cut_and_rows_deleted(scene_on_postgres: Scene) -> None:
    await cut_and_deleted(scene_on_postgres, jobs=1_000, rounds=100)
