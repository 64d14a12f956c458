"""How a completing transaction meets what ends attempts: errors after it, timeouts, stops, and the loss of the claim."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, JobState, LeaseLost, Registry, Worker, current_attempt
from aioqueue.vocabulary._job import LostReason
from tests.worker.chains import once
from tests.worker.completing import Notes, outcomes, run
from tests.worker.insides import parts

if TYPE_CHECKING:
    from aioqueue import Attempt, CallNext

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True


async def test_once_committed_the_outcome_stands_whatever_comes_later(
    client: Client, registry: Registry, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails_late(attempt: Attempt, call_next: CallNext) -> object:
        result = await call_next()
        if result == "middleware":
            raise ValueError("in the middleware")
        return result

    @registry.job(retry=once, middlewares=[fails_late])
    async def late(how: str) -> str:
        async with current_attempt().completion() as tx:
            await notes.write(tx, how)
            tx.done(how)
        if how == "handler":
            raise ValueError("in the handler")
        if how == "timeout":
            await asyncio.Event().wait()
        return "something else" if how == "other" else how

    before = outcomes("late")
    for how, what in {
        "handler": "attempt.failed_late",
        "middleware": "attempt.failed_late",
        "timeout": "attempt.stopped_late",
        "other": "attempt.result_ignored",
    }.items():
        caplog.clear()
        with caplog.at_level(logging.INFO, "aioqueue.worker"):
            handle = await run(client, registry, late(how).options(timeout=0.1 if how == "timeout" else None))
        job = await handle.snapshot()
        assert (job.state, job.output, job.errors) == (JobState.COMPLETED, how, ())
        told = [getattr(record, "event", "") for record in caplog.records]
        assert (told.count(what), told.count("attempt.ended"), told.count("attempt.lost")) == (1, 1, 0)
    assert await notes.all() == ["handler", "middleware", "other", "timeout"]
    assert outcomes("late") == {**before, "ok": before.get("ok", 0) + 4}


async def test_a_stop_after_the_commit_changes_nothing(client: Client, registry: Registry) -> None:
    committed = asyncio.Event()

    @registry.job
    async def lingers() -> str:
        async with current_attempt().completion() as tx:
            tx.done("kept")
        committed.set()
        await asyncio.Event().wait()
        return "never"

    handle = await client.enqueue(lingers())
    async with Worker(client, registry, grace=0):
        await asyncio.wait_for(committed.wait(), 10)
    assert await handle.result(timeout=5) == "kept"
    assert (await handle.snapshot()).attempt == 1


async def test_a_stop_within_the_block_rolls_back(client: Client, registry: Registry, notes: Notes) -> None:
    begun = asyncio.Event()

    @registry.job
    async def waits() -> str:
        async with current_attempt().completion() as tx:
            await notes.write(tx, "lost")
            begun.set()
            await asyncio.Event().wait()
            return tx.done("never")

    handle = await client.enqueue(waits())
    async with Worker(client, registry, grace=0):
        await asyncio.wait_for(begun.wait(), 10)
    assert (await handle.snapshot()).state is JobState.READY
    assert await notes.all() == []


async def test_a_lost_claim_is_told_on_entry(
    client: Client, registry: Registry, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[LeaseLost] = []

    @registry.job(retry=once)
    async def late() -> None:
        attempt = current_attempt()
        await client.store.release(attempt.job.lease_id, [attempt.job.claim])  # behind the worker's back
        try:
            async with attempt.completion() as tx:
                await notes.write(tx, "lost")
                tx.done(None)
        except LeaseLost as error:
            raised.append(error)
            raise

    handle = await client.enqueue(late())
    worker = Worker(client, registry)
    async with worker:
        while not raised:
            await asyncio.sleep(0.005)
        worker.stop(force=True)
    assert raised[0].reason in {reason.value for reason in LostReason}
    assert await notes.all() == []
    assert (await handle.snapshot()).state is not JobState.COMPLETED


@pytest.mark.without_postgres
@pytest.mark.parametrize("committed", [True, False])
async def test_what_is_heard_of_the_claim_within_the_block_counts_only_after_a_rollback(
    client: Client, registry: Registry, notes: Notes, caplog: pytest.LogCaptureFixture, *, committed: bool
) -> None:
    ran: list[str] = []

    @registry.job(retry=once)
    async def slow() -> str:
        holdings = parts(worker).holdings
        (slot,) = holdings.running.values()
        try:
            async with current_attempt().completion() as tx:
                holdings.lose([slot], LostReason.TAKEN)  # as when the lease is over
                await notes.write(tx, "kept")
                ran.append("on")
                if not committed:
                    raise ValueError("boom")
                tx.done("value")
            holdings.lose([slot], LostReason.COMPLETED)  # as when a renewal hears of our own commit
            await asyncio.sleep(0)
        except ValueError:
            await asyncio.Event().wait()  # it's cancelled
        return "value"

    worker = Worker(client, registry)
    handle = await client.enqueue(slow())
    with caplog.at_level(logging.INFO, "aioqueue.worker"):
        await worker.run_once()
    told = [getattr(record, "event", "") for record in caplog.records]
    assert ran == ["on"]
    assert told.count("attempt.lost") == (0 if committed else 1)
    assert told.count("attempt.ended") == (1 if committed else 0)
    assert ((await handle.snapshot()).state is JobState.COMPLETED) is committed
    assert await notes.all() == (["kept"] if committed else [])
