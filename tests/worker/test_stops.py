"""How a worker ends before it has begun, and in the turn in which a job starts. On both stores."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, JobState
from aioqueue.vocabulary._job import LostReason
from aioqueue.worker import Worker, _shutdown
from aioqueue.worker._run import _BODIES
from aioqueue.worker._slots import Slots
from aioqueue.worker._stop_reason import StopReason
from tests.worker.faults import Faults, Jobs, ended, until
from tests.worker.insides import left_behind, parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


# -- a stop before the first step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
async def test_a_stop_before_the_first_step_is_remembered(client: Client, jobs: Jobs, faults: Faults, *, force: bool) -> None:
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, grace=600, poll_interval=600)
    task = asyncio.create_task(worker.run())
    worker.stop(force=force)
    await ended(task)
    assert not faults.calls["claim"]
    assert (await handle.snapshot()).state is JobState.READY
    assert await worker.run_once()  # the request was for that run
    assert (await handle.snapshot()).state is JobState.COMPLETED


async def test_a_stop_before_a_block_ends_it_at_once_and_only_that(client: Client, jobs: Jobs, faults: Faults) -> None:
    worker = Worker(client, jobs.registry, grace=600)
    worker.stop()
    async with worker:
        await until(lambda: not worker.health().running)
        worker.stop()  # again, after it has ended
    assert not faults.calls["claim"]
    async with worker:
        assert worker.health().running
        assert await (await client.enqueue(jobs.quick())).result(timeout=60) == 1


async def test_a_stop_after_the_end_of_a_block_s_run_isnt_kept_for_the_next(client: Client, jobs: Jobs) -> None:
    worker = Worker(client, jobs.registry)
    for _ in range(2):
        async with worker:
            assert await (await client.enqueue(jobs.quick())).result(timeout=60) == 1
            worker.stop()
            await until(lambda: not worker.health().running)
            worker.stop()


async def test_a_stop_while_the_lease_is_being_opened(client: Client, jobs: Jobs, faults: Faults) -> None:
    """It waits for nothing: nothing has been claimed."""
    faults.gates["open_lease"] = asyncio.Event()
    worker = Worker(client, jobs.registry, grace=600)
    task = asyncio.create_task(worker.run())
    await until(lambda: faults.calls["open_lease"])
    began = time.monotonic()
    worker.stop()
    await ended(task)
    assert time.monotonic() - began < _shutdown._LAST_CLAIM_SECONDS
    faults.gates["open_lease"].set()


# -- in the turn in which a job starts --------------------------------------------------------------------------------


def lose(worker: Worker) -> None:
    holdings = parts(worker).holdings
    holdings.lose(list(holdings.running.values()), LostReason.TAKEN)


def cancel(worker: Worker) -> None:
    for slot in parts(worker).holdings.running.values():
        assert slot.task is not None
        slot.task.cancel()


def time_out(worker: Worker) -> None:
    for slot in parts(worker).holdings.running.values():
        slot.cancel(StopReason.TIMEOUT)


def stop(worker: Worker) -> None:
    worker.stop()


def force(worker: Worker) -> None:
    worker.stop(force=True)


def stop_and_cancel(worker: Worker) -> None:
    worker.stop()
    parts(worker).holdings.cancel_all(StopReason.SHUTDOWN)


@pytest.mark.parametrize("act", [lose, cancel, time_out, stop, force, stop_and_cancel])
async def test_a_slot_is_freed_though_its_task_took_no_step(
    client: Client, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, act: Callable[[Worker], None]
) -> None:
    real, done = Slots.start, asyncio.Event()

    def start(slots: Slots, job: ClaimedJob) -> None:
        real(slots, job)
        if not done.is_set():
            done.set()
            act(worker)

    monkeypatch.setattr(Slots, "start", start)
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, concurrency=1, grace=600, poll_interval=600, renew_every=0.1)
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        await done.wait()
    await until(lambda: worker.health().busy == 0)
    assert not _BODIES
    if act in {lose, cancel, time_out}:
        assert await handle.result(timeout=60) == 1  # the slot takes it again when it's given back
        worker.stop()
    else:
        await ended(task)
        job = await handle.snapshot()
        assert (job.state, job.attempt) == ((JobState.READY, 0) if act is stop_and_cancel else (JobState.COMPLETED, 1))
    begun = time.monotonic()
    await ended(task)
    assert time.monotonic() - begun < 30  # and not the grace
    assert (worker.health().busy, left_behind(worker)) == (0, 0)
