"""`concurrency=` of a job type: a worker runs no more of its jobs at once, and fills its other slots with others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioqueue import Client, Registry, Worker, current_attempt
from aioqueue.errors import ConfigurationError

pytestmark = pytest.mark.anyio

RARELY = 3600.0
"""Seconds between polls: whatever is claimed sooner, is so since something has woken the worker."""


class Running:
    """Jobs that run until they're let go, and which of them do."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.most = 0
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.gates: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def stay(self) -> None:
        gate, name = asyncio.Event(), current_attempt().job.type
        self.now.append(name)
        self.most = max(self.most, sum(each.startswith("few") for each in self.now))
        self.began.put_nowait(name)
        if name.startswith("few"):
            self.gates.put_nowait(gate)
            await gate.wait()
        self.now.remove(name)

    async def begins(self) -> str:
        async with asyncio.timeout(60):
            return await self.began.get()

    def let_one_go(self) -> None:
        self.gates.get_nowait().set()


def jobs(running: Running, **options: Any) -> Registry:
    registry = Registry()

    @registry.job(concurrency=2, **options)
    async def few() -> None:
        await running.stay()

    @registry.job
    async def other() -> None:
        await running.stay()

    return registry


async def test_no_more_of_them_run_and_the_others_have_the_other_slots(client: Client) -> None:
    running = Running()
    registry = jobs(running)
    await client.enqueue_many([registry.types["few"]() for _ in range(6)])
    async with Worker(client, registry, concurrency=5, poll_interval=RARELY):
        assert [await running.begins() for _ in range(2)] == ["few", "few"]
        for _ in range(3):
            await client.enqueue(registry.types["other"]())
            assert await running.begins() == "other"
        for _ in range(4):
            running.let_one_go()
            assert await running.begins() == "few"
        running.let_one_go()
        running.let_one_go()
    assert running.most == 2


async def test_no_turn_is_made_for_those_that_have_no_room(client: Client) -> None:
    """Jobs of a type that is full are due, and the worker sleeps all the same."""
    running = Running()
    registry = jobs(running)
    await client.enqueue_many([registry.types["few"]() for _ in range(3)])
    async with Worker(client, registry, concurrency=5, poll_interval=RARELY) as worker:
        assert [await running.begins() for _ in range(2)] == ["few", "few"]
        await client.enqueue(registry.types["other"]())
        assert await running.begins() == "other"
        async with asyncio.timeout(60):
            while running.now != ["few", "few"]:
                await asyncio.sleep(0)
        assert worker._run is not None
        counters = worker._run.holdings.counters
        claims = counters.claims
        for _ in range(200):
            await asyncio.sleep(0)
        assert counters.claims <= claims + 2
        running.let_one_go()
        assert await running.begins() == "few"
        running.let_one_go()
        running.let_one_go()


async def test_older_names_of_a_type_count_with_it(client: Client) -> None:
    running = Running()
    registry = jobs(running, aliases=["few.old"])
    await client.enqueue_by_name("few.old", {})
    await client.enqueue_many([registry.types["few"](), registry.types["few"]()])
    async with Worker(client, registry, concurrency=5, poll_interval=RARELY):
        first = [await running.begins() for _ in range(2)]
        await client.enqueue(registry.types["other"]())
        assert await running.begins() == "other"
        running.let_one_go()
        first.append(await running.begins())
        assert sorted(first) == ["few", "few", "few.old"]
        running.let_one_go()
        running.let_one_go()
    assert running.most == 2


async def test_a_run_until_idle_runs_them_all(client: Client) -> None:
    running = Running()
    registry = Registry()

    @registry.job(concurrency=1)
    async def few() -> None:
        running.now.append("few")
        running.most = max(running.most, len(running.now))
        await asyncio.sleep(0)
        running.now.remove("few")

    await client.enqueue_many([few() for _ in range(7)])
    assert (await Worker(client, registry, concurrency=4).run_once()).completed == 7
    assert running.most == 1


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_what_isnt_a_number_of_jobs_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"few: concurrency must be a whole number from 1 on, not .*pause the type"):

        @Registry().job(concurrency=value)
        async def few() -> None: ...
