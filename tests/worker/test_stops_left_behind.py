"""How a worker ends whose jobs don't stop: it names them, and leaves them behind. On both stores."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, JobState, Registry
from aioqueue.worker import Worker
from aioqueue.worker._run import _BODIES
from tests.worker.faults import Jobs, ended, until
from tests.worker.insides import left_behind
from tests.worker.stubborn import Stubborn

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


@pytest.mark.parametrize("how", ["stop", "block", "force"])
@pytest.mark.usefixtures("hurried")
async def test_a_worker_lets_go_of_a_job_that_swallows_its_cancellation(
    client: Client, stubborn: Stubborn, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """It ends, and names the job, whose claim stays."""
    handle = await client.enqueue(stubborn.stubborn())
    worker = Worker(client, stubborn.registry, lease=1, grace=0.1)
    if how == "block":
        async with asyncio.timeout(60), worker:
            await stubborn.started()
    else:
        task = asyncio.create_task(worker.run())
        await stubborn.started()
        worker.stop(force=how == "force")
        await ended(task)
    assert not worker.health().running
    (named,) = [record for record in caplog.records if str(handle.id) in record.message and record.levelno == logging.WARNING]
    assert "stubborn" in named.message
    assert left_behind(worker) == 1
    assert stubborn.swallowed >= 1
    assert (await handle.snapshot()).state is JobState.RUNNING


@pytest.mark.usefixtures("hurried")
async def test_a_body_that_was_left_behind_isnt_begun_again_beside_it(
    client: Client, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease is renewed no more, so that others get it; here it waits until the body has ended."""
    handle = await client.enqueue(stubborn.stubborn())
    async with Worker(client, stubborn.registry, lease=1, grace=0.1):
        await stubborn.started()
    async with Worker(client, stubborn.registry, lease=1, poll_interval=0.05):
        await until(lambda: "took over 1 jobs" in caplog.text)
        assert handle.id in _BODIES
        await asyncio.sleep(0.3)  # what is waited for is that nothing happens
        assert stubborn.starts.empty()
        stubborn.release.set()
        assert await handle.result(timeout=60) == 2


@pytest.mark.usefixtures("hurried")
async def test_a_thread_that_doesnt_stop_is_left_behind(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    registry, gate, started = Registry(), threading.Event(), threading.Event()

    @registry.job
    def in_thread() -> None:
        started.set()
        gate.wait(120)

    handle = await client.enqueue(in_thread())
    worker = Worker(client, registry, lease=600, grace=0)
    task = asyncio.create_task(worker.run())
    await until(started.is_set)
    worker.stop()
    try:
        await ended(task)
        assert (await handle.snapshot()).state is JobState.RUNNING
        assert handle.id in _BODIES
        assert [record.levelname for record in caplog.records if str(handle.id) in record.message][-1] == "WARNING"
    finally:
        gate.set()
    await until(lambda: handle.id not in _BODIES)


async def test_what_ends_while_it_is_interrupted_is_given_back(client: Client, jobs: Jobs) -> None:
    """The time after the grace is for that."""
    registry, started = Registry(), asyncio.Event()

    @registry.job
    async def slow_to_stop() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.5)

    handle = await client.enqueue(slow_to_stop())
    worker = Worker(client, registry, grace=0.01, lease=600)
    async with worker:
        await started.wait()
    job = await handle.snapshot()
    assert (job.state, job.attempt, left_behind(worker)) == (JobState.READY, 0, 0)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("job", ["stubborn", "parent"])
def test_what_is_left_behind_doesnt_keep_the_event_loop_from_ending(
    url: str, job: str, hurried: None, caplog: pytest.LogCaptureFixture, *, force: bool
) -> None:
    """`asyncio.run`, in which servers run, waits for every task that it sees: for the job's, and those that it has started."""

    async def serve() -> None:
        stubborn = Stubborn()
        async with Client(url) as client:
            async with Worker(client, stubborn.registry, grace=0.1, lease=600) as worker:
                await client.enqueue(getattr(stubborn, job)())
                await stubborn.started()
                worker.stop(force=force)
            if force:  # it had no time to react yet
                await until(lambda: not jobs_in_sight())

    def jobs_in_sight() -> list[str]:
        names = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
        return list({"Slots._run", "Stubborn.hold_on"} & names)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len([record for record in caplog.records if "doesn't stop" in record.message]) == 1


def test_a_body_whose_event_loop_is_closed_is_forgotten(tmp_path: Path, hurried: None) -> None:
    """It will never go on: the job may run in another loop of the process."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def leave() -> None:
        stubborn = Stubborn()
        async with Client(url) as client, Worker(client, stubborn.registry, grace=0.1, lease=1):
            await client.enqueue(stubborn.stubborn())
            await stubborn.started()

    async def run() -> int:
        stubborn = Stubborn()
        stubborn.release.set()
        async with Client(url) as client, Worker(client, stubborn.registry, lease=1, poll_interval=0.05):
            return await stubborn.started()

    asyncio.run(leave())
    assert _BODIES
    assert asyncio.run(run()) == 2
    assert not _BODIES
