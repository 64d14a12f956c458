"""Claims that arrive too late to be begun, and how much may wait until no more is claimed."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, JobState
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim
from aioqueue.worker import Worker
from aioqueue.worker._holdings import Holdings
from aioqueue.worker._slots import Slots
from tests.worker.faults import Faults, Jobs, ended, until
from tests.worker.insides import left_behind, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


class LateAnswer:
    """The answer of the first claim that brings something is held back."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self._claim = client.store.claim
        self.claimed, self.arrives = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(client.store, "claim", self)

    async def __call__(self, *arguments: Any, **named: Any) -> Sequence[ClaimedJob]:
        jobs = await self._claim(*arguments, **named)
        if jobs:
            self.claimed.set()
            await self.arrives.wait()
        return jobs

    async def was_claimed(self) -> None:
        async with asyncio.timeout(60):
            await self.claimed.wait()


@pytest.mark.both_stores
async def test_a_claim_whose_answer_comes_after_the_leases_end_is_given_back_unbegun(
    client: Client, jobs: Jobs, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may run it by then. It's begun when it's claimed again, under the renewed lease, as the same attempt."""
    answer = LateAnswer(client, monkeypatch)
    handle = await client.enqueue(jobs.held())
    async with Worker(client, jobs.registry, lease=600, renew_every=100, grace=1, poll_interval=0.02) as worker:
        await answer.was_claimed()
        lease = parts(worker).leases.groups[0].lease
        assert lease is not None
        lease.ends = time.monotonic() - 1
        gate = faults.gates["release"] = asyncio.Event()
        answer.arrives.set()
        await until(lambda: faults.calls["release"] or jobs.starts.qsize())
        assert jobs.starts.empty()
        gate.set()
        assert await jobs.started() == 1
        jobs.gate.set()
        assert await handle.result(timeout=60) == 1


@pytest.mark.usefixtures("hurried")
async def test_a_late_claim_that_cant_be_given_back_is_named_at_the_stop(
    client: Client, jobs: Jobs, faults: Faults, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aioqueue.worker._shutdown._LAST_CLAIM_SECONDS", 60)
    answer = LateAnswer(client, monkeypatch)
    handle = await client.enqueue(jobs.quick())
    faults.failing.add("release")
    worker = Worker(client, jobs.registry, grace=0.2, lease=600)
    task = asyncio.create_task(worker.run())
    await answer.was_claimed()
    worker.stop()
    answer.arrives.set()
    await ended(task)
    assert any(str(handle.id) in record.message for record in caplog.records if record.levelno == logging.ERROR)
    assert left_behind(worker) == 1
    assert (await handle.snapshot()).state is JobState.RUNNING


async def test_what_waits_for_a_reason_of_its_own_keeps_others_from_being_claimed_from_some_number_on() -> None:
    nobody: Any = SimpleNamespace()
    holdings = Holdings()
    slots = Slots(nobody, nobody, 2, set(), holdings=holdings, writer=nobody, wakeup=nobody, leases=nobody, stages=nobody)

    def stuck(more: int) -> int:
        for _ in range(more):
            claim = Claim(new_id(), 1)
            holdings.held[claim] = nobody
            holdings.stuck.add(claim)
        return slots.free

    assert stuck(20) == 2  # ten per slot don't count
    assert [stuck(1) for _ in range(4)] == [2, 2, 1, 0]
