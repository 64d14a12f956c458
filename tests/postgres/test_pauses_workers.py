"""Workers on PostgreSQL hear of pauses and of their ends though they don't poll."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.vocabulary._job import JobState
from aioqueue.worker import _tending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

PATIENCE = 60.0
NEVER = 600.0
"""Seconds between polls: longer than any test."""

registry = Registry()


@registry.job
async def work(number: int) -> int:
    return number


@registry.job
async def other() -> None:
    pass


@pytest.fixture
async def client(postgres_url: str) -> AsyncIterator[Client]:
    async with Client(postgres_url) as client:
        yield client


@pytest.fixture
async def workers(postgres_url: str) -> AsyncIterator[None]:
    """Two workers, each with connections of its own, as in other processes."""
    async with (
        Client(postgres_url) as one,
        Client(postgres_url) as two,
        Worker(one, registry, poll_interval=NEVER),
        Worker(two, registry, poll_interval=NEVER),
    ):
        yield


async def done(client: Client) -> None:
    """A job of another type has been done since: each worker has claimed, or is claiming."""
    for _ in range(4):
        await (await client.enqueue(other())).result(timeout=PATIENCE)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("what", ["type", "key", "all"])
async def test_nothing_is_started_until_it_is_resumed(client: Client, what: str) -> None:
    if what == "all":
        await client.pause(all=True)
    elif what == "type":
        await client.pause(work)
    else:
        await client.pause(key="k")
    handle = await client.enqueue(work(1).options(key="k"))
    if what != "all":
        await done(client)
    held = {JobState.HELD, JobState.READY} if what == "key" else {JobState.READY}
    assert (await client.job(handle.id)).state in held
    if what == "all":
        assert await client.resume(all=True) == 1
    elif what == "type":
        assert await client.resume(work) == 1
    else:
        assert await client.resume(key="k") == 1
    assert await handle.result(timeout=PATIENCE) == 1


async def ended_first(client: Client, handle: JobHandle[int]) -> None:
    """It was started by itself, once the only pause was over."""
    (pause,) = await client.pauses()
    assert await handle.result(timeout=PATIENCE) == 1
    started = (await client.job(handle.id)).started_at
    assert started is not None
    assert pause.until is not None
    assert pause.until <= started


@pytest.mark.usefixtures("workers")
async def test_a_type_goes_on_when_its_pause_is_over(client: Client) -> None:
    await client.pause(work, until=timedelta(seconds=1))
    await ended_first(client, await client.enqueue(work(1)))


async def test_a_key_goes_on_when_its_pause_is_over(client: Client, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the upkeep of any worker."""
    monkeypatch.setattr(_tending, "EVERY_SECONDS", 0.2)
    async with Client(postgres_url) as one, Worker(one, registry, poll_interval=NEVER):
        await client.pause(key="k", until=timedelta(seconds=1))
        await ended_first(client, await client.enqueue(work(1).options(key="k")))
