"""How long a job runs is no reason to start it again; that its owner is gone is one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aioqueue import Client, Fail, Fixed, JobState, Registry, Reschedule, Retry, RetryIn, current_attempt
from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.worker import Worker
from tests.harnesses import SQLiteHarness
from tests.worker.faults import Jobs, until
from tests.worker.insides import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aioqueue.abc import LeaseSession, Renewal, Store
    from aioqueue.vocabulary._job import Claim, ClaimedJob

pytestmark = pytest.mark.anyio

LIMIT = 120


class LateSession:
    """Each of its renewals arrives late."""

    def __init__(self, session: LeaseSession) -> None:
        self._session = session
        self.renewals = 0

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        self.renewals += 1
        time.sleep(0.4)
        return self._session.renew(lease_id, duration, held)

    def connect(self) -> None:
        self._session.connect()

    def close(self) -> None:
        self._session.close()


async def test_jobs_longer_than_the_lease_are_started_once(client: Client, url: str, monkeypatch, caplog) -> None:
    """However long they are, with and without timeouts, while each renewal is late and an idle worker waits for them."""
    registry, starts = Registry(), Counter[UUID]()
    sessions: list[LateSession] = []
    make = client.store.lease_session

    def late(**named: float) -> LateSession:
        sessions.append(LateSession(make(**named)))
        return sessions[-1]

    monkeypatch.setattr(client.store, "lease_session", late)

    @registry.job(timeout=None)
    async def lasts(duration: float) -> int:
        starts[current_attempt().job.id] += 1
        await asyncio.sleep(duration)
        return current_attempt().number

    @registry.job
    def lasts_in_thread(duration: float) -> int:
        starts[current_attempt().job.id] += 1
        time.sleep(duration)
        return current_attempt().number

    lease = 2.4
    calls = [
        lasts(lease / 2),
        lasts(lease),
        lasts_in_thread(lease * 1.2),
        lasts(lease * 2),
        lasts_in_thread(lease * 2.2),
        lasts(lease * 2.2).options(timeout=timedelta(seconds=LIMIT)),
    ]
    async with Client(url) as other, Worker(client, registry, lease=lease, concurrency=len(calls)) as worker:
        handles = await client.enqueue_many(calls)
        await until(lambda: len(starts) == len(calls))
        async with Worker(other, registry, lease=1, poll_interval=0.05):
            assert [await handle.result(timeout=LIMIT) for handle in handles] == [1] * len(calls)
        assert worker.health().lease_valid
    assert sessions[0].renewals >= 4
    assert set(starts.values()) == {1}
    for handle in handles:
        job = await handle.snapshot()
        assert (job.attempt, job.errors) == (1, ())
    assert "took over" not in caplog.text


# -- owners that are gone ---------------------------------------------------------------------------------------------


async def claimed_by(store: Store, name: str, type_name: str, number: int) -> list[ClaimedJob]:
    lease = await store.open_lease(name, 600)
    jobs = await store.claim(lease, [type_name], number)
    assert len(jobs) == number
    return list(jobs)


@pytest.mark.parametrize("restarted", [False, True], ids=["another worker lives", "restarted later"])
@pytest.mark.parametrize("row", ["expired", "deleted"])
async def test_the_jobs_of_a_dead_worker_run_again(client: Client, tmp_path: Path, row: str, restarted: bool) -> None:
    jobs, harness = Jobs(), SQLiteHarness(tmp_path / "jobs.db")
    settings = {"lease": 12, "renew_every": 0.05, "poll_interval": 0.02, "concurrency": 4}
    handles = await client.enqueue_many([jobs.quick() for _ in range(10)])
    dead = await claimed_by(client.store, "dead", "quick", 10)

    async def dies() -> None:
        if row == "deleted":
            await harness.delete_lease(dead[0].lease_id)
        else:
            harness.execute(("update lease set expires_at = 1 where id = ?", [dead[0].lease_id]))

    if restarted:
        await dies()
    async with Worker(client, jobs.registry, name="dead", **settings):
        if not restarted:
            canary = await client.enqueue(jobs.quick())
            assert await canary.result(timeout=LIMIT) == 1
            assert {(await handle.snapshot()).state for handle in handles} == {JobState.RUNNING}
            await dies()
        assert [await handle.result(timeout=LIMIT) for handle in handles] == [2] * 10
    for handle in handles:
        assert [error.type for error in (await handle.snapshot()).errors] == ["WorkerLost"]


async def take_over(client: Client, path: Path, state: str) -> None:
    """Do what another worker does that finds the lease expired: run the job again, until it's in this state."""
    store = client.store
    SQLiteHarness(path).execute(("update lease set expires_at = 1", []))
    (orphan,) = await store.take_expired(10)
    fence = {"id": orphan.id, "lease_id": orphan.lease_id, "claims": orphan.claims}
    (result,) = await store.settle([Settlement(**fence, kind=SettlementKind.RETRIED, delay=0.0)], orphaned=True)
    assert result.lost is None
    (job,) = await claimed_by(store, "successor", "contested", 1)
    fence = {"id": job.id, "lease_id": job.lease_id, "claims": job.claims}
    ends = {
        "running": [],
        "completed": [Settlement(**fence, kind=SettlementKind.COMPLETED, output=b'"fresh"')],
        "waiting": [Settlement(**fence, kind=SettlementKind.RETRIED, delay=600.0)],
    }
    assert [each.lost for each in await store.settle(ends[state])] == [None] * len(ends[state])


ENDS: dict[str, Callable[[], str]] = {}


def way(function: Callable[[], str]) -> Callable[[], str]:
    ENDS[function.__name__] = function
    return function


@way
def returns() -> str:
    return "stale"


@way
def raises() -> str:
    raise ValueError("stale")


@way
def fails() -> str:
    raise Fail("stale")


@way
def retries() -> str:
    raise RetryIn(0)


@way
def reschedules() -> str:
    raise Reschedule(delay=0)


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize("state", ["running", "completed", "waiting"])
@pytest.mark.parametrize("end", ENDS)
async def test_a_stale_owner_changes_nothing(
    client: Client, tmp_path: Path, caplog, monkeypatch, end: str, state: str, in_thread: bool
) -> None:
    """Whatever it says about a job that another took over meanwhile; it's logged once, and the worker goes on."""
    registry, gate, thread_gate = Registry(), asyncio.Event(), threading.Event()
    loop, began = asyncio.get_running_loop(), asyncio.Event()
    policy = Retry(max_attempts=5, backoff=Fixed(0))

    async def in_loop() -> str:
        began.set()
        await gate.wait()
        return ENDS[end]()

    def body() -> str:
        loop.call_soon_threadsafe(began.set)
        thread_gate.wait(LIMIT)
        return ENDS[end]()

    contested = registry.job(name="contested", retry=policy)(body if in_thread else in_loop)

    @registry.job
    async def canary() -> int:
        return current_attempt().number

    handle = await client.enqueue(contested())
    async with Worker(client, registry, lease=600, poll_interval=600, concurrency=1, grace=0) as worker:
        async with asyncio.timeout(LIMIT):
            await began.wait()
        with monkeypatch.context() as patched:  # nobody tells this worker before it has ended
            patched.setattr(parts(worker).leases, "renew_now", lambda: None)
            await take_over(client, tmp_path / "jobs.db", state)
        before = await handle.snapshot()
        gate.set()
        thread_gate.set()
        alive = await client.enqueue(canary())
        assert await alive.result(timeout=LIMIT) == 1
        assert await handle.snapshot() == before
        await until(lambda: worker.health().ok)
    assert await handle.snapshot() == before
    assert before.attempt == 2
    expected = {"running": JobState.RUNNING, "completed": JobState.COMPLETED, "waiting": JobState.SCHEDULED}
    assert before.state is expected[state]
    told = [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    assert len([line for line in told if f"{handle.id}: attempt 1 is lost" in line]) == 1
