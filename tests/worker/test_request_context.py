"""What is started in a request, and serves others after it, neither sees nor keeps the request's context."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import gc
import json
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Attempt, CallNext, Client, Fixed, JobFailed, Registry, Retry, current_attempt
from aioqueue.definitions._middleware import EnqueueNext
from aioqueue.vocabulary._job import Inserted, NewJob
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.anyio

LIMIT = 60


class Request:
    """What a web framework might keep in a context variable."""


CURRENT: contextvars.ContextVar[Request | None] = contextvars.ContextVar("current", default=None)
NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")

registry = Registry()


@registry.resource
async def connection() -> AsyncIterator[str]:
    yield NAME.get()


@registry.job
async def seen() -> list[str]:
    child = await asyncio.create_task(_name())
    later: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: later.set_result(NAME.get()))
    return [NAME.get(), child, await later, await asyncio.to_thread(NAME.get), await connection.get()]


@registry.job
def seen_in_thread() -> list[str]:
    return [NAME.get(), connection.get_from_thread()]


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)), timeout=3600)
async def fails() -> list[str]:
    if current_attempt().number == 1:
        raise ValueError(NAME.get())
    return [NAME.get()]


async def _name() -> str:
    return NAME.get()


@pytest.fixture(params=["sqlite", "postgres"])
def each_url(request: pytest.FixtureRequest) -> str:
    value: str = request.getfixturevalue("url" if request.param == "sqlite" else "postgres_url")
    return value


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop keeps the timer of a transaction's end until its time, with its context."""
    monkeypatch.setattr("aioqueue.sqlite._transaction._END_SECONDS", 2.0)


class App:
    """A program that opens its client and starts its worker in the first request that needs them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stack = contextlib.AsyncExitStack()
        self.client: Client
        self.worker: Worker

    async def first(self) -> weakref.ref[Request]:
        request = Request()
        CURRENT.set(request)
        NAME.set("first")
        self.client = await self._stack.enter_async_context(Client(self._url, poll_interval=0.1))
        self.worker = await self._stack.enter_async_context(Worker(self.client, registry, poll_interval=0.1))
        await self.serve()
        return weakref.ref(request)

    async def serve(self) -> set[str]:
        """Use all that lives on: the batchers, those who wait for results, the pools, the handlers' threads."""
        handles = [await self.client.enqueue(call) for call in (seen(), seen_in_thread(), fails())]
        handles += await self.client.enqueue_many([seen(), seen_in_thread()])
        async with self.client.transaction() as tx:
            handles.append(await tx.enqueue(seen()))
        await self.client.stats()
        await self.client.list_jobs()
        return {name for handle in handles for name in await handle.result(timeout=LIMIT)}

    async def close(self) -> None:
        await self._stack.aclose()


async def in_a_task(run: Callable[[], Awaitable[Any]]) -> Any:
    """As servers run a request: in a task whose context ends with it."""

    async def request() -> Any:
        return await run()

    return await asyncio.create_task(request())


async def in_a_group(run: Callable[[], Awaitable[Any]]) -> Any:
    """As others do."""
    results: list[Any] = []

    async def request() -> None:
        results.append(await run())

    async with anyio.create_task_group() as group:
        group.start_soon(request)
    return results[0]


async def held(app: App, request: weakref.ref[Request]) -> bool:
    """Whether somebody still has the request, once what belonged to it has had the time to end."""
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                gc.collect()
                if request() is None:
                    return False
                await asyncio.sleep(0.01)
    except TimeoutError:
        return True


@pytest.mark.parametrize("start", [in_a_task, in_a_group])
async def test_jobs_see_no_request_and_nobody_keeps_it(each_url: str, start: Any) -> None:
    app = App(each_url)
    try:
        request = await start(app.first)
        assert await start(app.serve) == {"none"}
        assert not await held(app, request)
    finally:
        await app.close()


async def test_what_serves_all_requests_is_begun_again_without_one(each_url: str) -> None:
    """The tasks that gather enqueues and wait for results end when there is nothing to do, and begin in somebody's call."""
    async with Client(each_url, poll_interval=0.1) as client, Worker(client, registry, poll_interval=0.1):

        async def request() -> weakref.ref[Request]:
            mine = Request()
            CURRENT.set(mine)
            NAME.set("later")
            calls = [seen(), seen(), seen_in_thread()]
            handles = await asyncio.gather(*(client.enqueue(call) for call in calls))
            found = await asyncio.gather(*(handle.result(timeout=LIMIT) for handle in handles))
            assert {name for names in found for name in names} == {"none"}
            return weakref.ref(mine)

        requests = [await asyncio.create_task(request()) for _ in range(5)]
        app = App(each_url)
        assert [await held(app, each) for each in requests] == [False] * 5


async def test_who_was_ready_to_wait_long_for_a_result_is_let_go_of_at_once(url: str) -> None:
    """A loop keeps the timers that were cancelled until their time, where another one comes before them."""
    earlier = asyncio.get_running_loop().call_later(LIMIT * 10, lambda: None, context=contextvars.Context())
    async with Client(url, poll_interval=0.1) as client, Worker(client, registry, poll_interval=0.1):

        async def request() -> weakref.ref[Request]:
            mine = Request()
            CURRENT.set(mine)
            await (await client.enqueue(seen())).result(timeout=3600)
            return weakref.ref(mine)

        assert not await held(App(url), await asyncio.create_task(request()))
    earlier.cancel()


async def test_what_failed_in_a_context_is_let_go_of(client: Client, caplog) -> None:
    """A timer of an hour, a failed attempt's error, a resource that it was the first to use: none of them keeps its context."""
    caplog.set_level(logging.CRITICAL, logger="aioqueue.worker")  # pytest keeps what is logged, with the exceptions
    values: list[weakref.ref[Request]] = []

    async def sets(attempt: Attempt, call_next: CallNext) -> object:
        mine = Request()
        values.append(weakref.ref(mine))
        CURRENT.set(mine)
        return await call_next()

    own = Registry(middlewares=[sets])

    @own.resource
    async def lives_on() -> AsyncIterator[int]:
        yield 1

    @own.job(timeout=3600, retry=Retry(max_attempts=1))
    async def work(good: bool) -> None:
        await lives_on.get()
        if not good:
            raise ValueError("no")

    async with Worker(client, own, poll_interval=0.1):
        for good in (True, False):
            with contextlib.suppress(JobFailed):
                await (await client.enqueue(work(good))).result(timeout=LIMIT)
        assert [await held(App(""), each) for each in values] == [False, False]


async def test_what_a_job_is_to_know_of_its_request_travels_in_its_metadata(url: str) -> None:
    async def carries(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
        metadata = json.dumps({"name": NAME.get()}).encode()
        return await call_next([dataclasses.replace(job, metadata=metadata) for job in jobs])

    async def brings(attempt: Attempt, call_next: CallNext) -> object:
        NAME.set(attempt.metadata["name"])
        return await call_next()

    own = Registry(middlewares=[brings])

    @own.job
    async def name() -> str:
        await asyncio.sleep(0)
        return NAME.get()

    async with Client(url, poll_interval=0.1, middlewares=[carries]) as client, Worker(client, own, poll_interval=0.1):
        ids: dict[UUID, str] = {}

        async def request(number: int) -> str:
            NAME.set(f"request {number}")
            handle = await client.enqueue(name())
            ids[handle.id] = NAME.get()
            return await handle.result(timeout=LIMIT)

        found = await asyncio.gather(*(request(number) for number in range(5)))
        assert found == list(ids.values()) == [f"request {number}" for number in range(5)]
    assert NAME.get() == "none"
