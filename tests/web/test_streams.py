"""Streams of events through real servers: what is sent, and that nothing of them stays behind."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

import aioqueue.web
from aioqueue import Client, ConfigurationError, Fail, Registry, Worker
from aioqueue.client import _subscription
from aioqueue.events import JobEvent, JobStarted
from aioqueue.web import _streams
from tests.web.browser import Browser, Frame, frames_of
from tests.web.conftest import uvicorn_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from aioqueue.testing import MemoryStore
    from aioqueue.web import StreamRequest
    from tests.web.conftest import Served

    Serve = Callable[..., AbstractAsyncContextManager[Served]]

pytestmark = pytest.mark.anyio

PATIENCE = 30.0
registry = Registry()


@registry.job
async def add(left: int, right: int) -> int:
    return left + right


@registry.job
async def failing(secret: str) -> None:
    raise Fail(secret)


def kinds(frames: list[Frame]) -> list[str]:
    return [each.event for each in frames]


async def none_left(served: Served) -> None:
    """Wait until no stream is open any more."""
    with anyio.fail_after(PATIENCE):
        while served.endpoint.streaming:
            await asyncio.sleep(0.01)


async def test_a_snapshot_then_events_then_what_was_missed(client: Client, serve: Serve) -> None:
    async with serve(client) as served:
        with anyio.fail_after(PATIENCE):
            handle = await client.enqueue(add(1, 2))
            async with Browser(served.port, f"/events?job={handle.id}") as browser:
                (snapshot,) = await browser.take(1)
                assert (snapshot.event, snapshot.id, snapshot.data["state"]) == ("snapshot", None, "ready")
                await client.run_now(handle)
                (seen,) = await browser.take(1)
                assert (seen.event, seen.data["job_id"]) == ("rescheduled", str(handle.id))
            assert "text/event-stream" in browser.headers
            assert "no-store" in browser.headers
            await Worker(client, registry).run_once()
            async with Browser(served.port, f"/events?job={handle.id}", browser.last_id) as browser:
                missed = await browser.take(2)
        assert kinds(missed) == ["started", "completed"]
        assert [int(each.id or 0) for each in missed] == [int(seen.id or 0) + 1, int(seen.id or 0) + 2]
        await none_left(served)


async def test_each_store_s_events_and_snapshots_can_be_sent(each_url: str) -> None:
    client = Client(each_url, poll_interval=0.05)
    await client.migrate()
    with anyio.fail_after(PATIENCE):
        async with client, uvicorn_server(client) as served, Browser(served.port) as browser:
            assert kinds(await browser.take(1)) == ["snapshot"]
            handle = await client.enqueue(add(1, 2))
            await Worker(client, registry).run_once()
            events = await browser.take(3)
            async with Browser(served.port, f"/events?chain={handle.id}") as other:
                (snapshot,) = await other.take(1)
    assert [(each.event, each.data["job_id"]) for each in events] == [
        (kind, str(handle.id)) for kind in ("enqueued", "started", "completed")
    ]
    assert (snapshot.data["job_id"], snapshot.data["state"]) == (str(handle.id), "completed")


async def test_an_event_that_can_not_be_sent_stops_no_others(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(happened: JobEvent) -> dict[str, Any]:
        return {"odd": object() if isinstance(happened, JobStarted) else None}

    monkeypatch.setattr(_streams, "fields_of_event", told)
    with anyio.fail_after(PATIENCE):
        async with uvicorn_server(client) as served, Browser(served.port) as browser:
            await browser.take(1)
            await client.enqueue(add(1, 2))
            await Worker(client, registry).run_once()
            assert kinds(await browser.take(2)) == ["enqueued", "completed"]
    assert [getattr(each, "event", "") for each in caplog.records] == ["web.choose_failed"]


@pytest.mark.parametrize("last_id", ["77", "-1", "9" * 19, "9" * 5000, "text", "1\u00b2"])
async def test_an_id_that_nobody_knows_is_a_reset_and_a_snapshot(client: Client, last_id: str) -> None:
    async with uvicorn_server(client) as served, Browser(served.port, last_id=last_id) as browser:
        with anyio.fail_after(PATIENCE):
            frames = await browser.take(2)
    assert kinds(frames) == ["reset", "snapshot"]
    assert [each.id for each in frames] == [None, None]


async def test_browsers_that_break_off_at_random_see_each_event_in_order(client: Client, serve: Serve) -> None:
    number, seen = 20, dict[str, list[str]]()
    known = set[str]()

    async def read(served: Served) -> None:
        last_id: str | None = None
        while len(known) < 3 * number:
            async with Browser(served.port, last_id=last_id) as browser:
                left = random.randint(1, 8)
                async for each in browser.frames():
                    assert each.event != "reset"
                    if each.event == "snapshot":
                        begun.set()
                        continue
                    if each.id is not None and each.id not in known:
                        known.add(each.id)
                        seen.setdefault(each.data["job_id"], []).append(each.event)
                    left -= 1
                    if not left or len(known) == 3 * number:
                        break
                last_id = browser.last_id

    begun = asyncio.Event()
    async with serve(client) as served:
        with anyio.fail_after(PATIENCE):
            async with asyncio.TaskGroup() as group:
                group.create_task(read(served))
                await begun.wait()
                await client.enqueue_many([add(1, n) for n in range(number)])
                await Worker(client, registry).run_once()
        assert list(seen.values()) == [["enqueued", "started", "completed"]] * number
        await none_left(served)
    assert client.store is not None


async def test_nothing_is_left_behind_by_readers_that_come_and_go(
    client: Client, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(client) as served:
        with anyio.fail_after(PATIENCE):
            for turn in range(40):
                async with Browser(served.port) as browser:
                    if turn % 2:
                        await browser.take(1)
            await none_left(served)
        feed = client._session.opened().events
        assert len(feed._all) == 0
        assert [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []
        assert [each for each in asyncio.all_tasks() if "serve" in repr(each.get_coro()) and "Streams" in repr(each)] == []


async def test_a_server_that_stops_waits_no_longer_than_a_stream_lasts(client: Client, serve: Serve) -> None:
    """One that is idle, one that doesn't read, and one that has read something."""
    async with serve(client, lifetime=0.4) as served:
        async with Browser(served.port) as idle, Browser(served.port), Browser(served.port) as reading:
            with anyio.fail_after(PATIENCE):
                await idle.take(1)
                await reading.take(1)
            served.stop()
            with anyio.fail_after(PATIENCE):
                await served.over.wait()
                assert [each async for each in idle.frames()] == []
        assert served.endpoint.streaming == 0


async def test_streams_can_be_told_to_end_at_once(client: Client, serve: Serve) -> None:
    async with serve(client, lifetime=3600) as served, Browser(served.port) as browser:
        with anyio.fail_after(PATIENCE):
            await browser.take(1)
            stopped = served.endpoint.stop()
            if stopped is not None:
                await stopped
            assert [each async for each in browser.frames()] == []


@pytest.mark.parametrize("told", [True, False], ids=["told to stop", "by itself"])
async def test_a_reader_that_takes_nothing_holds_up_no_shutdown(client: Client, serve: Serve, told: bool) -> None:
    """The kernel's buffers are full, and the server's begin to be."""
    enough = 0

    def choose(_: object, __: object, ___: StreamRequest) -> dict[str, str]:
        nonlocal enough
        enough += 1
        return {"filler": "x" * 1_000_000}

    with anyio.fail_after(20):
        async with serve(client, choose=choose, lifetime=60.0 if told else 1.0) as served, Browser(served.port) as browser:
            await browser.head()
            for _ in range(30):
                await client.enqueue(add(1, 2))
            while not enough:
                await asyncio.sleep(0.01)
            if told and isinstance(served.endpoint, aioqueue.web.EventsApp):
                served.endpoint.stop()
            served.stop()
            await served.over.wait()
            assert not served.endpoint.streaming


async def test_no_payload_forges_an_event(client: Client, store: MemoryStore) -> None:
    """Whatever a job says of itself: line breaks of all kinds, fields of frames, and what ends one."""
    evil = "x\n\nevent: completed\nid: 999\ndata: {}\n\r\r\r\n\u2028\u0085\x00"
    text = ""
    app = aioqueue.web.events(client, choose=lambda about, _, __: {"said": evil, "about": type(about).__name__})
    async with client.events() as stream:
        await client.enqueue(add(1, 1))
        happened = await anext(stream)
    assert isinstance(happened, JobEvent)
    text = app._streams._frame("enqueued", happened, Any, happened.sequence).decode()
    assert frames_of(text) == [Frame("enqueued", str(happened.sequence), {"said": evil, "about": "JobEnqueued"})]
    assert store is not None


async def test_errors_and_arguments_are_told_by_those_who_choose_so(client: Client) -> None:
    def choose(about: object, told: dict[str, Any], request: StreamRequest) -> dict[str, Any] | None:
        if request.query.get("deaf"):
            return None
        if request.query.get("broken"):
            raise ValueError
        return {**told, "why": getattr(about, "error_message", None)}

    async def frames(query: str, number: int, **options: Any) -> list[Frame]:
        async with uvicorn_server(client, **options) as served, Browser(served.port, f"/events{query}") as browser:
            with anyio.fail_after(PATIENCE):
                await browser.head()
                while not served.endpoint.streaming:
                    await asyncio.sleep(0.01)
                handle = await client.enqueue(failing("the secret"))
                await Worker(client, registry).run_once()
                if number:
                    return await browser.take(number)
                await client.delete(handle)
                served.endpoint.stop()
                return [each async for each in browser.frames()]

    plain = await frames("", 4)
    assert kinds(plain) == ["snapshot", "enqueued", "started", "failed"]
    assert "secret" not in repr(plain)
    assert (await frames("", 4, choose=choose))[-1].data["why"] == "the secret"
    assert await frames("?deaf=1", 0, choose=choose) == []
    assert await frames("?broken=1", 0, choose=choose) == []


async def test_who_may_not_see_it_and_what_can_not_be_asked(client: Client, serve: Serve) -> None:
    async def authorise(request: StreamRequest) -> bool:
        if request.headers.get("host") != "localhost":
            raise ValueError
        return request.query.get("token") == ["good"]

    async with serve(client, authorise=authorise) as served:
        refused = [("", 403), *(("?token=good&" + odd, 400) for odd in ("job=no", "chain=", "type=a%00"))]
        for query, status in (("?token=good", 200), *refused):
            async with Browser(served.port, f"/events{query}") as browser:
                with anyio.fail_after(PATIENCE):
                    assert await browser.head() == status


async def test_what_asks_for_the_head_gets_no_stream(client: Client, serve: Serve) -> None:
    async with serve(client) as served, AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as http:
        with anyio.fail_after(PATIENCE):
            assert (await http.head("/events")).status_code == 405
        await none_left(served)


async def test_in_fastapi_other_methods_and_broken_hooks_are_refused(client: Client) -> None:
    def broken(_: StreamRequest) -> bool:
        raise ValueError("no")

    app = FastAPI()
    app.add_route("/events", aioqueue.web.events(client, authorise=broken))
    app.mount("/mounted", aioqueue.web.events(client, authorise=broken))
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as browser:
        for path in ("/events", "/mounted/"):
            assert (await browser.post(path)).status_code == 405
            assert (await browser.get(path)).status_code == 500


async def test_a_hook_that_hangs_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.web._streams._AUTHORISE_SECONDS", 0.01)

    async def hangs(_: StreamRequest) -> bool:
        await anyio.sleep_forever()
        return True

    app = FastAPI()
    app.add_route("/events", aioqueue.web.events(client, authorise=hangs))
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as browser:
        with anyio.fail_after(PATIENCE):
            assert (await browser.get("/events")).status_code == 500


async def test_comments_come_while_nothing_happens(client: Client) -> None:
    async with uvicorn_server(client, keep_alive=0.01) as served, Browser(served.port) as browser:
        with anyio.fail_after(PATIENCE):
            await browser.head()
            assert await browser._reader.readuntil(b"\n\n:\n\n:\n\n")
    with pytest.raises(ConfigurationError):
        aioqueue.web.events(client, lifetime=0)


async def test_what_a_reader_does_not_take_is_bounded_and_ends_in_a_reset(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_subscription, "_MOST_BUFFERED", 3)
    app, taken, sent = aioqueue.web.events(client), asyncio.Event(), list[bytes]()
    gone, begun = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if b"snapshot" in sent[-1]:
            begun.set()
            await taken.wait()

    scope = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
    serving = asyncio.create_task(app(scope, receive, send))
    with anyio.fail_after(PATIENCE):
        await begun.wait()
        await client.enqueue_many([add(1, n) for n in range(10)])
        while len(client._session.opened().events._all) and not any(
            each._reset for each in client._session.opened().events._all
        ):
            await asyncio.sleep(0)
        taken.set()
        while not any(b"reset" in each for each in sent):
            await asyncio.sleep(0)
        gone.set()
        await serving
    assert not any(b"enqueued" in each for each in sent)
    assert app.streaming == 0
