"""Outcomes that can't be written now: they cost their own jobs something, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioqueue import (
    Client,
    ClientClosed,
    JobState,
    Registry,
    StoreError,
    StoreIncompatible,
    StoreUnavailable,
)
from aioqueue.runtime import _batcher
from aioqueue.vocabulary import _codec
from aioqueue.worker import Worker, _postponed, _writer
from tests.worker.faults import until
from tests.worker.insides import parts
from tests.worker.refusals import BUSY, Refusals, Verdict, Work, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import Claim

pytestmark = pytest.mark.anyio


# -- "not now" --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verdict",
    [BUSY, StoreError("a trigger raises"), StoreUnavailable("out of memory"), StoreIncompatible("its trigger's table is gone")],
    ids=["busy", "raises", "seems away", "seems incompatible"],
)
async def test_an_outcome_that_cant_be_written_now_holds_up_no_other(
    client: Client, work: Work, refusals: Refusals, verdict: Verdict
) -> None:
    late = await client.enqueue(work.work())
    refusals.of(late.id, verdict)
    worker = Worker(client, work.registry, concurrency=5, lease=600)
    async with worker:
        for _ in range(3):
            await results([await client.enqueue(work.work()) for _ in range(8)])
        await until(lambda: len(refusals.asked[late.id]) > 4)
        assert (await late.snapshot()).state is JobState.RUNNING
        assert worker.health().unwritten == 1
        refusals.says = lambda _: None
        assert await late.result(timeout=60) == 1
        await until(lambda: worker.health().troubles == {})
    assert set(work.runs.values()) == {1}
    assert (await late.snapshot()).attempt == 1


async def test_a_stop_waits_for_an_outcome_that_waits_and_has_written_the_others(
    client: Client, work: Work, refusals: Refusals
) -> None:
    handles = await client.enqueue_many([work.work() for _ in range(9)])
    refusals.of(handles[0].id, BUSY)
    worker = Worker(client, work.registry, concurrency=9)
    task = asyncio.create_task(worker.run())
    await results(handles[1:])
    worker.stop()
    await until(lambda: len(refusals.asked[handles[0].id]) > 3)
    assert not task.done()
    refusals.says = lambda _: None
    async with asyncio.timeout(60):
        await task
    assert await results(handles) == [1] * 9
    assert set(work.runs.values()) == {1}


async def test_outcomes_that_wait_for_themselves_dont_keep_a_worker_from_claiming(
    client: Client, work: Work, refusals: Refusals
) -> None:
    """Not those that wait for the database: they hold up what would only wait behind them."""
    handles = await client.enqueue_many([work.work() for _ in range(7)])
    bad = {handle.id for handle in handles}
    refusals.says = lambda settlement: BUSY if settlement.id in bad else None
    worker = Worker(client, work.registry, concurrency=2, poll_interval=0.05)
    async with worker:
        assert await results([await client.enqueue(work.work()) for _ in range(3)]) == [1, 1, 1]
        assert worker.health().unwritten == 7
        refusals.says = lambda _: StoreUnavailable("away")
        more = await client.enqueue_many([work.work() for _ in range(9)])
        await until(lambda: worker.health().unwritten == 11)
        calls = refusals.calls
        await until(lambda: refusals.calls > calls + 4)
        assert worker.health().unwritten == 11
        refusals.says = lambda _: None
        await results([*handles, *more])


async def test_what_waits_for_long_is_told(client: Client, work: Work, refusals: Refusals, monkeypatch, caplog) -> None:
    monkeypatch.setattr(_writer, "_BUSY_FOR_LONG_SECONDS", 0.2)
    late = await client.enqueue(work.work())
    refusals.of(late.id, BUSY)
    worker = Worker(client, work.registry)
    async with worker:
        await until(lambda: worker.health().troubles)
        (told,) = worker.health().troubles.values()
        assert str(late.id) in told
        assert "locked its row" in told
        assert worker.health().ok  # the others' are written, and a restart wouldn't help
        refusals.says = lambda _: None
        await late.result(timeout=60)
        await until(lambda: not worker.health().troubles)
    assert [record.getMessage() for record in caplog.records if "outcome fails" in record.getMessage()]


async def test_a_claim_that_cant_be_given_back_now_holds_up_no_other(client: Client, monkeypatch) -> None:
    registry = Registry()
    started = asyncio.Semaphore(0)

    @registry.job
    async def waits() -> None:
        started.release()
        await asyncio.Event().wait()

    handles = [await client.enqueue(waits()) for _ in range(6)]
    works, failing = client.store.release, True

    async def release(lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        if failing and any(claim.id == handles[2].id for claim in claims):
            raise StoreError("a trigger raises")
        await works(lease_id, claims, end=end)

    monkeypatch.setattr(client.store, "release", release)
    worker = Worker(client, registry, concurrency=6, grace=0, lease=600)
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        for _ in handles:
            await started.acquire()
    worker.stop()
    others = [*handles[:2], *handles[3:]]
    await until(lambda: worker.health().unwritten == 1)
    for handle in others:
        assert (await handle.snapshot()).state is JobState.READY
    assert (await handles[2].snapshot()).state is JobState.RUNNING
    await until(lambda: "release" in worker.health().troubles)
    failing = False
    async with asyncio.timeout(60):
        await task
    assert {((job := await handle.snapshot()).state, job.attempt) for handle in handles} == {(JobState.READY, 0)}


async def test_a_stop_doesnt_wait_for_the_next_try_to_come(client: Client, work: Work, refusals: Refusals, monkeypatch) -> None:
    monkeypatch.setattr(_postponed, "_FIRST_SECONDS", 600)
    monkeypatch.setattr(_postponed, "_LONGEST_SECONDS", 600)
    handle = await client.enqueue(work.work())
    refusals.of(handle.id, BUSY)
    worker = Worker(client, work.registry)
    async with worker:
        await until(lambda: len(parts(worker).writer._late) == 1)
        refusals.says = lambda _: None
    assert (await handle.snapshot()).state is JobState.COMPLETED


# -- too much at once -------------------------------------------------------------------------------------------------


async def test_many_large_outputs_are_written_in_batches_of_bounded_size(
    client: Client, refusals: Refusals, monkeypatch
) -> None:
    monkeypatch.setattr(_batcher, "LARGEST_BATCH_BYTES", 3500)
    registry = Registry()
    gate = asyncio.Event()

    @registry.job
    async def large(size: int) -> str:
        await gate.wait()
        return "x" * size

    handles = await client.enqueue_many([large(size) for size in (1000,) * 9 + (5000,)])
    worker = Worker(client, registry, concurrency=10)
    async with worker:
        await until(lambda: worker.health().busy == 10)
        gate.set()
        assert [len(await handle.result(timeout=60)) for handle in handles] == [1000] * 9 + [5000]
    assert max(refusals.sizes) == 5002
    assert refusals.calls < 8


async def test_an_output_that_is_too_large_fails_its_job(client: Client, monkeypatch) -> None:
    registry = Registry()

    @registry.job
    async def large() -> str:
        return "x" * 2000

    handle = await client.enqueue(large())
    monkeypatch.setattr(_codec, "LARGEST_VALUE_BYTES", 1000)
    done = await Worker(client, registry).run_once()
    assert (done.completed, done.failed) == (0, 1)
    error = (await handle.snapshot()).last_error
    assert error is not None
    assert error.type == "OutputError"
    assert "MiB of JSON are more than" in error.message


# -- never ------------------------------------------------------------------------------------------------------------


async def test_a_client_that_is_closed_ends_the_worker(client: Client, work: Work, refusals: Refusals) -> None:
    handle = await client.enqueue(work.work())
    refusals.says = lambda _: ClientClosed("it was closed")
    with pytest.raises(ClientClosed, match="it was closed"):
        async with asyncio.timeout(60):
            await Worker(client, work.registry, concurrency=1, poll_interval=600).run()
    assert len(refusals.asked[handle.id]) == 1


async def test_a_schema_that_doesnt_fit_any_more_ends_the_worker(client: Client, work: Work, refusals: Refusals) -> None:
    await client.enqueue_many([work.work() for _ in range(4)])
    refusals.says = lambda _: StoreIncompatible("somebody migrated the schema")
    with pytest.raises(StoreIncompatible, match="migrated"):
        async with asyncio.timeout(60):
            await Worker(client, work.registry, concurrency=2, poll_interval=600).run()
