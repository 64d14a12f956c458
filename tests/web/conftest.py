"""Servers in this very event loop, on ports of their own."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from aiohttp import web
from starlette.applications import Starlette
from starlette.routing import Route

import aioqueue.web.aiohttp
from aioqueue import Client
from aioqueue.client import _event_feed
from aioqueue.testing import MemoryStore
from aioqueue.web import _streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager


class Served:
    """A server with a stream of events, and what of it a test looks at."""

    def __init__(self, endpoint: Any, port: int, stop: Callable[[], None]) -> None:
        self.endpoint, self.port, self.stop = endpoint, port, stop
        self.over = asyncio.Event()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_event_feed, "_LOOK_APART_SECONDS", 0.0)
    monkeypatch.setattr(aioqueue.web.aiohttp, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(_streams.random, "uniform", lambda _, highest: highest)


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def client(store: MemoryStore) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


@asynccontextmanager
async def uvicorn_server(client: Client, **options: Any) -> AsyncIterator[Served]:
    """Starlette under uvicorn. `over` is set when its lifespan has ended."""
    app = aioqueue.web.events(client, **options)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        served.over.set()

    starlette = Starlette(routes=[Route("/events", app)], lifespan=lifespan)
    server = uvicorn.Server(uvicorn.Config(starlette, log_level="warning"))

    def stop() -> None:
        server.should_exit = True

    served = Served(app, listening.getsockname()[1], stop)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield served
    finally:
        app.stop()
        stop()
        await task


@asynccontextmanager
async def aiohttp_server(client: Client, **options: Any) -> AsyncIterator[Served]:
    """aiohttp's own server. `over` is set when it has been cleaned up."""
    handler = aioqueue.web.aiohttp.events(client, **options)
    app = web.Application()
    app.router.add_get("/events", handler.handle)
    app.on_shutdown.append(handler.stop)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()

    def stop() -> None:
        cleaning.append(asyncio.create_task(runner.cleanup()))
        cleaning[0].add_done_callback(lambda _: served.over.set())

    cleaning: list[asyncio.Task[None]] = []
    served = Served(handler, runner.addresses[0][1], stop)
    try:
        yield served
    finally:
        await handler.stop()
        await asyncio.gather(*cleaning)
        await runner.cleanup()


@pytest.fixture(params=[uvicorn_server, aiohttp_server], ids=["uvicorn", "aiohttp"])
def serve(request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[Served]]:
    server: Callable[..., AbstractAsyncContextManager[Served]] = request.param
    return server
