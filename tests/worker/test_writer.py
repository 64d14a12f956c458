"""Outcomes that are refused, answers that are lost, verbs that fail, and the policy that counts."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, RowRejected, StoreIncompatible, StoreUnavailable
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import LostReason, NewJob, SettlementKind, SettleResult
from aioqueue.worker import Worker
from tests.worker.faults import VERBS, Faults, Jobs, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import Settlement

pytestmark = pytest.mark.anyio


# -- refused outcomes -------------------------------------------------------------------------------------------------


def refuse(client: Client, monkeypatch: pytest.MonkeyPatch, guilty: UUID, *, tells_which: bool, always: bool = False) -> None:
    works = client.store.settle

    def is_guilty(settlement: Settlement) -> bool:
        return settlement.id == guilty and (always or settlement.kind is SettlementKind.COMPLETED)

    async def settle(settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        if not any(is_guilty(each) for each in settlements):
            return await works(settlements, orphaned=orphaned)
        if not tells_which:
            raise RowRejected("one of them can't be\nstored")
        fine = [each for each in settlements if not is_guilty(each)]
        results = iter(await works(fine, orphaned=orphaned) if fine else [])
        bad = SettleResult(LostReason.ERROR, "it can't be\nstored")
        return [bad if is_guilty(each) else next(results) for each in settlements]

    monkeypatch.setattr(client.store, "settle", settle)


@pytest.mark.parametrize("tells_which", [True, False])
async def test_a_refused_outcome_fails_its_job_and_none_beside_it(
    client: Client, jobs: Jobs, monkeypatch, caplog, tells_which: bool
) -> None:
    handles = await client.enqueue_many([jobs.quick() for _ in range(8)])
    refuse(client, monkeypatch, handles[3].id, tells_which=tells_which)
    done = await Worker(client, jobs.registry, concurrency=8).run_once()
    assert (done.completed, done.failed) == (7, 1)
    guilty = await handles[3].snapshot()
    assert (guilty.state, guilty.attempt) == (JobState.FAILED, 1)
    assert guilty.last_error is not None
    assert guilty.last_error.type == "OutcomeRefused"
    assert "stored" in guilty.last_error.message
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told.__dict__["job_id"] == str(guilty.id)
    assert "\n" not in told.getMessage()


async def test_a_job_of_which_nothing_can_be_written_stops_no_other(client: Client, jobs: Jobs, monkeypatch) -> None:
    bad = await client.enqueue(jobs.quick())
    refuse(client, monkeypatch, bad.id, tells_which=True, always=True)
    async with Worker(client, jobs.registry, concurrency=1, lease=600) as worker:
        others = await client.enqueue_many([jobs.quick() for _ in range(3)])
        assert [await handle.result(timeout=60) for handle in others] == [1, 1, 1]
        assert worker.health().ok


# -- verbs that fail, and answers that are lost -----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", [*VERBS, "renew"])
async def test_one_outage_of_any_verb_costs_nothing(client: Client, jobs: Jobs, faults: Faults, verb: str, when: str) -> None:
    """Also when what was asked for has happened, and only the answer was lost."""
    if when == "before":
        faults.before[verb] = [StoreUnavailable("away")]
    else:
        faults.after[verb] = 1
    handles = await client.enqueue_many([jobs.quick() for _ in range(5)])
    interrupted = await client.enqueue(jobs.held().options(priority=1))
    worker = Worker(client, jobs.registry, concurrency=3, lease=600, renew_every=0.05, poll_interval=0.05, grace=0)
    async with worker:
        assert {await handle.result(timeout=60) for handle in handles} == {1}
        assert await jobs.started() == 1
        if verb != "release":
            await until(lambda: faults.failed[verb])
            await until(lambda: worker.health().ok)
    assert faults.failed[verb] == 1
    job = await interrupted.snapshot()
    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ())
    jobs.gate.set()
    await worker.run_once()
    assert await interrupted.result(timeout=60) == 1


async def test_a_claim_whose_answer_was_lost_is_given_back(client: Client, jobs: Jobs, faults: Faults, caplog) -> None:
    faults.after["claim"] = 1
    handles = await client.enqueue_many([jobs.quick() for _ in range(3)])
    async with Worker(client, jobs.registry, lease=600, renew_every=0.05, poll_interval=600):
        assert {await handle.result(timeout=60) for handle in handles} == {1}
    for handle in handles:
        job = await handle.snapshot()
        assert (job.attempt, job.errors) == (1, ())
    told = [record.getMessage() for record in caplog.records if "answer to its claim was lost" in record.getMessage()]
    assert len(told) == 3


# -- an incompatible database -----------------------------------------------------------------------------------------


async def test_an_incompatible_schema_at_the_start_is_told_at_once(client: Client, jobs: Jobs, faults: Faults) -> None:
    faults.before["open_lease"] = [StoreIncompatible("too new"), StoreIncompatible("too new")]
    with pytest.raises(StoreIncompatible):
        await Worker(client, jobs.registry).run()
    with pytest.raises(StoreIncompatible):
        async with Worker(client, jobs.registry):
            raise AssertionError("never entered")
    assert faults.calls["open_lease"] == 2


async def test_a_crash_of_an_embedded_worker_is_seen(client: Client, jobs: Jobs, faults: Faults, caplog) -> None:
    handle = await client.enqueue(jobs.held())
    worker = await Worker(client, jobs.registry, poll_interval=0.02, grace=0).__aenter__()
    await jobs.started()
    faults.before["claim"] = [StoreIncompatible("somebody migrated the schema")]
    await until(lambda: not worker.health().running)
    with pytest.raises(StoreIncompatible, match="migrated"):
        await worker.__aexit__(None, None, None)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 1
    assert "somebody migrated" in told[0]
    job = await handle.snapshot()
    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ())


# -- cancellation -----------------------------------------------------------------------------------------------------


async def test_a_worker_cancelled_while_it_opens_its_lease_leaves_none(client: Client, jobs: Jobs, faults: Faults) -> None:
    faults.gates["open_lease"] = asyncio.Event()
    task = asyncio.create_task(Worker(client, jobs.registry, name="cancelled").run())
    await until(lambda: faults.calls["open_lease"])
    task.cancel()
    faults.gates["open_lease"].set()  # so that the answer comes after the cancellation
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await client.stats()).workers == ()


async def test_a_worker_cancelled_while_the_database_hangs_ends_all_the_same(
    client: Client, jobs: Jobs, faults: Faults
) -> None:
    faults.gates["open_lease"] = asyncio.Event()
    before = asyncio.all_tasks()
    task = asyncio.create_task(Worker(client, jobs.registry).run())
    await until(lambda: faults.calls["open_lease"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await task
    await until(lambda: asyncio.all_tasks() <= before | {task})


@pytest.mark.parametrize("turns", range(0, 24, 2))
async def test_a_worker_cancelled_anywhere_leaves_nothing_behind(client: Client, jobs: Jobs, turns: int) -> None:
    """No task, no thread, no lease, no job that seems to run."""
    await client.enqueue_many([jobs.held() for _ in range(3)])
    before = asyncio.all_tasks()
    task = asyncio.create_task(Worker(client, jobs.registry, name=f"cancelled at {turns}", concurrency=2).run())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: asyncio.all_tasks() <= before | {task})
    await until(lambda: not [each.name for each in threading.enumerate() if f"cancelled at {turns}" in each.name])
    stats = await client.stats()
    assert stats.workers == ()
    assert stats.types["held"].counts == {JobState.READY: 3}
    assert {job.attempt for job in (await client.list_jobs()).jobs} == {0}


# -- the policy that counts -------------------------------------------------------------------------------------------


async def attempts(client: Client, registry: Registry, handle: Any, **settings: Any) -> int:
    await Worker(client, registry, **settings).run_once()
    job = await handle.snapshot()
    assert job.state is JobState.FAILED
    return job.attempt


async def test_the_policy_nearest_to_the_job_counts_as_a_whole(client: Client, monkeypatch) -> None:
    bare, typed = Registry(), Registry()

    @bare.job(name="fails")
    async def fails() -> None:
        raise ValueError("no")

    @typed.job(name="fails", retry=Retry(max_attempts=3, backoff=Fixed(0)))
    async def fails_thrice() -> None:
        raise ValueError("no")

    def upto(number: int) -> Retry:
        return Retry(max_attempts=number, backoff=Fixed(0))

    default = {"default_retry": upto(4)}
    assert await attempts(client, bare, await client.enqueue(fails()), **default) == 4
    assert await attempts(client, bare, await client.enqueue(fails()), default_retry=upto(10)) == 10
    assert await attempts(client, bare, await client.enqueue(fails().options(retry=upto(2))), **default) == 2
    assert await attempts(client, bare, await client.enqueue(fails_thrice()), **default) == 3
    assert await attempts(client, typed, await client.enqueue_by_name("fails"), **default) == 3
    assert await attempts(client, typed, await client.enqueue(fails_thrice().options(retry=upto(1)))) == 1
    monkeypatch.setenv("AIOQUEUE_MAX_ATTEMPTS", "1")
    assert await attempts(client, bare, await client.enqueue(fails())) == 1
    assert await attempts(client, typed, await client.enqueue(fails_thrice())) == 3


async def test_a_number_of_attempts_counts_with_the_workers_waits(client: Client) -> None:
    """What `enqueue_v1` stores, given `max_attempts` and no policy."""
    registry = Registry()

    @registry.job
    async def fails() -> None:
        raise ValueError("no")

    job = NewJob(id=new_id(), type="fails", max_attempts=2, retry=b"{}")
    await client.store.insert([job])
    handle = client.handle(fails, job.id)
    assert await attempts(client, registry, handle, default_retry=Retry(max_attempts=5, backoff=Fixed(0))) == 2
