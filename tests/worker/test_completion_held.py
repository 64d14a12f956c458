"""A completing transaction that begins while somebody has locked the job's row: it waits, and the handler's work isn't lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from aioqueue import Client, JobState, Registry, StoreContended, current_attempt
from aioqueue.worker import _completion
from tests.worker.chains import once
from tests.worker.completing import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio
HOWS = ["own", "the client's", "the user's"]


@pytest.fixture
async def client(postgres_url: str) -> AsyncIterator[Client]:
    async with Client(postgres_url) as client:
        yield client


class Holder:
    """Has the only job there is locked, until it's tried again for the second time.

    Attributes:
        tries: How often somebody was about to try again.
        at_second: Called then.
    """

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url = url
        self.tries = 0
        self.at_second: Callable[[], object] = lambda: None
        monkeypatch.setattr(_completion, "Backoff", lambda *_: self)

    def next(self) -> float:
        self.tries += 1
        if self.tries == 2:
            self.at_second()
        return 0.0

    async def hold(self) -> asyncio.Task[None]:
        locked, over = asyncio.Event(), asyncio.Event()
        self.at_second = over.set

        async def keep() -> None:
            connection = await asyncpg.connect(self._url)
            async with connection.transaction():
                await connection.execute("update aioqueue.job set marked = true")
                locked.set()
                await over.wait()
            await connection.close()

        keeping = asyncio.create_task(keep())
        await locked.wait()
        return keeping


@pytest.fixture
def holder(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Holder:
    return Holder(postgres_url, monkeypatch)


@asynccontextmanager
async def opened(client: Client, url: str, how: str) -> AsyncIterator[_completion.Completion]:
    attempt = current_attempt()
    if how == "own":
        async with attempt.completion() as tx:
            yield tx
    elif how == "the client's":
        async with client.transaction() as ours, attempt.completion(tx=ours) as tx:
            yield tx
    else:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction(), attempt.completion(tx=connection) as tx:
                yield tx
        finally:
            await connection.close()


@pytest.mark.parametrize("how", HOWS)
async def test_it_begins_once_they_have_let_go(client: Client, postgres_url: str, holder: Holder, how: str) -> None:
    registry = Registry()
    runs = 0

    @registry.job(retry=once)
    async def charge() -> str:
        nonlocal runs
        runs += 1
        keeping = await holder.hold()
        async with opened(client, postgres_url, how) as tx:
            tx.done("receipt")
        await keeping
        return "receipt"

    job = await (await run(client, registry, charge())).snapshot()
    assert (job.state, job.output, job.errors, runs, holder.tries) == (JobState.COMPLETED, "receipt", (), 1, 2)


@pytest.mark.parametrize("how", HOWS)
async def test_if_they_never_let_go_it_fails(
    client: Client, postgres_url: str, holder: Holder, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    registry = Registry()
    monkeypatch.setattr(_completion, "_HELD_SECONDS", 0.0)

    @registry.job(retry=once)
    async def charge() -> str:
        keeping = await holder.hold()
        try:
            async with opened(client, postgres_url, how):
                raise AssertionError
        finally:
            holder.at_second()
            await keeping

    job = await (await run(client, registry, charge())).snapshot()
    assert (job.state, [error.type for error in job.errors]) == (JobState.FAILED, [StoreContended.__name__])
    assert holder.tries == 0


@pytest.mark.parametrize("how", HOWS)
async def test_a_cancellation_ends_the_wait(client: Client, postgres_url: str, holder: Holder, how: str) -> None:
    """Nothing is written then, and nothing is held."""
    registry = Registry()

    @registry.job(retry=once)
    async def charge() -> str:
        keeping, task = await holder.hold(), asyncio.current_task()
        assert task is not None
        let_go, holder.at_second = holder.at_second, task.cancel
        with pytest.raises(asyncio.CancelledError):
            async with opened(client, postgres_url, how):
                raise AssertionError
        task.uncancel()
        let_go()
        await keeping
        async with opened(client, postgres_url, how) as tx:
            tx.done("receipt")
        return "receipt"

    job = await (await run(client, registry, charge())).snapshot()
    assert (job.state, job.output, job.errors, holder.tries) == (JobState.COMPLETED, "receipt", (), 2)
