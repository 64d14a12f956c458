"""Clients and workers inside other programs: their signals, loops, threads, lifespans, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session as SyncSession
from starlette.applications import Starlette

from aioqueue import Client, Registry, StoreIncompatible, Worker
from aioqueue.client import BoundClient
from examples.shop import database, fastapi_app
from examples.shop.database import Order, open_database
from tests.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping
    from pathlib import Path

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    given: str = request.getfixturevalue("postgres_url")
    return given


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


# -- signals, loops, threads ------------------------------------------------------------------------------------------


async def test_the_hosts_signal_handlers_stay(sqlite_url: str) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, heard.set)
    try:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        async with Client(sqlite_url) as client, Worker(client, registry) as worker:
            assert {number: signal.getsignal(number) for number in before} == before
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(60):
                await heard.wait()
            assert worker.health().running
            assert not worker.health().stopping
            assert await (await client.enqueue(double(4))).result(timeout=60) == 8
        assert {number: signal.getsignal(number) for number in before} == before
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def test_several_event_loops_in_threads_share_one_queue(url: str) -> None:
    """Each with a client and a worker of its own; every job runs once."""
    ran: list[int] = []
    own = Registry()

    @own.job
    async def note(number: int) -> None:
        ran.append(number)

    errors: list[BaseException] = []

    async def live(first: int) -> None:
        async with Client(url) as client, Worker(client, own, concurrency=3):
            handles = await client.enqueue_many([note(number) for number in range(first, first + 20)])
            for handle in handles:
                await handle.result(timeout=120)

    def run(first: int) -> None:
        try:
            asyncio.run(live(first))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(100 * number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert not errors
    assert sorted(ran) == [100 * number + each for number in range(3) for each in range(20)]


def test_one_worker_object_in_one_loop_after_the_other(url: str) -> None:
    client = Client(url)
    worker = Worker(client, registry)

    async def live(number: int) -> int:
        async with client, worker:
            return await (await client.enqueue(double(number))).result(timeout=120)

    assert [asyncio.run(live(number)) for number in range(3)] == [0, 2, 4]


async def test_several_clients_and_workers_in_one_loop(tmp_path: Path) -> None:
    """Two queues, two workers on each; start, stop, and start again."""
    before = set(threading.enumerate())
    for round_ in range(2):
        async with AsyncExitStack() as stack:
            handles = []
            for name in ("one", "other"):
                client = await stack.enter_async_context(Client(f"sqlite:///{tmp_path / name}.db"))
                for _ in range(2):
                    await stack.enter_async_context(Worker(client, registry, name="same"))
                handles += await client.enqueue_many([double(number) for number in range(10)])
            results = [await handle.result(timeout=120) for handle in handles]
        assert results == [2 * number for number in range(10)] * 2, round_
    await until(lambda: set(threading.enumerate()) <= before, "no thread left")


async def test_a_worker_that_crashes_is_seen_by_its_host(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*arguments: object, **named: object) -> None:
        raise StoreIncompatible("the schema is of another time")

    async with Client(sqlite_url) as client:
        worker = Worker(client, registry, poll_interval=0.05)

        async def host() -> None:
            async with worker:
                monkeypatch.setattr(client.store, "claim", refuse)
                await until(lambda: not worker.health().running, "the worker's end")
                assert not worker.health().ok

        with pytest.raises(StoreIncompatible, match="another time"):
            await host()


# -- lifespans --------------------------------------------------------------------------------------------------------


async def test_a_lifespan_of_ones_own_stays_around_the_queues(sqlite_url: str) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        events.append("own start")
        async with Client(sqlite_url) as client, Worker(client, registry) as worker:
            events.append("running" if worker.health().running else "not running")
            yield
            events.append("running" if worker.health().running else "not running")
        events.append("not running" if not worker.health().running else "running")
        events.append("own end")

    app = Starlette(lifespan=lifespan)
    async with app.router.lifespan_context(app):
        pass
    assert events == ["own start", "running", "running", "not running", "own end"]


class Shop:
    """The FastAPI example in this process. What is stored when the response begins is counted."""

    def __init__(self, state: Any, sessions: database.Sessions) -> None:
        self._state = state
        self._sessions = sessions
        self.at_response: list[tuple[int, int]] = []

    async def count(self) -> tuple[int, int]:
        """Orders and jobs."""
        async with self._sessions() as session:
            orders = await session.scalar(select(func.count()).select_from(Order))
        return orders or 0, len((await self._state["client"].list_jobs()).jobs)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def watch(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.at_response.append(await self.count())
            await send(message)

        await fastapi_app.app({**scope, "state": dict(self._state)}, receive, watch)

    async def post(self) -> httpx.Response:
        transport = httpx.ASGITransport(app=self, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            return await http.post("/orders", json={"item": "pear"})


@pytest.fixture
async def shop(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    monkeypatch.setattr(fastapi_app, "DATABASE_URL", url)
    monkeypatch.setattr(database, "DATABASE_URL", url)
    app = fastapi_app.app
    async with app.router.lifespan_context(app) as state, open_database(url) as sessions:
        yield Shop(state, sessions)


async def test_the_request_is_committed_before_its_response_is_sent(shop: Shop) -> None:
    response = await shop.post()
    assert response.status_code == 202, response.text
    assert shop.at_response == [(1, 1)]


async def test_a_commit_that_fails_is_told_and_leaves_neither_order_nor_job(shop: Shop) -> None:
    def refuse(session: object) -> None:
        raise RuntimeError("the commit fails")

    event.listen(SyncSession, "before_commit", refuse)
    try:
        response = await shop.post()
    finally:
        event.remove(SyncSession, "before_commit", refuse)
    assert response.status_code == 500
    assert await shop.count() == (0, 0)


async def test_an_endpoint_that_raises_leaves_neither_order_nor_job(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = BoundClient.enqueue

    async def enqueue_and_fail(self: BoundClient, call: Any) -> Any:
        await enqueue(self, call)
        raise RuntimeError("after the job")

    monkeypatch.setattr(BoundClient, "enqueue", enqueue_and_fail)
    response = await shop.post()
    assert response.status_code == 500
    assert await shop.count() == (0, 0)


# -- the program's end ------------------------------------------------------------------------------------------------

FORGETFUL = """
import asyncio, os, sys, threading, time
from aioqueue import Client, Registry, Worker

registry = Registry()
began = threading.Event()

@registry.job
def sleeps():
    began.set()
    time.sleep(1000)

@registry.job
async def waits():
    began.set()
    await asyncio.sleep(1000)

client = Client(os.environ["AIOQUEUE_URL"])

async def work(job):
    await client.open()
    await client.enqueue(job())
    worker = Worker(client, registry)
    await worker.__aenter__()
    while not began.is_set():
        await asyncio.sleep(0.01)
    return worker

def end():
    print("ends", flush=True)
"""

ENDINGS = {
    "a client": "asyncio.run(client.open()); end()",
    "a client in a loop that was dropped": "loop = asyncio.new_event_loop(); loop.run_until_complete(client.open()); end()",
    "a worker": """
        async def main():
            await work(waits)
            end()
        asyncio.run(main())
    """,
    "a worker in a thread's loop that goes on": """
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(work(waits), loop).result()
        end()
    """,
    "a function in a thread": """
        async def main():
            await work(sleeps)
            end()
        asyncio.run(main())
    """,
    "nothing": """
        async def main():
            await client.open()
            end()
            await client.close()
        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("forgotten", ENDINGS)
def test_the_interpreter_exits_whatever_was_forgotten(sqlite_url: str, forgotten: str) -> None:
    _exits(sqlite_url, forgotten)


@pytest.mark.soak
@pytest.mark.parametrize("forgotten", ENDINGS)
def test_the_interpreter_exits_whatever_was_forgotten_on_postgres(postgres_url: str, forgotten: str) -> None:
    _exits(postgres_url, forgotten)


def _exits(url: str, forgotten: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORGETFUL + textwrap.dedent(ENDINGS[forgotten])],
        cwd=ROOT,
        env={**os.environ, "AIOQUEUE_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            began = time.monotonic()
            _, errors = process.communicate(timeout=60)
            seconds = time.monotonic() - began
        finally:
            process.kill()
    assert (line, process.returncode) == ("ends\n", 0), errors
    # About a second on a machine that does nothing else; a loaded one may take a while to get there.
    assert seconds < 20, f"{seconds:.1f} s"
    print(f"{forgotten}: {seconds:.2f} s")  # noqa: T201 - shown by -rP
