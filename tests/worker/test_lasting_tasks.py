"""A task that lasts until it's stopped begins again where somebody else cancels it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

import pytest

from aioqueue.worker._bounded_calls import BoundedCalls
from aioqueue.worker._lasting_task import LastingTask

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

ambient: contextvars.ContextVar[str] = contextvars.ContextVar("ambient", default="nothing")


class Loop:
    """A loop that waits in one call until it's ended, with the task that runs it.

    Attributes:
        begun: How often it has begun.
        seen: What it found in the context, each time.
        waits: How often it's asked how long to wait, before it begins again.
    """

    def __init__(self, again_in: float = 0.0) -> None:
        self.calls = BoundedCalls("a call")
        self.task = LastingTask("a loop", self.calls, self._wait)
        self.begun = self.waits = 0
        self.seen: list[str] = []
        self.end = asyncio.Event()
        self._again_in = again_in

    def _wait(self) -> float:
        self.waits += 1
        return self._again_in

    async def run(self) -> None:
        self.begun += 1
        self.seen.append(ambient.get())
        await self.calls.call(self.end.wait(), 60)

    async def has_begun(self, times: int) -> None:
        await until(lambda: self.begun == times and self.calls.task is not None and not self.calls.task.done())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def cancel(name: str) -> None:
    """As whoever cancels all tasks of an event loop."""
    found = [task for task in asyncio.all_tasks() if task.get_name() == name]
    assert found
    for task in found:
        task.cancel()


async def test_who_cancels_it_stops_it_for_a_moment() -> None:
    loop = Loop()
    loop.task.begin(loop.run)
    for times in range(1, 4):
        await loop.has_begun(times)
        cancel("a loop")
    await loop.has_begun(4)
    assert loop.waits == 3
    loop.task.let_go()


async def test_it_sees_nothing_of_the_context_of_who_begins_it() -> None:
    loop = Loop()
    token = ambient.set("something")
    loop.task.begin(loop.run)
    await loop.has_begun(1)
    cancel("a loop")
    await loop.has_begun(2)
    ambient.reset(token)
    assert loop.seen == ["nothing", "nothing"]
    loop.task.let_go()


async def test_one_that_was_stopped_begins_no_more() -> None:
    loop = Loop()
    loop.task.begin(loop.run)
    await loop.has_begun(1)
    loop.task.stop()
    loop.task.stop()
    await asyncio.wait(loop.task.tasks, timeout=10)
    assert [task.cancelled() for task in loop.task.tasks] == [True, True]
    loop.task.begin(loop.run)
    await asyncio.sleep(0)
    assert (loop.begun, loop.waits) == (1, 0)


async def test_a_stop_counts_also_while_it_waits_to_begin_again() -> None:
    loop = Loop(again_in=0.01)
    loop.task.begin(loop.run)
    await loop.has_begun(1)
    cancel("a loop")
    await until(lambda: loop.waits == 1)
    loop.task.stop()
    await asyncio.sleep(0.02)  # for longer than it waits
    assert loop.begun == 1


async def test_one_that_returns_has_ended() -> None:
    loop = Loop()
    loop.task.begin(loop.run)
    await loop.has_begun(1)
    loop.end.set()
    await asyncio.wait(loop.task.tasks, timeout=10)
    await asyncio.sleep(0)
    assert (loop.begun, loop.waits) == (1, 0)
    assert not any(task.cancelled() for task in loop.task.tasks)


async def test_one_that_never_began_can_be_let_go() -> None:
    loop = Loop()
    assert loop.task.tasks == []
    loop.task.let_go()
    loop.task.begin(loop.run)
    assert loop.task.tasks == []
