"""A running job that somebody cancels, on each store: its attempt hears of it at once, and what it ends as is stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Call,
    Cancellation,
    CancelReason,
    Client,
    Fail,
    Fixed,
    JobState,
    Registry,
    Retry,
    Worker,
    current_attempt,
    done,
)
from aioqueue.vocabulary._job import Settlement
from tests.worker.faults import until
from tests.worker.insides import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import SettleResult

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True

SOON = Retry(max_attempts=3, backoff=Fixed(0))


class Running:
    """A job that waits until it's cancelled, and ends as a test says."""

    def __init__(self, end: str) -> None:
        self.registry = Registry()
        self.runs = asyncio.Event()
        self.told: list[CancelReason | None] = []
        self.steps: list[str] = []

        @self.registry.job(retry=SOON)
        async def following() -> str:
            self.steps.append("following")
            return "end"

        @self.registry.job(retry=SOON)
        async def running() -> Call[str]:
            self.steps.append("running")
            self.runs.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.told.append(current_attempt().cancel_reason)
                if end == "cancelled":
                    raise
            if end == "fails":
                raise Fail("no")
            if end == "raises":
                raise ValueError("no")
            return following() if end == "continues" else done("a value")

        self.running = running


@pytest.mark.parametrize(
    ("end", "state", "error"),
    [
        ("returns", JobState.COMPLETED, None),
        ("continues", JobState.CANCELLED, "Cancelled"),  # the next job, unstarted
        ("fails", JobState.FAILED, "Fail"),
        ("raises", JobState.CANCELLED, "ValueError"),
        ("cancelled", JobState.CANCELLED, "Cancelled"),
    ],
)
async def test_what_it_ends_as(client: Client, end: str, state: JobState, error: str | None) -> None:
    job = Running(end)
    handle = await client.enqueue(job.running())
    # Renewals are far away: it's told at once.
    async with Worker(client, job.registry, lease=600, poll_interval=600) as worker:
        await asyncio.wait_for(job.runs.wait(), 10)
        assert await client.store.cancel([handle.id], "because") == [Cancellation.CANCELLING]
        await asyncio.wait_for(parts(worker).holdings.all_ended(), 10)
    assert job.told == [CancelReason.CANCELLED]
    assert job.steps == ["running"]
    snapshot = await handle.snapshot()
    assert snapshot.state is state
    assert (snapshot.errors[-1].type if snapshot.errors else None) == error


async def test_a_handler_inside_its_completing_transaction_hears_of_it(client: Client) -> None:
    if client.store.__class__.__name__ == "SQLiteStore":
        pytest.skip("there the block holds the file's only right to write")
    registry, runs = Registry(), asyncio.Event()
    told: list[CancelReason | None] = []

    @registry.job(retry=SOON)
    async def completes() -> str:
        attempt = current_attempt()
        try:
            async with attempt.completion() as tx:
                tx.done("sealed")
                runs.set()
                await asyncio.Event().wait()
        finally:
            told.append(attempt.cancel_reason)
        return "sealed"

    handle = await client.enqueue(completes())
    async with Worker(client, registry, lease=600, poll_interval=600) as worker:
        await asyncio.wait_for(runs.wait(), 10)
        assert (await client.store.cancel([handle.id], "because"))[0] in (Cancellation.CANCELLING, Cancellation.CANCELLED)
        await asyncio.wait_for(parts(worker).holdings.all_ended(), 10)
    assert told == [CancelReason.CANCELLED]
    assert (await handle.snapshot()).state is JobState.CANCELLED


async def test_a_request_that_comes_while_the_claims_answer_is_on_its_way(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, claimed, answer = Registry(), asyncio.Event(), asyncio.Event()
    ran: list[str] = []
    settled: list[Settlement] = []
    claims, settles = client.store.claim, client.store.settle

    @registry.job
    async def never() -> None:
        ran.append("never")

    async def claim(*arguments: Any, **named: Any) -> Any:
        jobs = await claims(*arguments, **named)
        if jobs:
            claimed.set()
            await answer.wait()
        return jobs

    async def settle(settlements: Sequence[Settlement], **named: Any) -> Sequence[SettleResult]:
        settled.extend(settlements)
        return await settles(settlements, **named)

    monkeypatch.setattr(client.store, "claim", claim)
    monkeypatch.setattr(client.store, "settle", settle)
    handle = await client.enqueue(never())
    async with Worker(client, registry, lease=600, poll_interval=600) as worker:
        await asyncio.wait_for(claimed.wait(), 10)
        assert await client.store.cancel([handle.id], "because") == [Cancellation.CANCELLING]
        await until(lambda: parts(worker).holdings.asked)
        answer.set()
        await until(lambda: settled)
    snapshot = await handle.snapshot()
    assert snapshot.state is JobState.CANCELLED
    assert ran == []
    assert len(settled) == 1
