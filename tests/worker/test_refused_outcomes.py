"""Outcomes that the database refuses: less and less is written of them, and what can't be written at all stops nothing else."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioqueue import (
    Client,
    JobState,
    RowRejected,
)
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.worker import Worker, _refusal
from tests.worker.faults import Faults, until
from tests.worker.refusals import REFUSED, Refusals, Work, results

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_what_is_written_instead_of_a_refused_outcome_becomes_less_until_its_accepted(
    client: Client, work: Work, refusals: Refusals, caplog, times: int, raises: bool
) -> None:
    handle = await client.enqueue(work.work())
    refusals.says = lambda settlement: (
        (RowRejected(REFUSED.message) if raises else REFUSED) if len(refusals.asked[settlement.id]) <= times else None
    )
    done = await Worker(client, work.registry).run_once()
    assert (done.completed, done.failed) == (0, 1)
    job = await handle.snapshot()
    assert (job.state, job.attempt, job.output_json, job.outcome) == (JobState.FAILED, 1, None, None)
    messages = {1: ["the outcome was refused: it can't be\\nstored"], 2: ["the outcome was refused"], 3: []}
    assert [(error.type, error.attempt) for error in job.errors] == [("OutcomeRefused", 1)] * len(messages[times])
    assert [error.message for error in job.errors] == messages[times]
    assert work.runs == {handle.id: 1}
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told.__dict__["job_id"] == str(handle.id)
    assert "it can't be\\nstored" in told.getMessage()


async def test_a_job_of_which_nothing_can_be_written_doesnt_run_again_and_stops_nothing(
    client: Client, url: str, work: Work, refusals: Refusals, monkeypatch, caplog
) -> None:
    """It stays the worker's as long as that lives, and then it has used an attempt."""
    faults = Faults(client, monkeypatch)
    bad = await client.enqueue(work.work())
    refusals.of(bad.id, REFUSED)
    worker = Worker(client, work.registry, concurrency=1, lease=1, renew_every=0.05, poll_interval=0.05)
    async with worker:
        await until(lambda: worker.health().troubles)
        assert str(bad.id) in worker.health().troubles["outcome"]
        assert (worker.health().ok, worker.health().unwritten) == (True, 0)
        await renewals(faults, 5)
        assert await results([await client.enqueue(work.work()) for _ in range(5)]) == [1] * 5
        await renewals(faults, 5)
        job = await bad.snapshot()
        assert (job.state, job.attempt) == (JobState.RUNNING, 1)
    assert work.runs[bad.id] == 1
    told = [record for record in caplog.records if record.levelno == logging.ERROR and str(bad.id) in record.getMessage()]
    assert told[0].__dict__["job_id"] == str(bad.id)
    assert "nothing can be written" in told[0].getMessage()
    job = await bad.snapshot()
    assert (job.state, job.attempt) == (JobState.RUNNING, 1)  # not given back: that would uncount it
    async with Client(url) as other, Worker(other, work.registry, lease=1, poll_interval=0.05):
        assert await other.handle(work.work, bad.id).result(timeout=60) == 2
    assert work.numbers[bad.id] == [1, 2]
    job = await bad.snapshot()
    assert [error.type for error in job.errors] == ["WorkerLost"]


async def renewals(faults: Faults, number: int) -> None:
    """Wait until the lease's thread has asked so many times more."""
    wanted = faults.calls["renew"] + number
    await until(lambda: faults.calls["renew"] >= wanted)


async def test_run_once_ends_beside_a_job_of_which_nothing_can_be_written(
    client: Client, work: Work, refusals: Refusals
) -> None:
    bad, good = await client.enqueue_many([work.work() for _ in range(2)])
    refusals.of(bad.id, RowRejected("it can't be stored"))
    async with asyncio.timeout(60):
        done = await Worker(client, work.registry).run_once()
    assert (done.completed, done.failed) == (1, 0)
    assert await good.result(timeout=60) == 1
    assert [refusals.asked[bad.id][0].kind, refusals.asked[bad.id][-1].kind] == [
        SettlementKind.COMPLETED,
        SettlementKind.FAILED,
    ]


async def test_what_was_refused_is_written_when_its_accepted_at_last(
    client: Client, work: Work, refusals: Refusals, monkeypatch
) -> None:
    monkeypatch.setattr(_refusal, "_FIRST_SECONDS", 0.05)
    handle = await client.enqueue(work.work())
    refusals.of(handle.id, REFUSED)
    worker = Worker(client, work.registry)
    async with worker:
        await until(lambda: len(refusals.asked[handle.id]) > 6)
        refusals.says = lambda _: None
        await until(lambda: not worker.health().troubles)
        job = await handle.snapshot()
        assert (job.state, job.attempt) == (JobState.FAILED, 1)
        assert worker.health().unwritten == 0
    assert work.runs == {handle.id: 1}
