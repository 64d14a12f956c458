"""Enqueue middlewares that fail or are cancelled after the jobs were stored: a repetition finds them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, Registry, Worker, current_attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioqueue import Call
    from aioqueue.definitions._middleware import EnqueueNext
    from aioqueue.vocabulary._job import Inserted, NewJob

pytestmark = pytest.mark.anyio

registry = Registry()
runs: list[str] = []


@registry.job
async def charge() -> None:
    runs.append(str(current_attempt().job.id))


async def alone(client: Client, call: Call[Any], limit: float) -> None:
    with pytest.raises((RuntimeError, TimeoutError)):
        async with asyncio.timeout(limit):
            await client.enqueue(call)


async def many(client: Client, call: Call[Any], limit: float) -> None:
    with pytest.raises((RuntimeError, TimeoutError)):
        async with asyncio.timeout(limit):
            await client.enqueue_many([call])


async def in_transaction(client: Client, call: Call[Any], limit: float) -> None:
    """The user's code goes on after the middleware's error, and the transaction is committed."""
    async with client.transaction() as tx:
        with pytest.raises((RuntimeError, TimeoutError)):
            async with asyncio.timeout(limit):
                await tx.enqueue(call)


class Afterwards:
    """A middleware that fails or hangs once, after the jobs were stored."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.times = 0

    async def __call__(self, jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
        stored = await call_next(jobs)
        self.times += 1
        if self.times == 1:
            if self.hangs:
                await asyncio.get_running_loop().create_future()
            raise RuntimeError("after the commit")
        return stored


@pytest.mark.parametrize("hangs", [False, True], ids=["raises", "cancelled"])
@pytest.mark.parametrize("enqueue", [alone, many, in_transaction])
async def test_a_call_that_was_stored_before_its_middleware_failed_runs_once(
    each_url: str, enqueue: Callable[[Client, Call[Any], float], Awaitable[None]], hangs: bool
) -> None:
    runs.clear()
    middleware = Afterwards(hangs=hangs)
    async with Client(each_url, middlewares=[middleware]) as client:
        call = charge()
        await enqueue(client, call, 1 if hangs else 60)
        worker = Worker(client, registry)
        await worker.run_once()
        assert runs == [str(call.id)]
        with anyio.fail_after(60):
            handle: Any = await client.enqueue(call)
        assert (handle.id, handle.created) == (call.id, True)
        await worker.run_once()
    assert runs == [str(call.id)]
