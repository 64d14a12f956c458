"""What one job leaves in its context no other finds, however it ended; what middlewares put there its body does."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, current_attempt
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.anyio

LIMIT = 120
LEFT: contextvars.ContextVar[str] = contextvars.ContextVar("left", default="clean")
OWN: contextvars.ContextVar[str] = contextvars.ContextVar("own", default="none")

ENDS = ("returns", "raises", "cancels itself", "times out")


class Seen:
    """What bodies and middlewares found in their contexts."""

    def __init__(self) -> None:
        self.registry = Registry(middlewares=[self._outer, self._inner])
        self.before: set[tuple[str, str]] = set()
        self.left: set[str] = set()
        self.strangers: list[tuple[str, str]] = []
        self.after: Counter[str] = Counter()
        never = threading.Event()

        @self.registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)), timeout=None)
        async def in_loop(end: str) -> int:
            self._look()
            await asyncio.sleep(0)  # others' turn, with theirs set
            self._look_again()
            if end == "raises":
                raise ValueError("no")
            if end == "cancels itself":
                raise asyncio.CancelledError
            if end == "times out":
                await asyncio.Event().wait()
            return current_attempt().number

        @self.registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
        def in_thread(end: str) -> int:
            self._look()
            attempt = current_attempt()
            while end == "times out" and not attempt.cancelled:
                never.wait(0.002)
            self._look_again()
            if end == "cancels itself":
                raise asyncio.CancelledError
            if end != "returns":
                raise ValueError("no")
            return attempt.number

        self.in_loop, self.in_thread = in_loop, in_thread

    def _look(self) -> None:
        job_id = str(current_attempt().job.id)
        self.left.add(LEFT.get())
        LEFT.set(job_id)
        self._expect(OWN.get(), f"{job_id} inner")

    def _look_again(self) -> None:
        job_id = str(current_attempt().job.id)
        self._expect(LEFT.get(), job_id)
        self._expect(OWN.get(), f"{job_id} inner")

    def _expect(self, found: str, expected: str) -> None:
        if found != expected:
            self.strangers.append((found, expected))

    async def _outer(self, attempt, call_next):
        job_id = str(attempt.job.id)
        self.before.add((LEFT.get(), OWN.get()))
        OWN.set(f"{job_id} outer")
        try:
            return await call_next()
        finally:
            self.after[job_id] += 1
            self._expect(OWN.get(), f"{job_id} outer")

    async def _inner(self, attempt, call_next):
        job_id = str(attempt.job.id)
        self._expect(OWN.get(), f"{job_id} outer")
        token = OWN.set(f"{job_id} inner")
        try:
            return await call_next()
        finally:
            self._expect(OWN.get(), f"{job_id} inner")
            OWN.reset(token)


async def test_contexts_of_interleaved_jobs_however_they_end(client: Client) -> None:
    seen = Seen()
    calls = []
    for number in range(200):
        make = seen.in_thread if number % 2 else seen.in_loop
        end = ENDS[number // 2 % len(ENDS)]
        call = make(end)
        calls.append(call.options(timeout=0.02) if end == "times out" else call)
    handles = await client.enqueue_many(calls)
    async with asyncio.timeout(LIMIT):
        await Worker(client, seen.registry, concurrency=4).run_once()
    jobs = [await handle.snapshot() for handle in handles]
    fine = [job for job in jobs if job.arguments["end"] == "returns"]
    others = [job for job in jobs if job.arguments["end"] != "returns"]
    assert {(job.state, job.output) for job in fine} == {(JobState.COMPLETED, 1)}
    assert {(job.state, job.attempt) for job in others} == {(JobState.FAILED, 2)}
    assert seen.left == {"clean"}
    assert seen.before == {("clean", "none")}
    assert seen.strangers == []
    assert seen.after == {str(job.id): job.attempt for job in jobs}
    assert (LEFT.get(), OWN.get()) == ("clean", "none")


async def test_an_interrupted_job_leaves_nothing_to_its_next_attempt(client: Client) -> None:
    registry, began = Registry(), asyncio.Event()
    found: list[tuple[str, UUID]] = []

    @registry.job
    async def waits() -> None:
        found.append((LEFT.get(), current_attempt().job.id))
        LEFT.set("left behind")
        if len(found) == 1:
            began.set()
            await asyncio.Event().wait()

    handle = await client.enqueue(waits())
    async with Worker(client, registry, concurrency=1, grace=0) as worker:
        async with asyncio.timeout(LIMIT):
            await began.wait()
        worker.stop(force=True)
    await Worker(client, registry, concurrency=1).run_once()
    assert (await handle.snapshot()).state is JobState.COMPLETED
    assert found == [("clean", handle.id)] * 2
    assert LEFT.get() == "clean"
