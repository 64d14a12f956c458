"""Notifications over lines that break: they are listened for again, and what was missed is made up for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue.postgres import _notifications_listener
from aioqueue.postgres._notifications import notify_statements
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from tests.postgres.stores import opened, port_of, proxied
from tests.postgres_server import execute
from tests.processes import until
from tests.proxy import Proxy

if TYPE_CHECKING:
    from aioqueue.abc import Notification, Store

pytestmark = pytest.mark.anyio

LISTENERS = "(query ilike 'listen %' or query = 'SELECT 1') and datname = current_database()"


class Heard:
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self.notes: list[Notification] = []
        self._news = anyio.Event()

    def __call__(self, notification: Notification) -> None:
        self.notes.append(notification)
        self._news.set()

    def of(self, job_type: str) -> bool:
        return any(note.types is None or job_type in note.types for note in self.notes)

    async def type(self, job_type: str) -> None:
        """Wait until a job of this type was told of (or that anything may be there)."""
        with anyio.fail_after(120):
            while not self.of(job_type):
                self._news = anyio.Event()
                await self._news.wait()


async def enqueue(store: Store, job_type: str) -> None:
    await store.insert([NewJob(id=new_id(), type=job_type)])


def listening(url: str) -> int:
    return len(execute(url, f"select 1 from pg_stat_activity where {LISTENERS}"))


async def heard_directly(heard: Heard, url: str, producer: Store, job_type: str) -> None:
    """Once it listens, a note names the type, and nothing has to be made up for."""
    await until(lambda: listening(url) >= 1, "the listening connection")
    await enqueue(producer, job_type)
    await heard.type(job_type)


async def test_another_process_is_heard(postgres_url: str) -> None:
    heard = Heard()
    async with opened(postgres_url) as store, opened(postgres_url) as producer:
        with store.subscribe(heard):
            await heard_directly(heard, postgres_url, producer, "a")
        before = len(heard.notes)
        await enqueue(producer, "b")
        assert len(heard.notes) == before


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_a_terminated_listener_listens_again_and_makes_up_for_the_gap(postgres_url: str, times: int) -> None:
    heard = Heard()
    async with opened(postgres_url) as store, opened(postgres_url) as producer:
        with store.subscribe(heard):
            await heard_directly(heard, postgres_url, producer, "first")
            for number in range(times):
                heard.notes.clear()
                execute(postgres_url, f"select pg_terminate_backend(pid) from pg_stat_activity where {LISTENERS}")
                await enqueue(producer, f"gap {number}")
                await heard.type(f"gap {number}")
                heard.notes.clear()
                await heard_directly(heard, postgres_url, producer, f"after {number}")
            await until(lambda: listening(postgres_url) == 2, "exactly one listening connection for each of the two stores")


async def test_a_line_that_was_cut_and_refused(postgres_url: str) -> None:
    heard = Heard()
    async with Proxy(port_of(postgres_url)) as proxy:
        listen = {"listen_url": proxied(postgres_url, proxy)}
        async with opened(postgres_url, **listen) as store, opened(postgres_url) as producer:
            with store.subscribe(heard):
                await heard_directly(heard, postgres_url, producer, "first")
                proxy.refuse()
                proxy.cut()
                await enqueue(producer, "gap")
                heard.notes.clear()
                await proxy.accept()
                await heard.type("gap")
                await heard_directly(heard, postgres_url, producer, "after")


async def test_a_line_that_has_gone_silent(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks like one on which nothing happens: it's asked now and then, and given up without an answer."""
    monkeypatch.setattr(_notifications_listener, "_ALIVE_SECONDS", 1.0)
    heard = Heard()
    async with Proxy(port_of(postgres_url)) as proxy:
        listen = {"listen_url": proxied(postgres_url, proxy)}
        async with opened(postgres_url, **listen) as store, opened(postgres_url) as producer:
            with store.subscribe(heard):
                await heard_directly(heard, postgres_url, producer, "first")
                before = len(proxy.connections)
                proxy.pause()
                await until(lambda: len(proxy.connections) > before, "another attempt to connect")
                await enqueue(producer, "gap")
                heard.notes.clear()
                proxy.resume()
                await heard.type("gap")
                await heard_directly(heard, postgres_url, producer, "after")


async def test_notifications_can_be_turned_off(postgres_url: str) -> None:
    heard = Heard()
    async with opened(postgres_url, notify=False) as store, opened(postgres_url, notify=False) as producer:
        with store.subscribe(heard):
            await enqueue(producer, "unheard")
            await enqueue(store, "own")
            await heard.type("own")
            assert not any(note.types is not None and "unheard" in note.types for note in heard.notes)
            assert listening(postgres_url) == 0


async def test_a_listener_that_is_terminated_while_it_probes_comes_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It isn't taken for one behind a pooler, which would be left alone for a long time."""
    monkeypatch.setattr(_notifications_listener, "_PROBE_SECONDS", 120.0)
    monkeypatch.setattr(_notifications_listener, "_FIRST_PROBE_AGAIN", 3600.0)
    heard = Heard()
    async with opened(postgres_url) as store, opened(postgres_url) as producer:
        pool = store._opened.operations
        fetch = pool.fetch
        probing = anyio.Event()
        notify = notify_statements(Schema())["notify"]

        async def held_back(sql: str, *arguments: Any) -> Any:
            if sql == notify and not probing.is_set():
                probing.set()
                return []  # this probe is lost, and the connection ends before another is sent
            return await fetch(sql, *arguments)

        monkeypatch.setattr(pool, "fetch", held_back)
        with store.subscribe(heard):
            await until(lambda: listening(postgres_url) >= 1, "the listening connection")
            execute(postgres_url, f"select pg_terminate_backend(pid) from pg_stat_activity where {LISTENERS}")
            await until(probing.is_set, "a probe")
            execute(postgres_url, f"select pg_terminate_backend(pid) from pg_stat_activity where {LISTENERS}")
            await heard_directly(heard, postgres_url, producer, "after")


async def test_a_listener_that_hears_nothing_any_more_listens_on_a_new_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registration is gone, though the connection answers; while it's deaf, the store knows."""
    monkeypatch.setattr(_notifications_listener, "_ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(_notifications_listener, "_ECHO_SECONDS", 0.3)
    monkeypatch.setattr(_notifications_listener, "_PROBE_SECONDS", 1.0)
    connections: list[Any] = []

    async def connect() -> Any:
        connections.append(await asyncpg.connect(postgres_url))
        return connections[-1]

    heard = Heard()
    async with opened("postgresql://", connect=connect) as store, opened(postgres_url, notify=False) as producer:
        with store.subscribe(heard):
            await until(store._opened._listening._listening.is_set, "the start")
            assert store.troubles == {}
            (listener,) = [each for each in connections if each._listeners]
            await listener.execute("UNLISTEN *")
            await until(lambda: "notifications" in store.troubles, "that the store knows of it")
            heard.notes.clear()
            await until(lambda: heard.of("anything"), "that what was missed is made up for")
            await until(lambda: store.troubles == {}, "all is well again")
            heard.notes.clear()
            assert listener.is_closed()
            execute(postgres_url, f'select pg_notify(\'{store._schema.channel}\', \'{{"t": ["a"], "d": 0}}\')')
            await until(lambda: any(note.types == {"a"} for note in heard.notes), "a notification")
            assert producer.troubles == {}


async def test_a_listener_that_never_hears_anything_says_so(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_notifications_listener, "_PROBE_SECONDS", 0.2)
    monkeypatch.setattr(_notifications_listener, "_FIRST_PROBE_AGAIN", 0.1)

    class Deaf(asyncpg.Connection):
        async def add_listener(self, channel: str, callback: Any) -> None:
            await super().add_listener(channel, callback)
            await self.execute("UNLISTEN *")

    async def deaf() -> Any:
        return await asyncpg.connect(postgres_url, connection_class=Deaf)

    async with opened("postgresql://", connect=deaf) as store:
        await until(lambda: "notifications" in store.troubles, "that the store knows of it")
        assert "polling" in store.troubles["notifications"]
        await until(lambda: listening(postgres_url) == 0, "that it doesn't keep a connection that hears nothing")
    assert len([record for record in caplog.records if "don't arrive" in record.message]) == 1
