"""When a worker looks for lost jobs: when the next lease of somebody else runs out, also after a look in vain. It costs no
statement more for each job. On both stores.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from aioqueue import Client
from aioqueue.worker import Worker
from aioqueue.worker._notifications import Notifications
from tests.worker.faults import Faults, Jobs, until

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

LIMIT = 120


@pytest.fixture(autouse=True)
def _no_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """None helps: whatever a worker sees in time, it was awake for."""
    monkeypatch.setattr(Notifications, "heard", lambda *_: None)


async def test_the_jobs_of_a_dead_worker_are_pending_as_soon_as_its_lease_has_run_out(client: Client) -> None:
    """A third of the survivor's lease is half a minute here, and it polls every ten minutes."""
    jobs = Jobs()
    handle = await client.enqueue(jobs.quick())
    lease = await client.store.open_lease("dead", 2.5)
    assert len(await client.store.claim(lease, ["quick"], 1)) == 1
    over = time.monotonic() + 2.5
    async with Worker(client, jobs.registry, lease=90, renew_every=0.5, poll_interval=600):
        assert await handle.result(timeout=LIMIT) == 2
    assert over - 0.5 < time.monotonic() < over + 6


async def test_a_lease_that_runs_out_after_one_that_held_nothing_isnt_forgotten(client: Client) -> None:
    """The first one is taken, and there is nothing to recover; a busy worker's third of a lease is half a minute here."""
    jobs = Jobs()
    handle = await client.enqueue(jobs.quick())
    await client.store.open_lease("dead and idle", 1.0)
    lease = await client.store.open_lease("dead", 2.5)
    assert len(await client.store.claim(lease, ["quick"], 1)) == 1
    began = time.monotonic()
    async with Worker(client, jobs.registry, lease=90, renew_every=0.5, poll_interval=600):
        assert await handle.result(timeout=LIMIT) == 2
    assert time.monotonic() - began < 20


async def test_a_worker_whose_slots_are_full_looks_every_third_of_its_lease(client: Client) -> None:
    jobs = Jobs()
    handle = await client.enqueue(jobs.quick())
    lease = await client.store.open_lease("dead", 1.0)
    assert len(await client.store.claim(lease, ["quick"], 1)) == 1
    full = await client.enqueue(jobs.held())
    async with Worker(client, jobs.registry, lease=3, poll_interval=600, concurrency=1):
        assert await jobs.started() == 1
        deadline = time.monotonic() + LIMIT
        while not (await handle.snapshot()).errors:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        jobs.gate.set()
        assert await full.result(timeout=LIMIT) == 1
        assert await handle.result(timeout=LIMIT) == 2


async def test_it_costs_no_statement_more_for_a_job(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One claim, one question of what is due, and one settlement, beside another worker that lives; and while nothing happens
    one claim and one question for each poll, and a look for each third of a lease.
    """
    monkeypatch.undo()
    jobs, faults = Jobs(), Faults(client, monkeypatch)
    await client.store.open_lease("lives", 3600)
    async with Worker(client, jobs.registry, lease=3600, renew_every=0.2, poll_interval=3600):
        assert await (await client.enqueue(jobs.quick())).result(timeout=LIMIT) == 1
        await until(lambda: faults.calls["take_expired"])
        before = faults.calls.copy()
        for _ in range(40):
            assert await (await client.enqueue(jobs.quick())).result(timeout=LIMIT) == 1
        spent = faults.calls - before
        assert spent["take_expired"] == 0
        assert spent["settle"] == 40
        assert spent["claim"] < 60
        assert spent["next_due"] < 60
        handles = await client.enqueue_many([jobs.quick() for _ in range(400)])
        before = faults.calls.copy()
        for handle in handles:
            await handle.result(timeout=LIMIT)
        spent = faults.calls - before
        assert spent["take_expired"] == 0
        assert spent["claim"] + spent["next_due"] < 200
    before = faults.calls.copy()
    async with Worker(client, jobs.registry, poll_interval=0.5):
        until_then = time.monotonic() + 4
        await until(lambda: time.monotonic() > until_then)
    spent = faults.calls - before
    assert spent["take_expired"] <= 1
    assert max(spent["claim"], spent["next_due"]) <= 12
