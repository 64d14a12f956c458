"""A running job that somebody ends or deletes: its attempt is told at once, and stopped."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioqueue import Client, JobState, Registry, Worker, current_attempt
from aioqueue.telemetry._counters import LEDGER, AttemptOutcome
from aioqueue.vocabulary._job import Ending, SettlementKind

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True


@pytest.mark.parametrize("how", ["completed", "failed", "deleted"])
async def test_its_attempt_is_cancelled_and_told_why(client: Client, how: str, caplog: pytest.LogCaptureFixture) -> None:
    registry, runs, stopped = Registry(), asyncio.Event(), asyncio.Event()
    said: list[object] = []

    @registry.job
    async def waits() -> str:
        runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            said.append(current_attempt().cancelled)
            stopped.set()
        return "never"

    handle = await client.enqueue(waits())
    before = LEDGER.total().of("waits").outcomes[AttemptOutcome.LOST]
    with caplog.at_level(logging.INFO, "aioqueue.worker"):
        # Renewals are far away: it's told at once.
        async with Worker(client, registry, lease=600, poll_interval=600):
            await asyncio.wait_for(runs.wait(), 10)
            if how == "deleted":
                await client.store.delete([handle.id])
            else:
                kind = SettlementKind.COMPLETED if how == "completed" else SettlementKind.FAILED
                ending = Ending(id=handle.id, kind=kind, output=b'"theirs"' if how == "completed" else None)
                assert await client.store.end([ending]) == [True]
            await asyncio.wait_for(stopped.wait(), 10)
    assert said == [True]
    reasons = [getattr(each, "reason", "") for each in caplog.records if getattr(each, "event", "") == "attempt.lost"]
    assert reasons == ["not_found" if how == "deleted" else "already_completed"]
    assert LEDGER.total().of("waits").outcomes[AttemptOutcome.LOST] == before + 1
    (job,) = await client.store.fetch([handle.id])
    if how == "deleted":
        assert job is None
    else:
        assert job is not None
        assert job.state is (JobState.COMPLETED if how == "completed" else JobState.FAILED)
        assert job.output == ("theirs" if how == "completed" else None)


@pytest.mark.without_postgres
async def test_what_it_has_enqueued_is_dropped(client: Client) -> None:
    registry, runs = Registry(), asyncio.Event()
    go_on = asyncio.Event()

    @registry.job
    async def child() -> None: ...

    @registry.job
    async def stubborn() -> str:
        current_attempt().enqueue(child())
        runs.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "mine"

    handle = await client.enqueue(stubborn())
    async with Worker(client, registry, lease=600):
        await asyncio.wait_for(runs.wait(), 10)
        ending = Ending(id=handle.id, kind=SettlementKind.COMPLETED, output=b'"theirs"')
        assert await client.store.end([ending]) == [True]
        go_on.set()
    assert await handle.result(timeout=5) == "theirs"
    assert (await client.list_jobs(types=["child"])).jobs == ()
