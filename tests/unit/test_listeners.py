"""Listeners of one store: told in its event loop, each whatever becomes of the others."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextvars import ContextVar

import pytest

from aioqueue.store_rules._listeners import Listeners
from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

NEWS = Notification(types=frozenset({"mail"}))
logger = logging.getLogger("aioqueue.test")


@pytest.fixture
async def listeners() -> Listeners:
    return Listeners(asyncio.get_running_loop(), logger)


async def test_one_that_fails_is_logged_and_the_others_hear(listeners: Listeners, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Notification] = []

    def fails(_: Notification) -> None:
        raise ValueError("no")

    with listeners.subscribe(fails), listeners.subscribe(heard.append):
        listeners.tell(NEWS)
    assert heard == [NEWS]
    (record,) = caplog.records
    assert (record.name, record.message) == ("aioqueue.test", "a listener of notifications has failed")


async def test_the_same_listener_twice(listeners: Listeners) -> None:
    heard: list[Notification] = []
    with listeners.subscribe(heard.append):
        with listeners.subscribe(heard.append):
            assert len(listeners) == 2
            listeners.tell(NEWS)
        assert len(listeners) == 1
        listeners.tell(NEWS)
    listeners.tell(NEWS)
    assert heard == [NEWS] * 3


async def test_listeners_may_come_and_go_while_they_are_told(listeners: Listeners) -> None:
    heard: list[Notification] = []

    def leave(_: Notification) -> None:
        subscription.__exit__(None, None, None)

    subscription = listeners.subscribe(leave)
    subscription.__enter__()
    with listeners.subscribe(heard.append):
        listeners.tell(NEWS)
        listeners.tell(NEWS)
    assert heard == [NEWS, NEWS]


async def test_a_listener_sees_no_context_of_whoever_tells(listeners: Listeners) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    seen: list[str] = []
    with listeners.subscribe(lambda _: seen.append(variable.get())):
        variable.set("a request's")
        listeners.tell(NEWS)
    assert seen == ["none"]


async def test_somebody_wants_to_hear_of_finished_jobs(listeners: Listeners) -> None:
    heard: list[Notification] = []
    with listeners.subscribe(heard.append):
        assert not listeners.finished_wanted.is_set()
        with listeners.subscribe(heard.append, finished=True):
            with listeners.subscribe(heard.append, finished=True):
                assert listeners.finished_wanted.is_set()
            assert listeners.finished_wanted.is_set()
        assert not listeners.finished_wanted.is_set()


async def test_a_thread_tells_in_the_event_loop(listeners: Listeners) -> None:
    told = asyncio.Event()
    threads: list[threading.Thread] = []

    def listener(_: Notification) -> None:
        threads.append(threading.current_thread())
        told.set()

    with listeners.subscribe(listener):
        await asyncio.to_thread(listeners.tell_from_thread, NEWS)
        await told.wait()
    assert threads == [threading.current_thread()]


def test_a_thread_may_tell_after_the_event_loop_was_closed() -> None:
    loop = asyncio.new_event_loop()
    listeners = Listeners(loop, logger)
    heard: list[Notification] = []
    with listeners.subscribe(heard.append):
        loop.close()
        listeners.tell_from_thread(NEWS)
    assert heard == []
