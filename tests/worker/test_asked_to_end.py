"""An attempt whose chain is asked to end while it runs: it's told, and what its job ends as."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Call,
    Cancel,
    CancelReason,
    Client,
    Fail,
    Fixed,
    JobState,
    Registry,
    Reschedule,
    Retry,
    RetryIn,
    Worker,
    current_attempt,
    done,
)
from aioqueue.vocabulary._job import Claim, LostReason
from aioqueue.worker import _holdings
from aioqueue.worker._holdings import Holdings
from tests.worker.asking import Asking
from tests.worker.completing import outcomes
from tests.worker.faults import until
from tests.worker.insides import parts
from tests.worker.test_recovery import orphan

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue import JobHandle

pytestmark = pytest.mark.anyio

LONG = {"lease": 600.0, "poll_interval": 600.0}
SOON = Retry(max_attempts=3, backoff=Fixed(0))


@pytest.fixture
def asking(client: Client, monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(client, monkeypatch)


class Body:
    """A job that waits until it's asked to end, and then ends as a test says."""

    def __init__(self, end: Callable[[], Any], **options: Any) -> None:
        self.registry = Registry()
        self.runs = asyncio.Event()
        self.number = 0
        self.told: list[CancelReason | None] = []
        self.following = self.registry.job(name="following")(_nothing)

        @self.registry.job(name="body", retry=SOON, **options)
        async def body() -> Call[str]:
            self.number += 1
            self.runs.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                attempt = current_attempt()
                assert attempt.cancelled
                self.told.append(attempt.cancel_reason)
                result = end()
                return self.following() if result == "another call" else done(result)
            raise AssertionError

        self.body = body


async def _nothing() -> str:
    return ""


def _raises(error: BaseException) -> Callable[[], Any]:
    def end() -> Any:
        raise error

    return end


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "event", "") for record in caplog.records]


async def ended(client: Client, asking: Asking, body: Body, **settings: Any) -> JobHandle[str]:
    """Run the body, and ask it to end."""
    handle = await client.enqueue(body.body())
    async with Worker(client, body.registry, **{**LONG, **settings}) as worker:
        await asyncio.wait_for(body.runs.wait(), 10)
        asking.ask(worker, handle.id)
        await asyncio.wait_for(parts(worker).holdings.all_ended(), 10)
    return handle


@pytest.mark.parametrize(
    ("end", "state", "error"),
    [
        pytest.param(lambda: "a value", JobState.COMPLETED, None, id="returns a value"),
        pytest.param(lambda: "another call", JobState.CONTINUED, None, id="returns another call"),
        pytest.param(_raises(Fail("no")), JobState.FAILED, ("Fail", "no"), id="raises Fail"),
        pytest.param(_raises(Cancel("mine")), JobState.CANCELLED, ("Cancel", "mine"), id="raises Cancel"),
        pytest.param(_raises(asyncio.CancelledError()), JobState.CANCELLED, ("Cancelled", "because"), id="is cancelled"),
        pytest.param(_raises(ValueError("no")), JobState.CANCELLED, ("ValueError", "no"), id="raises another error"),
        pytest.param(_raises(RetryIn(1)), JobState.CANCELLED, ("RetryIn", "to be tried again in 1 s"), id="raises RetryIn"),
        pytest.param(_raises(Reschedule(delay=1)), JobState.CANCELLED, ("Cancelled", "because"), id="raises Reschedule"),
        pytest.param(lambda: object(), JobState.CANCELLED, ("OutputError", None), id="its output is refused"),
    ],
)
async def test_what_its_job_ends_as(
    client: Client, asking: Asking, end: Callable[[], Any], state: JobState, error: tuple[str, str | None] | None
) -> None:
    body = Body(end)
    before = outcomes("body").get("cancelled", 0)
    handle = await ended(client, asking, body)
    assert body.told == [CancelReason.CANCELLED]
    (job,) = await client.store.fetch([handle.id])
    assert job is not None
    assert job.state is state
    assert body.number == 1
    found = job.last_error
    assert (found and found.type) == (error and error[0])
    if found is not None and error is not None and error[1] is not None:
        assert found.message == error[1]
    assert outcomes("body").get("cancelled", 0) - before == (1 if state is JobState.CANCELLED else 0)


async def test_an_error_that_is_a_timeout_is_kept(client: Client, asking: Asking) -> None:
    body = Body(_raises(TimeoutError("too late")), timeout=600)
    handle = await ended(client, asking, body)
    (job,) = await client.store.fetch([handle.id])
    assert job is not None
    assert job.state is JobState.CANCELLED
    assert job.last_error is not None
    assert job.last_error.type == "TimeoutError"


@pytest.mark.parametrize(
    ("ends", "state"),
    [("returns", JobState.COMPLETED), ("raises", JobState.CANCELLED)],
)
async def test_a_thread_sees_that_it_should_end_and_why(client: Client, asking: Asking, ends: str, state: JobState) -> None:
    registry, runs = Registry(), asyncio.Event()
    loop = asyncio.get_running_loop()
    told: list[CancelReason | None] = []

    @registry.job(retry=SOON)
    def threaded() -> str:
        attempt = current_attempt()
        loop.call_soon_threadsafe(runs.set)
        deadline = time.monotonic() + 10
        while not attempt.cancelled and time.monotonic() < deadline:
            time.sleep(0.001)
        told.append(attempt.cancel_reason)
        if ends == "raises":
            raise ValueError("no")
        return "in time"

    handle = await client.enqueue(threaded())
    async with Worker(client, registry, **LONG) as worker:
        await asyncio.wait_for(runs.wait(), 10)
        asking.ask(worker, handle.id)
        await asyncio.wait_for(parts(worker).holdings.all_ended(), 10)
    assert told == [CancelReason.CANCELLED]
    assert (await handle.snapshot()).state is state


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_completing_transaction_is_rolled_back_unless_it_s_committed(client: Client, sealed: bool) -> None:
    registry, runs = Registry(), asyncio.Event()
    told: list[CancelReason | None] = []

    @registry.job(retry=SOON)
    async def completes() -> str:
        attempt = current_attempt()
        try:
            async with attempt.completion() as tx:
                tx.done("sealed")
                if not sealed:
                    runs.set()
                    await asyncio.Event().wait()
            runs.set()
            for _ in range(3):
                await asyncio.sleep(0.01)
        finally:
            told.append(attempt.cancel_reason)
        return "sealed"

    handle = await client.enqueue(completes())
    async with Worker(client, registry, **LONG) as worker:
        await asyncio.wait_for(runs.wait(), 10)
        (slot,) = parts(worker).holdings.running.values()
        # As a renewal says that was sent before: on SQLite it waits for the transaction.
        parts(worker).holdings.ask_to_end(slot.job.lease_id, {slot.claim: "because"})
        await asyncio.wait_for(parts(worker).holdings.all_ended(), 10)
    assert told == [None if sealed else CancelReason.CANCELLED]
    assert (await handle.snapshot()).state is (JobState.COMPLETED if sealed else JobState.CANCELLED)


async def test_a_request_is_kept_until_the_answer_to_its_claim_has_come(
    client: Client, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, claimed, answer = Registry(), asyncio.Event(), asyncio.Event()
    ran: list[str] = []
    works = client.store.claim

    @registry.job
    async def never() -> None:
        ran.append("never")

    async def claim(*arguments: Any, **named: Any) -> Any:
        jobs = await works(*arguments, **named)
        if jobs:
            asking.also.append(jobs[0].claim)
            claimed.set()
            await answer.wait()
        return jobs

    monkeypatch.setattr(client.store, "claim", claim)
    handle = await client.enqueue(never())
    async with Worker(client, registry, **LONG) as worker:
        await asyncio.wait_for(claimed.wait(), 10)
        asking.ask(worker, handle.id)
        await until(lambda: parts(worker).holdings.asked)
        answer.set()
        await until(lambda: asking.settled)
        asking.also.clear()

        def forgotten() -> bool:
            parts(worker).leases.renew_now()  # each time: one that is under way may have been asked before
            return not parts(worker).holdings.asked

        await until(forgotten)
    snapshot = await handle.snapshot()
    assert snapshot.state is JobState.CANCELLED
    assert [(error.type, error.message) for error in snapshot.errors] == [("Cancelled", "because")]
    assert ran == []


async def test_it_works_while_the_worker_drains_and_outdoes_the_stop(client: Client, asking: Asking) -> None:
    body = Body(_raises(asyncio.CancelledError()))
    handle = await client.enqueue(body.body())
    worker = Worker(client, body.registry, grace=60, **LONG)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(body.runs.wait(), 10)
    worker.stop()
    await until(lambda: worker.health().stopping)
    asking.ask(worker, handle.id)
    await asyncio.wait_for(running, 10)  # long before the grace is over
    snapshot = await handle.snapshot()
    assert (snapshot.state, snapshot.attempt) == (JobState.CANCELLED, 1)
    assert body.told == [CancelReason.CANCELLED]


async def test_one_that_ignores_it_is_named_and_keeps_its_slot(
    client: Client, asking: Asking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_holdings, "_IGNORES_SECONDS", 0.05)
    monkeypatch.setattr(_holdings, "_LATE_SECONDS", 0.02)
    registry, runs, release = Registry(), asyncio.Event(), asyncio.Event()

    @registry.job
    async def ignores() -> str:
        runs.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    handle = await client.enqueue(ignores())
    with caplog.at_level(logging.INFO, "aioqueue.worker"):
        async with Worker(client, registry, concurrency=1, **LONG) as worker:
            await asyncio.wait_for(runs.wait(), 10)
            asking.ask(worker, handle.id)
            await until(lambda: "attempt.ignores_cancel" in _events(caplog))
            health = worker.health()
            assert health.busy == 1
            assert [late.reasons for late in health.late] == [("cancelled",)]
            assert (await handle.snapshot()).state is JobState.RUNNING
            release.set()
    assert _events(caplog).count("attempt.cancelling") == 1
    assert await handle.result(timeout=10) == "at last"


async def test_one_that_ends_in_time_isn_t_named(client: Client, asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    body = Body(_raises(asyncio.CancelledError()))
    with caplog.at_level(logging.INFO, "aioqueue.worker"):
        handle = await client.enqueue(body.body())
        async with Worker(client, body.registry, **LONG) as worker:
            await asyncio.wait_for(body.runs.wait(), 10)
            asking.ask(worker, handle.id)
            holdings = parts(worker).holdings
            await asyncio.wait_for(holdings.all_ended(), 10)
            assert holdings._reminders == {}
    (ended,) = (each for each in caplog.records if getattr(each, "event", "") == "attempt.ended")
    assert ended.__dict__["outcome"] == "cancelled"
    assert "attempt 1 is cancelled after" in ended.getMessage()
    assert ended.getMessage().endswith(": Cancelled: because")


@pytest.fixture
async def holdings() -> Holdings:
    return Holdings("w")


async def test_requests_are_those_of_the_newest_renewal_and_belong_to_leases(holdings: Holdings) -> None:
    first, second, held = Claim(orphan().id, 1), Claim(orphan().id, 1), orphan()
    slot = holdings.hold(held)
    holdings.ask_to_end(1, {first: "a", slot.claim: "it has ended, and isn't written yet"})
    holdings.ask_to_end(2, {second: "b"})
    assert holdings.asked == {1: {first: "a"}, 2: {second: "b"}}
    assert slot.reasons == ()
    holdings.ask_to_end(1, {})
    assert holdings.asked == {2: {second: "b"}}


async def test_what_is_lost_already_isn_t_asked(holdings: Holdings) -> None:
    slot = holdings.hold(orphan())
    holdings.running[slot.claim] = slot
    holdings.lose([slot], LostReason.TAKEN)
    holdings.ask_to_end(slot.job.lease_id, {slot.claim: "late"})
    assert slot.asked is None
