"""`aioqueue.testing.attempt_of`: handlers that ask for their attempt, called without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioqueue import CallError, Registry, current_attempt
from aioqueue.testing import attempt_of

pytestmark = pytest.mark.anyio

registry = Registry(prefix="test.")
log: list[str] = []


@registry.resource
async def database() -> AsyncIterator[str]:
    log.append("opened")
    yield "real"
    log.append("closed")


@registry.resource(scope="attempt")
async def session() -> AsyncIterator[str]:
    opened = await database.get()
    log.append("begun")
    yield f"session of {opened}"
    log.append("ended")


def count(words: str) -> int:
    return len(words.split())


@registry.job(phases=("count",))
async def measure(words: str) -> Any:
    attempt = current_attempt()
    number = await attempt.phase("count", count, words)
    attempt.progress(50)
    return number, await session.get(), attempt.number, attempt.arguments, attempt.metadata, attempt.client


async def test_a_handler_runs_in_it_and_what_it_has_opened_is_closed() -> None:
    log.clear()
    call = measure("to be").options(metadata={"tenant": 7})
    async with attempt_of(call, number=3) as attempt:
        answer = await measure.fn("to be")
        assert answer == (2, "session of real", 3, {"words": "to be"}, {"tenant": 7}, None)
        assert attempt.last_progress is not None
        assert attempt.last_progress.percent == 50
        assert attempt.job.id == call.id
        with pytest.raises(CallError, match="no worker"):
            attempt.enqueue(call)
    assert log == ["opened", "begun", "ended", "closed"]
    with pytest.raises(RuntimeError):
        current_attempt()


async def test_resources_that_a_test_gives_are_used() -> None:
    async with registry.resource_scope({database: "fake", session: "fake session"}), attempt_of(measure("to be")):
        assert (await measure.fn("to be"))[1] == "fake session"
