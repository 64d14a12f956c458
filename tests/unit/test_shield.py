"""What must be done to its end is, whatever cancels its waiter, and the cancellation goes on afterwards."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue.runtime import _shield
from aioqueue.runtime._shield import finish, to_the_end, wait_until_ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


class Work:
    """Goes on until it's let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()
        self.done = False
        self.task: asyncio.Task[Any] | None = None
        self._error = error

    async def run(self) -> str:
        self.task = asyncio.current_task()
        self.begun.set()
        await self.released.wait()
        self.done = True
        if self._error is not None:
            raise self._error
        return "written"


async def rounds() -> None:
    """Let everybody who can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def reported() -> AsyncIterator[list[dict[str, Any]]]:
    """What the event loop is told of that nobody has looked at."""
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: told.append(context))
    yield told
    loop.set_exception_handler(before)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_call_goes_on_when_its_waiter_is_cancelled(*, refused: bool, reported: list[dict[str, Any]]) -> None:
    work = Work(OSError("refused") if refused else None)
    task = asyncio.create_task(to_the_end(work.run(), 60))
    await work.begun.wait()
    for _ in range(2):
        task.cancel()
        await rounds()
    assert not task.done()
    work.released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.done
    del task, work
    await rounds()  # within the turn that has raised the cancellation, the event loop itself still has its traceback
    gc.collect()  # an error that nobody has looked at would be reported now
    assert reported == []


async def test_a_call_goes_on_when_a_scope_is_cancelled() -> None:
    work, went_on = Work(), False
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_later(0, scope.cancel)
        asyncio.get_running_loop().call_later(0.01, work.released.set)
        assert await to_the_end(work.run(), 60) == "written"
        await asyncio.sleep(0)  # the scope's cancellation goes on at the next await
        went_on = True
    assert work.done
    assert scope.cancelled_caught
    assert not went_on


async def test_waiting_in_a_cancelled_scope_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scope that isn't held off would cancel each wait anew, in every turn of the event loop."""
    wait, waits = asyncio.wait, list[object]()

    def counted(*arguments: Any, **named: Any) -> Any:
        waits.append(arguments)
        return wait(*arguments, **named)

    work = Work()
    task = asyncio.create_task(work.run())
    with anyio.CancelScope() as scope:
        await work.begun.wait()
        monkeypatch.setattr(asyncio, "wait", counted)
        scope.cancel()
        asyncio.get_running_loop().call_later(0.01, work.released.set)
        assert await wait_until_ended(task) is None
    assert len(waits) == 1


async def test_a_call_has_nothing_of_its_waiters_context() -> None:
    contextvars.ContextVar[str]("request").set("the waiter's")

    async def seen() -> list[contextvars.ContextVar[Any]]:
        return list(contextvars.copy_context())

    assert await to_the_end(seen(), 60) == []


async def test_a_call_that_takes_too_long_is_cancelled() -> None:
    work = Work()
    with pytest.raises(TimeoutError):
        await to_the_end(work.run(), 0.01)
    await rounds()
    assert not work.done
    assert work.task is not None
    assert work.task.cancelled()


async def test_a_call_has_less_time_once_its_waiter_is_cancelled() -> None:
    work = Work()
    task = asyncio.create_task(to_the_end(work.run(), 600, once_cancelled=0.01))
    await work.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    await rounds()
    assert not work.done
    assert work.task is not None
    assert work.task.cancelled()


async def test_what_a_call_gives_or_raises_is_its_waiters() -> None:
    work = Work(OSError("refused"))
    work.released.set()
    with pytest.raises(OSError, match="refused"):
        await to_the_end(work.run(), 60)


async def test_a_finished_task_that_was_cancelled_is_begun_again_once() -> None:
    begun: list[asyncio.Task[Any]] = []

    def begin() -> asyncio.Task[Any]:
        begun.append(asyncio.create_task(asyncio.sleep(0)))
        return begun[-1]

    first = begin()
    first.cancel()
    await finish(first, again=begin)
    assert [task.cancelled() for task in begun] == [True, False]

    first = begin()
    first.cancel()
    await finish(first)
    assert len(begun) == 3


async def test_whoever_waits_gets_the_cancellation_to_raise_later() -> None:
    work = Work()
    task = asyncio.create_task(work.run())

    async def wait() -> str:
        cancelled = await wait_until_ended(task)
        return "free" if cancelled is None else "cancelled"

    waiter = asyncio.create_task(wait())
    await work.begun.wait()
    waiter.cancel()
    await rounds()
    work.released.set()
    assert await waiter == "cancelled"
    assert await wait() == "free"


async def test_the_module_says_of_each_of_its_functions_when_it_is_used() -> None:
    assert [name for name in _shield.__all__ if f"`{name}`" not in (_shield.__doc__ or "")] == []
