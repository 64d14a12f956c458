"""Threads can't be stopped: many whose time is up, and the slots are as good as before."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Fixed, JobFailed, JobState, Registry, Retry, current_attempt
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.anyio

LIMIT = 120
ROUNDS = 50
SLOTS = 2


class Bodies:
    """Counts the bodies that run, of each job and of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[UUID] = Counter()
        self.most_of_one = self.most = 0
        self.starts: Counter[UUID] = Counter()

    def __enter__(self) -> None:
        with self._lock:
            job_id = current_attempt().job.id
            self.starts[job_id] += 1
            self._running[job_id] += 1
            self.most_of_one = max(self.most_of_one, self._running[job_id])
            self.most = max(self.most, self._running.total())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running[current_attempt().job.id] -= 1


async def test_threads_that_time_out_again_and_again_use_up_no_slot(client: Client) -> None:
    registry, bodies, never, together = Registry(), Bodies(), threading.Event(), threading.Barrier(SLOTS)

    @registry.job(timeout=0.01, retry=Retry(max_attempts=2, backoff=Fixed(0)))
    def overruns(ends: str) -> int:
        attempt = current_attempt()
        with bodies:
            while not attempt.cancelled:
                never.wait(0.002)
            never.wait(0.01)  # a retry that didn't wait for this body would begin now
            if ends == "raises":
                raise ValueError("too late")
            return attempt.number

    @registry.job
    def meet() -> int:
        return together.wait(timeout=LIMIT)

    async with Worker(client, registry, concurrency=SLOTS, poll_interval=0.02) as worker:
        calls = [overruns("returns" if number % 2 else "raises") for number in range(ROUNDS)]
        handles = await client.enqueue_many(calls)
        for handle in handles:
            with suppress(JobFailed):
                await handle.result(timeout=LIMIT)
        jobs = [await handle.snapshot() for handle in handles]
        meeting = await client.enqueue_many([meet() for _ in range(SLOTS)])
        assert sorted([await handle.result(timeout=LIMIT) for handle in meeting]) == list(range(SLOTS))
        assert worker.health().ok
    raising, returning = jobs[0::2], jobs[1::2]
    assert {(job.state, job.output, job.attempt) for job in returning} == {(JobState.COMPLETED, 1, 1)}
    assert {(job.state, job.attempt) for job in raising} == {(JobState.FAILED, 2)}
    assert sorted(bodies.starts.values()) == [1] * (ROUNDS // 2) + [2] * (ROUNDS // 2)
    assert (bodies.most_of_one, bodies.most) == (1, SLOTS)
