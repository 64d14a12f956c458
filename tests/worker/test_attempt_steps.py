"""The steps around a handler: what was opened is closed, its timer is stopped, what was cancelled isn't begun."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry, Retry
from aioqueue.worker import Worker
from aioqueue.worker._outcome import Interrupted, Outcome
from aioqueue.worker._stop_reason import StopReason
from tests.worker.test_cancel_reasons import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.threads.close()


async def test_what_was_opened_for_an_attempt_is_closed_at_its_end_and_told_of_its_error(client: Client) -> None:
    registry, events = Registry(), list[str]()

    @registry.resource(scope="attempt")
    async def session() -> AsyncIterator[list[str]]:
        events.append("open")
        try:
            yield events
        except ValueError as error:
            events.append(f"roll back: {error}")
            raise
        else:
            events.append("commit")

    @registry.job(retry=Retry(max_attempts=1))
    async def uses(*, fails: bool) -> None:
        (await session.get()).append("used")
        if fails:
            raise ValueError("no")

    for fails in (False, True):
        await client.enqueue(uses(fails=fails))
        await Worker(client, registry).run_once()
    assert events == ["open", "used", "commit", "open", "used", "roll back: no"]


async def test_the_timer_of_an_attempt_that_has_ended_is_stopped(bench: Bench) -> None:
    """It would keep the job in memory until its timeout."""
    running = asyncio.create_task(bench.attempts.run(bench.slot))
    await bench.waits.wait()
    timer = getattr(bench.slot.attempt, "timer", None)
    assert isinstance(timer, asyncio.TimerHandle)
    assert not timer.cancelled()
    running.cancel()
    assert isinstance(await running, Outcome)
    assert timer.cancelled()


async def test_what_was_cancelled_before_it_began_calls_nothing(bench: Bench) -> None:
    bench.slot.cancel(StopReason.SHUTDOWN)
    async with asyncio.timeout(60):
        assert isinstance(await bench.attempts.run(bench.slot), Interrupted)
    assert not bench.waits.is_set()
