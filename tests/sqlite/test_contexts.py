"""Nothing of ours runs in the context of whoever happened to be first, or keeps what is in it."""

from __future__ import annotations

import contextvars
import gc
import sqlite3
import weakref
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING

import anyio
import pytest

from aioqueue.sqlite import make_store
from tests.sqlite.conftest import new_job

if TYPE_CHECKING:
    from pathlib import Path

    from aioqueue.abc import Notification
    from aioqueue.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


class Request:
    """What a web framework keeps for one request."""


REQUEST: contextvars.ContextVar[Request | None] = contextvars.ContextVar("request", default=None)


async def test_threads_and_listeners_have_no_context(path: Path) -> None:
    store = make_store(f"sqlite:///{path}")
    seen: list[tuple[Request | None, Notification]] = []
    heard = anyio.Event()

    def listener(notification: Notification) -> None:
        seen.append((REQUEST.get(), notification))
        if notification.types is None:
            heard.set()

    async def first_request() -> weakref.ref[Request]:
        request = Request()
        token = REQUEST.set(request)
        await store.open()
        await store.insert([new_job()])
        await store.stats()
        await store.next_due(["a"])
        await stack.enter_async_context(store.transaction())
        REQUEST.reset(token)
        return weakref.ref(request)

    async with AsyncExitStack() as stack:
        kept = await first_request()
        gc.collect()
        assert kept() is None
    with store.subscribe(listener):
        token = REQUEST.set(Request())
        await store.insert([new_job("b")])
        async with store.transaction() as tx:
            await tx.insert([new_job("c")])
        REQUEST.reset(token)
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE job SET priority = 1")
            other.commit()
        with anyio.fail_after(60):
            await heard.wait()
    assert {name for _, notification in seen for name in notification.types or ()} == {"b", "c"}
    assert {request for request, _ in seen} == {None}
    await store.close()


async def test_the_timer_of_a_transaction_has_no_context(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request | None] = []
    warned = anyio.Event()

    def warn() -> None:
        seen.append(REQUEST.get())
        warned.set()

    monkeypatch.setattr("aioqueue.sqlite._transaction._LONG_SECONDS", 0.0)
    monkeypatch.setattr("aioqueue.sqlite._transaction._warn", warn)
    REQUEST.set(Request())
    async with store.transaction():
        with anyio.fail_after(60):
            await warned.wait()
    assert seen == [None]


async def test_a_thread_keeps_nothing_of_its_last_request(store: SQLiteStore) -> None:
    request = Request()
    kept = weakref.ref(request)

    async def use(value: Request) -> None:
        assert store._opened is not None
        await store._opened.writer.call(lambda _, __: value and None)

    await use(request)
    del request
    with anyio.fail_after(60):
        while kept() is not None:  # the thread lets go of it after the answer
            gc.collect()
            await anyio.sleep(0.001)
