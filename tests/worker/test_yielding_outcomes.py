"""Outcomes in whose place a job is cancelled of whose request its worker hasn't heard; and jobs that cancel themselves."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from aioqueue import Call, Cancel, Client, Fail, Fixed, JobState, Registry, Retry, Worker
from tests.worker.asking import Asking
from tests.worker.completing import outcomes

pytestmark = pytest.mark.anyio

SOON = Retry(max_attempts=3, backoff=Fixed(0))


@pytest.fixture
def asking(client: Client, monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(client, monkeypatch)


@pytest.mark.parametrize("continues", [False, True])
async def test_what_the_store_cancels_of_which_the_worker_hasn_t_heard(
    client: Client, asking: Asking, caplog: pytest.LogCaptureFixture, continues: bool
) -> None:
    registry = Registry()

    @registry.job(retry=SOON)
    async def following() -> int:
        return 1

    @registry.job(retry=SOON)
    async def overruled() -> Call[int]:
        if continues:
            return following()
        raise ValueError("no")

    before = outcomes("overruled")
    handle = await client.enqueue(overruled())
    asking.overrule(handle.id)
    with caplog.at_level(logging.INFO, "aioqueue.worker"):
        done_once = await Worker(client, registry).run_once()
    told = [each for each in caplog.records if getattr(each, "event", "") == "attempt.cancelled"]
    assert len(told) == 1
    after = outcomes("overruled")
    if continues:
        assert told[0].getMessage().endswith("is cancelled, unstarted: its chain was asked to end")
        assert done_once.continued == 1
    else:
        assert told[0].getMessage().endswith("it is cancelled: its chain was asked to end")
        assert (done_once.cancelled, done_once.retried) == (1, 0)
        assert after.get("cancelled", 0) == before.get("cancelled", 0) + 1
        assert after.get("retry", 0) == before.get("retry", 0)


async def test_failures_that_nobody_chose_yield(client: Client, asking: Asking) -> None:
    registry = Registry()
    once = Retry(max_attempts=1)

    @registry.job(retry=once)
    async def chosen() -> None:
        raise Fail("no")

    @registry.job(retry=once)
    async def exhausted() -> None:
        raise ValueError("no")

    @registry.job(retry=once)
    async def unreadable() -> int:
        return cast("int", "no")

    @registry.job(retry=once)
    async def well() -> None: ...

    calls = [chosen(), exhausted(), unreadable(), well()]
    handles = [await client.enqueue(call) for call in calls]
    await Worker(client, registry).run_once()
    yields = {each.id: each.yields for each in asking.settled}
    assert [yields[handle.id] for handle in handles] == [False, True, True, False]


async def test_cancel_ends_its_job_without_another_attempt(client: Client, asking: Asking) -> None:
    registry = Registry()

    @registry.job(retry=SOON)
    async def stops() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_obsolete())

    handle = await client.enqueue(stops())
    done_once = await Worker(client, registry).run_once()
    snapshot = await handle.snapshot()
    assert (snapshot.state, snapshot.attempt, snapshot.outcome) == (JobState.CANCELLED, 1, "obsolete")
    assert [(error.type, error.message) for error in snapshot.errors] == [("Cancel", "it isn't wanted any more")]
    assert done_once.cancelled == 1


async def _obsolete() -> None:
    raise Cancel("it isn't wanted any more", outcome="obsolete")
