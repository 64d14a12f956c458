"""Faults on the line to PostgreSQL: answers that never come, and silence."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue import Client, JobState
from tests.faults import app
from tests.faults.scene import Scene
from tests.faults.test_proxy import port_of, through
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

INSERT = r"insert into .*\bjob\b|enqueue_v"
SETTLE = r"insert into .*\barchive\b"
GIVE_BACK = r"set state = 1, lease_id = null"
IMPATIENT = "?timeout=5"
"""Seconds for one statement instead of 60."""


@asynccontextmanager
async def behind_proxy(url: str, folder: Path) -> AsyncIterator[tuple[Scene, Proxy]]:
    """Workers reach the database through the proxy, the test itself directly."""
    async with Proxy(port_of(url)) as proxy:
        scene = Scene(through(url, proxy), folder, direct=url)
        try:
            yield scene, proxy
        finally:
            scene.close()


@pytest.mark.parametrize("way", ["alone", "many", "transaction"])
async def test_an_enqueue_whose_commit_got_no_answer_makes_one_job(postgres_url: str, way: str) -> None:
    async with Proxy(port_of(postgres_url)) as proxy, Client(through(postgres_url, proxy)) as client:
        proxy.swallow("^commit" if way == "transaction" else INSERT)
        call = app.nap(0)
        if way == "alone":
            handle = await client.enqueue(call)
            assert handle.created
        elif way == "many":
            handle, *_ = await client.enqueue_many([call, app.nap(0)])
        else:
            with pytest.raises(Exception):  # noqa: B017 - the user's to repeat: the same call again is safe
                async with client.transaction() as tx:
                    await tx.enqueue(call)
            handle = await client.enqueue(call)
        assert proxy.swallowed.is_set()
        assert (await handle.snapshot()).state is JobState.READY
    ids = execute(postgres_url, "select id from aioqueue.job")
    assert len(ids) == len(set(ids)) == (2 if way == "many" else 1)


@pytest.mark.parametrize("times", [1, 5])
async def test_a_settlement_whose_commit_got_no_answer_is_written_once(postgres_url: str, tmp_path: Path, times: int) -> None:
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        worker = scene.worker(lease="600s", renew_every="1s")
        await scene.finished([await client.enqueue(app.nap(0))])
        proxy.swallow(SETTLE, times=times)
        handles = await client.enqueue_many([app.nap(0) for _ in range(20)])
        jobs = await scene.finished(handles)
        assert proxy.swallowed.is_set()
        assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
        assert worker.alive
        assert scene.ledger.count("start") == 21
        await scene.check(
            [*jobs, *[job for job in (await client.list_jobs(limit=100)).jobs if job.id not in {j.id for j in jobs}]]
        )


async def test_connections_that_are_cut_again_and_again(postgres_url: str, tmp_path: Path) -> None:
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        scene.worker(lease="600s", renew_every="1s")
        handles = await client.enqueue_many([app.nap(0.01) for _ in range(100)])
        for number in (10, 30, 50, 70):
            await scene.started(number)
            proxy.cut()
        jobs = await scene.finished(handles)
        assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
        await scene.check(jobs)


async def test_silence_that_ends(postgres_url: str, tmp_path: Path) -> None:
    """Nothing comes through for longer than a lease; another worker, on a line of its own, takes over."""
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        gate = scene.gate()
        handle = await client.enqueue(app.until_exists(str(gate)))
        silent = scene.worker()
        await scene.started(1)
        proxy.pause()
        scene.hit.add(silent.pid)
        other = scene.worker(url=postgres_url)
        await scene.started(2)
        gate.touch()
        (job,) = await scene.finished([handle])
        assert (job.state, job.attempt, job.output["pid"]) == (JobState.COMPLETED, 2, other.pid)
        proxy.resume()
        scene.kill(other)
        canary = await client.enqueue(app.nap(0))
        with anyio.fail_after(180):
            (after,) = await scene.finished([canary])
        assert after.output["pid"] == silent.pid
        assert await handle.snapshot() == job
        await scene.check([job, after])


@pytest.mark.parametrize("statement", [GIVE_BACK, "^commit"], ids=["statement", "commit"])
async def test_a_release_that_got_no_answer_costs_no_attempt(postgres_url: str, tmp_path: Path, statement: str) -> None:
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        gate = scene.gate()
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        worker = scene.worker(lease="600s", renew_every="60s", grace="600s")
        await scene.started(3)
        proxy.swallow(statement)
        worker.terminate()
        await worker.wait_for(r": stopping")
        worker.terminate()
        await worker.exit_code()
        assert proxy.swallowed.is_set()
        jobs = [await handle.snapshot() for handle in handles]
        assert [(job.state, job.attempt, job.errors) for job in jobs] == [(JobState.READY, 0, ())] * 3
        gate.touch()
        scene.worker(url=postgres_url)
        jobs = await scene.finished(handles)
        assert [(job.state, job.attempt) for job in jobs] == [(JobState.COMPLETED, 1)] * 3
        await scene.check(jobs)


async def test_connections_that_the_network_has_forgotten(postgres_url: str, tmp_path: Path) -> None:
    """Nothing ever comes through them again, and nothing says so; new ones work."""
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        gate = scene.gate()
        handles = await client.enqueue_many([app.until_exists(str(gate)) for _ in range(3)])
        worker = scene.worker(url=scene.url + IMPATIENT, lease="600s", renew_every="1s")
        await scene.started(3)
        for connection in proxy.connections:
            connection.pause()
        gate.touch()
        handles += await client.enqueue_many([app.nap(0) for _ in range(10)])
        jobs = await scene.finished(handles)
        assert {(job.state, job.attempt, job.output["pid"]) for job in jobs} == {(JobState.COMPLETED, 1, worker.pid)}
        await scene.check(jobs)


@pytest.mark.parametrize("poll", ["500ms", pytest.param("1h", marks=pytest.mark.soak)])
async def test_a_listener_that_the_network_has_forgotten(postgres_url: str, tmp_path: Path, poll: str) -> None:
    """Jobs are found by polling; and without it when the silence has been noticed, which takes half a minute."""
    async with behind_proxy(postgres_url, tmp_path) as (scene, proxy), scene.client() as client:
        scene.worker(lease="600s", renew_every="60s", poll_interval=poll)
        jobs = await scene.finished([await client.enqueue(app.nap(0))])
        listening = [each for each in proxy.connections if any("listen " in text.lower() for text in each.statements)]
        assert listening
        for connection in listening:
            connection.pause()
        jobs += await scene.finished(await client.enqueue_many([app.nap(0) for _ in range(10)]))
        assert {(job.state, job.attempt) for job in jobs} == {(JobState.COMPLETED, 1)}
        await scene.check(jobs)
