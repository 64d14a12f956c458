"""No worker takes more than it can run, nothing begins before it's due, and what a worker doesn't know is left alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, current_attempt
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

LIMIT = 120


async def test_a_full_worker_leaves_the_rest_to_an_idle_one(client: Client, tmp_path: Path) -> None:
    registry, began, gate = Registry(), asyncio.Event(), asyncio.Event()
    ran_by: Counter[str] = Counter()
    rows: list[dict[str, int]] = []

    def running_rows() -> dict[str, int]:
        with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60)) as connection:
            held = "select worker, count(*) from job join lease on lease.id = lease_id where state = 2 group by worker"
            return dict(connection.execute(held).fetchall())

    @registry.job
    async def long() -> str:
        began.set()
        await gate.wait()
        return current_attempt().worker_id

    @registry.job
    async def short() -> None:
        ran_by[current_attempt().worker_id] += 1
        rows.append(running_rows())

    async with Worker(client, registry, name="full", concurrency=1, poll_interval=0.05):
        first = await client.enqueue(long())
        async with asyncio.timeout(LIMIT):
            await began.wait()
        handles = await client.enqueue_many([short() for _ in range(20)])
        async with Worker(client, registry, name="idle", concurrency=1, poll_interval=0.05):
            for handle in handles:
                await handle.result(timeout=LIMIT)
        assert running_rows() == {"full": 1}
        gate.set()
        assert await first.result(timeout=LIMIT) == "full"
    assert ran_by == {"idle": 20}
    assert {each["full"] for each in rows} == {1}
    # One runs, and beside it at most one that has ended, whose outcome is being written.
    assert {each["idle"] for each in rows} <= {1, 2}


async def test_no_retry_begins_before_it_is_due(client: Client, url: str) -> None:
    registry, attempts = Registry(), dict[int, list["ClaimedJob"]]()
    delay = 0.3

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(delay), jitter=0))
    async def fails_once(number: int) -> int:
        attempts.setdefault(number, []).append(current_attempt().job)
        if current_attempt().number == 1:
            raise ValueError("once")
        return current_attempt().number

    async with (
        Client(url, poll_interval=0.2) as other,
        Worker(client, registry, concurrency=5, poll_interval=0.02),
        Worker(other, registry, concurrency=5, poll_interval=0.02),
    ):
        handles = await client.enqueue_many([fails_once(number) for number in range(200)])
        assert {await handle.result(timeout=LIMIT) for handle in handles} == {2}
    assert len(attempts) == 200
    for first, second in attempts.values():  # exactly two
        assert first.started_at >= first.run_at
        assert second.started_at >= second.run_at
        assert second.run_at >= first.started_at + timedelta(seconds=delay)


async def test_jobs_of_an_unknown_type_wait_for_a_worker_that_knows_it(client: Client) -> None:
    old, new = Registry(), Registry()
    ran: Counter[str] = Counter()

    @old.job(name="a")
    async def a_of_old() -> int:
        return current_attempt().number

    @new.job(name="a")
    async def a_of_new() -> int:
        return current_attempt().number

    @new.job(name="b")
    async def b() -> int:
        ran[current_attempt().worker_id] += 1
        return current_attempt().number

    handles = await client.enqueue_many([b() for _ in range(20)])
    async with Worker(client, old, name="old", poll_interval=0.02, concurrency=2):
        for _ in range(10):  # each is at least one turn of its loop, with all of type b waiting
            canary = await client.enqueue(a_of_old())
            assert await canary.result(timeout=LIMIT) == 1
        jobs = [await handle.snapshot() for handle in handles]
        assert {(job.state, job.attempt, job.errors) for job in jobs} == {(JobState.READY, 0, ())}
        async with Worker(client, new, name="new", poll_interval=0.02, concurrency=2):
            assert [await handle.result(timeout=LIMIT) for handle in handles] == [1] * 20
        canary = await client.enqueue(a_of_old())
        assert await canary.result(timeout=LIMIT) == 1
    assert ran == {"new": 20}
    assert {(await handle.snapshot()).attempt for handle in handles} == {1}
