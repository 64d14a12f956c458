"""Resources: opened once per scope, closed in reverse, each in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator

import anyio
import pytest

from aioqueue import Registry
from aioqueue.definitions._resources import ResourceScope, Scope

pytestmark = pytest.mark.anyio

registry = Registry()
events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


@registry.resource
async def http() -> AsyncIterator[str]:
    events.append("open http")
    await asyncio.sleep(0)
    yield "http"
    events.append("close http")


@registry.resource
async def api() -> AsyncIterator[str]:
    client = await http.get()
    events.append("open api")
    yield f"api over {client}"
    events.append("close api")


@registry.resource(scope="attempt")
async def session() -> AsyncIterator[list[str]]:
    opened = [await api.get()]
    events.append("open session")
    try:
        yield opened
    except ValueError:
        events.append("roll back")
        raise
    events.append("close session")


async def test_opened_once_and_closed_in_reverse() -> None:
    async with ResourceScope():
        assert await api.get() == "api over http"
        assert await http.get() == "http"
    assert events == ["open http", "open api", "close api", "close http"]


async def test_nothing_is_opened_without_a_use() -> None:
    async with ResourceScope() as scope:
        assert scope.empty
    assert events == []


async def test_concurrent_first_uses_open_it_once() -> None:
    async with ResourceScope(), anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(http.get)
    assert events == ["open http", "close http"]


async def test_an_attempts_resources_end_with_the_attempt() -> None:
    worker = ResourceScope()
    lists: list[list[str]] = []
    for _ in range(2):
        async with worker.child():
            lists.append(await session.get())
            assert await session.get() is lists[-1]
    assert lists[0] is not lists[1]
    assert events == ["open http", "open api", "open session", "close session", "open session", "close session"]
    await worker.aclose()
    assert events[-2:] == ["close api", "close http"]


async def test_an_attempts_resource_hears_of_its_error() -> None:
    worker = ResourceScope()

    async def attempt() -> None:
        async with worker.child():
            await session.get()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await attempt()
    assert events[-1] == "roll back"
    await worker.aclose()


async def test_a_cancelled_attempt_closes_its_resources() -> None:
    worker = ResourceScope()
    with anyio.CancelScope() as cancelling:
        scope = worker.child()
        try:
            async with scope:
                await session.get()
                cancelling.cancel()
                await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await scope.aclose()
    assert scope.empty
    await worker.aclose()
    assert events[-2:] == ["close api", "close http"]


async def test_outside_of_an_attempt_the_way_out_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"registry\.resource_scope"):
        await http.get()


async def test_a_workers_resource_cannot_use_an_attempts() -> None:
    @registry.resource
    async def wrong() -> AsyncIterator[int]:
        await session.get()
        yield 1

    async with ResourceScope():
        with pytest.raises(RuntimeError, match="lives for one attempt"):
            await wrong.get()


async def test_overrides_are_given_instead() -> None:
    async with registry.resource_scope({http: "fake", session: ["fake"]}):
        assert await http.get() == "fake"
        assert await api.get() == "api over fake"
        assert await session.get() == ["fake"]
    assert "open http" not in events


async def test_an_opening_that_failed_is_tried_again() -> None:
    fail = True

    @registry.resource
    async def flaky() -> AsyncIterator[int]:
        if fail:
            raise ConnectionError("down")
        yield 1

    async with ResourceScope():
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await flaky.get()
        fail = False
        assert await flaky.get() == 1


async def test_a_waiter_that_is_cancelled_does_not_end_the_opening() -> None:
    opening, go = asyncio.Event(), asyncio.Event()

    @registry.resource
    async def slow() -> AsyncIterator[int]:
        opening.set()
        await go.wait()
        yield 1

    async with ResourceScope():
        task = asyncio.create_task(slow.get())
        await opening.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await slow.get() == 1


async def test_closing_ends_an_opening_that_hangs() -> None:
    opening = asyncio.Event()

    @registry.resource
    async def hanging() -> AsyncIterator[int]:
        opening.set()
        await asyncio.Event().wait()
        yield 1

    async with ResourceScope():
        task = asyncio.create_task(hanging.get())
        await opening.wait()
    with pytest.raises(RuntimeError, match="cancelled"):
        await task


async def test_closed_in_the_turn_of_its_first_use_it_keeps_nobody_waiting() -> None:
    """Its task is cancelled before its first step, and never gets to where it would tell those who wait."""

    @registry.resource
    async def never_opened() -> AsyncIterator[int]:
        raise AssertionError
        yield 1

    async def use() -> int:
        return await never_opened.get()

    scope = ResourceScope()
    async with scope:
        task = asyncio.create_task(use())
        await asyncio.sleep(0)  # it has asked; what opens it hasn't had its turn
    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="closed before it was opened"):
            await task


async def test_every_resource_is_closed_though_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    @registry.resource
    async def one() -> AsyncIterator[int]:
        yield 1
        raise OSError("one")

    @registry.resource
    async def two() -> AsyncIterator[int]:
        yield 2
        raise OSError("two")

    scope = ResourceScope()
    child = scope.child()
    for resource in (http, one, two):
        await child.get(resource)
    with pytest.raises(OSError, match="two"):
        await scope.aclose()
    assert "one" in caplog.text
    assert events[-1] == "close http"
    with pytest.raises(RuntimeError, match="has ended"):
        await child.get(http)


async def test_cancel_scopes_in_a_resource_end_where_they_began() -> None:
    @registry.resource
    async def group() -> AsyncIterator[anyio.abc.TaskGroup]:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()

    worker = ResourceScope()
    done = asyncio.Event()

    async def use() -> None:
        async with worker.child():
            (await group.get()).start_soon(done.wait)

    await asyncio.gather(use(), use())
    await worker.aclose()


async def test_a_workers_resource_does_not_see_the_context_of_an_attempt() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="worker")

    @registry.resource
    async def seen() -> AsyncIterator[str]:
        yield variable.get()

    @registry.resource(scope="attempt")
    async def seen_by_attempt() -> AsyncIterator[str]:
        yield variable.get()

    worker = ResourceScope()
    async with worker.child():
        variable.set("attempt")
        assert await seen.get() == "worker"
        assert await seen_by_attempt.get() == "attempt"
    await worker.aclose()


async def test_threads_get_resources_too() -> None:
    async with ResourceScope():
        assert await asyncio.to_thread(http.get_from_thread) == "http"
        with pytest.raises(RuntimeError, match="await"):
            http.get_from_thread()


# -- exits, and closings that are cancelled ---------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["worker", "attempt"])
@pytest.mark.parametrize("exit_", [SystemExit, KeyboardInterrupt])
async def test_an_exit_while_it_opens_is_an_error_of_whoever_uses_it(scope: Scope, exit_: type[BaseException]) -> None:
    """From the task that opens it, `SystemExit` would end the event loop, and everybody in it."""

    @registry.resource(scope=scope)
    async def exits() -> AsyncIterator[int]:
        raise exit_(2)
        yield 1

    async with ResourceScope():
        with pytest.raises(RuntimeError, match=rf"exits has raised {exit_.__name__}: 2") as raised:
            await exits.get()
        assert type(raised.value.__cause__) is exit_


@pytest.mark.parametrize("scope", ["worker", "attempt"])
async def test_an_exit_while_it_closes_is_an_error_of_its_scope(scope: Scope) -> None:
    @registry.resource(scope=scope)
    async def exits() -> AsyncIterator[int]:
        yield 1
        raise SystemExit(2)

    parent = ResourceScope()
    child = parent.child()
    assert await child.get(exits) == 1
    with pytest.raises(RuntimeError, match="exits has raised SystemExit: 2"):
        await (parent if scope == "worker" else child).aclose()


class Closings:
    """Two resources of an attempt, of which the inner one is slow to close."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.closed: list[str] = []
        self.swallows = False

        @registry.resource(scope="attempt")
        async def outer() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                self.closed.append("outer")

        @registry.resource(scope="attempt")
        async def inner() -> AsyncIterator[int]:
            yield await outer.get()
            self.closing.set()
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.closed.append("inner cancelled")
                if not self.swallows:
                    raise
                await self.goes_on.wait()

        self.inner = inner


async def test_a_closing_that_is_cancelled_ends_before_its_scope_does_and_the_others_close_too() -> None:
    """It would go on unseen, with a commit for example, while the attempt counts as one that timed out."""
    closings, scope = Closings(), ResourceScope().child()
    assert await scope.get(closings.inner) == 1
    closer = asyncio.create_task(scope.aclose())
    await closings.closing.wait()
    closer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closer
    assert closings.closed == ["inner cancelled", "outer"]
    assert scope.empty


async def test_a_closing_that_swallows_its_cancellation_is_left_behind_and_named(caplog, monkeypatch) -> None:
    monkeypatch.setattr("aioqueue.definitions._resources._CANCELLED_CLOSING_SECONDS", 0.05)
    closings, scope = Closings(), ResourceScope().child()
    closings.swallows = True
    await scope.get(closings.inner)
    closer = asyncio.create_task(scope.aclose())
    await closings.closing.wait()
    closer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(closer, 60)
    assert closings.closed == ["inner cancelled", "outer"]
    assert "inner doesn't end though it was cancelled" in caplog.text
    (left,) = [task for task in asyncio.all_tasks() if "inner" in task.get_name()]
    closings.goes_on.set()
    await asyncio.wait([left])


async def test_a_workers_resource_sees_no_context_of_whoever_asked_first() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")

    @registry.resource
    async def seen() -> AsyncIterator[str]:
        yield request.get()

    @registry.resource(scope="attempt")
    async def seen_by_attempt() -> AsyncIterator[str]:
        yield request.get()

    request.set("the worker was started in this request")
    scope = ResourceScope()
    request.set("first")
    child = scope.child()
    assert await child.get(seen) == "none"
    assert await child.get(seen_by_attempt) == "first"
    await child.aclose()
    await scope.aclose()
