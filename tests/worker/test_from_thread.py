"""Handlers that are plain functions use the worker's event loop: they enqueue, and call what is async."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from aioqueue import Client, JobState, Registry, Retry, Worker, current_attempt

pytestmark = pytest.mark.anyio

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


async def test_a_plain_function_enqueues(each_url: str) -> None:
    registry = Registry()

    @registry.job
    async def child(n: int) -> int:
        return n

    @registry.job
    def parent() -> list[str]:
        attempt = current_attempt()
        first = attempt.from_thread(attempt.client.enqueue, child(1))
        several = attempt.from_thread(attempt.client.enqueue_many, [child(n) for n in (2, 3)])
        return [str(handle.id) for handle in (first, *several)]

    async with Client(each_url) as client, Worker(client, registry, poll_interval=0.2):
        ids = await (await client.enqueue(parent())).result(timeout=60)
        assert [await client.handle(child, each).result(timeout=60) for each in ids] == [1, 2, 3]


async def test_what_it_calls_has_its_context_and_raises_into_it(client: Client) -> None:
    registry = Registry()
    loop_thread = threading.get_ident()

    async def asked(*, fails: bool) -> tuple[str, int, bool]:
        if fails:
            raise LookupError("not there")
        return tenant.get(), current_attempt().number, threading.get_ident() == loop_thread

    @registry.job
    def work() -> list[object]:
        tenant.set("acme")
        attempt = current_attempt()
        with pytest.raises(LookupError, match="not there"):
            attempt.from_thread(asked, fails=True)
        return list(attempt.from_thread(asked, fails=False))

    async with Worker(client, registry):
        assert await (await client.enqueue(work())).result(timeout=60) == ["acme", 1, True]


async def test_in_the_event_loop_it_is_refused(client: Client) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=1))
    async def work() -> None:
        current_attempt().from_thread(asyncio.sleep, 0)

    async with Worker(client, registry):
        handle = await client.enqueue(work())
        while not (job := await handle.snapshot()).state.finished:
            await asyncio.sleep(0.01)
    assert job.state is JobState.FAILED
    assert job.last_error is not None
    assert "await the function instead" in job.last_error.message
