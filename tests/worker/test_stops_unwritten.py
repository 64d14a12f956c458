"""How a worker ends whose outcomes can't be written, or whose store gives no answer. On both stores."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from aioqueue import Client, JobState
from aioqueue.worker import Worker, _shutdown, run_until_signalled
from tests.worker.faults import Faults, Jobs, ended, until
from tests.worker.insides import left_behind
from tests.worker.stubborn import Stubborn

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


async def test_a_stop_waits_for_outcomes_as_long_as_its_grace(
    client: Client, jobs: Jobs, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shutdown, "_FLUSH_SECONDS", 0.05)
    gate = faults.gates["settle"] = asyncio.Event()
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, grace=600, lease=1)
    task = asyncio.create_task(worker.run())
    await until(lambda: faults.calls["settle"])
    worker.stop()
    done, _ = await asyncio.wait([task], timeout=2.5)  # also for longer than a lease: it's renewed meanwhile
    assert not done
    assert worker.health().lease_valid
    gate.set()
    await ended(task)
    assert (await handle.snapshot()).state is JobState.COMPLETED
    assert left_behind(worker) == 0


@pytest.mark.usefixtures("hurried")
async def test_outcomes_that_werent_written_are_named_and_the_exit_code_says_so(
    client: Client, jobs: Jobs, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    faults.gates["settle"] = asyncio.Event()
    handles = await client.enqueue_many([jobs.quick() for _ in range(3)])
    worker = Worker(client, jobs.registry, grace=0.1, lease=600)
    task = asyncio.create_task(run_until_signalled(worker))
    await until(lambda: faults.calls["settle"])
    await until(lambda: worker.health().busy == 0)
    worker.stop()
    await ended(task)
    assert task.result() == 4
    named = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(named) == 3
    for handle in handles:
        assert any(str(handle.id) in record.message and "quick" in record.message for record in named)
        assert (await handle.snapshot()).state is JobState.RUNNING


@pytest.mark.usefixtures("hurried")
async def test_jobs_that_couldnt_be_given_back_are_named(
    client: Client, jobs: Jobs, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await client.enqueue(jobs.held())
    worker = Worker(client, jobs.registry, grace=0, lease=600)
    task = asyncio.create_task(worker.run())
    await jobs.started()
    faults.failing.add("release")
    worker.stop()
    await ended(task)
    assert any(str(handle.id) in record.message for record in caplog.records if record.levelno == logging.ERROR)
    assert left_behind(worker) == 1


@pytest.mark.usefixtures("hurried")
async def test_a_claim_that_arrives_after_the_stop_is_given_back(client: Client, jobs: Jobs, faults: Faults) -> None:
    gate = faults.gates["claim"] = asyncio.Event()
    handle = await client.enqueue(jobs.quick())
    worker = Worker(client, jobs.registry, grace=600, lease=600)
    task = asyncio.create_task(worker.run())
    await until(lambda: faults.calls["claim"])
    worker.stop()
    gate.set()
    await ended(task)
    job = await handle.snapshot()
    assert (job.state, job.attempt) == (JobState.READY, 0)


@pytest.mark.parametrize("verb", ["claim", "settle", "release", "next_due"])
@pytest.mark.usefixtures("hurried")
async def test_a_stop_is_bounded_whatever_hangs(
    client: Client, jobs: Jobs, faults: Faults, stubborn: Stubborn, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Also a call of the store that doesn't react to being cancelled."""
    real = getattr(client.store, verb)

    async def deaf(*arguments: Any, **named: Any) -> Any:
        await stubborn.hold_on()
        return await real(*arguments, **named)

    await client.enqueue_many([jobs.quick(), jobs.held()])
    monkeypatch.setattr(client.store, verb, deaf)
    worker = Worker(client, jobs.registry, grace=0.2, lease=600, concurrency=1)
    task = asyncio.create_task(worker.run())
    await asyncio.sleep(0.3)
    begun = time.monotonic()
    worker.stop()
    await ended(task)
    assert time.monotonic() - begun < _shutdown.longest_stop(0.2) + 10
