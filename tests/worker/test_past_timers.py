"""Timers whose time has come already, on each event loop: uvloop's handles of those can't tell their time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aioqueue.worker._postponed import Postponed
from aioqueue.worker._wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

pytestmark = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


def test_a_wakeup_that_is_due_at_once_and_again(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        wakeup = Wakeup()
        for delay in (0.0, -1.0, 0.0, 3600.0, 0.0):
            wakeup.wake_in(delay)
        async with asyncio.timeout(60):
            await wakeup.pause(0.0)
        wakeup.close()

    run(new_loop, main())


def test_a_wakeup_that_is_overdue_isnt_put_off_by_a_later_one(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The loop was blocked, or the process frozen, and then a notification tells of a job that is due in an hour."""

    async def main() -> None:
        wakeup = Wakeup()
        wakeup.wake_in(0.01)
        time.sleep(0.05)
        wakeup.wake_in(3600.0)
        async with asyncio.timeout(60):
            await wakeup.pause(7200.0)
        wakeup.close()

    run(new_loop, main())


def test_what_is_postponed_and_due_at_once(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async def write(items: Sequence[int]) -> Sequence[int]:
            return items

        postponed = Postponed[int, int](write, busy=lambda _: False, on_wait=lambda *_: None, size=lambda _: 1, name="numbers")
        futures = [postponed.submit_nowait(number, wait=wait) for number, wait in enumerate((0.0, -1.0, 0.0))]
        async with asyncio.timeout(60):
            assert await asyncio.gather(*futures) == [0, 1, 2]

    run(new_loop, main())
