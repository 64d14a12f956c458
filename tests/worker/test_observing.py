"""What `client.observe` tells of what a process does, and that nothing suffers from whoever observes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Call, Cancel, Client, Fail, Fixed, Registry, Reschedule, Retry, Worker, current_attempt
from aioqueue.definitions import _observers
from aioqueue.events import (
    Event,
    JobCancelled,
    JobCompleted,
    JobContinued,
    JobEnqueued,
    JobEvent,
    JobFailed,
    JobRescheduled,
    JobRetrying,
    JobStarted,
    Reset,
    WorkerError,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from aioqueue.testing import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

pytestmark = pytest.mark.anyio


class OnPurposeError(Exception):
    pass


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(MemoryStore()) as client:
        yield client


class Seen:
    """An observer that keeps what it's told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, job_id: UUID) -> list[type[Event]]:
        return [type(each) for each in self.events if isinstance(each, JobEvent) and each.job_id == job_id]

    @property
    def workers(self) -> list[type[Event]]:
        return [type(each) for each in self.events if isinstance(each, WorkerEvent)]


async def settled() -> None:
    """Let observers see what waits for them."""
    for _ in range(5):
        await asyncio.sleep(0)


registry = Registry()


@registry.job
async def ending(how: str) -> int:
    match how:
        case "fail":
            raise Fail("no")
        case "cancel":
            raise Cancel("no")
        case "raise":
            raise OnPurposeError(how)
        case "reschedule":
            raise Reschedule(delay=3600)
        case "complete":
            async with current_attempt().completion() as tx:
                return tx.done(2)
    return 1


@registry.job(retry=Retry(backoff=Fixed(3600), jitter=0))
async def retrying() -> None:
    raise OnPurposeError("again")


@registry.job
async def continuing() -> Call[int]:
    return ending("well")


async def test_each_outcome_is_told_once_and_after_the_enqueue_and_the_start(client: Client) -> None:
    seen = Seen()
    with client.observe(seen):
        enqueued = {
            JobCompleted: await client.enqueue(ending("well")),
            JobFailed: await client.enqueue(ending("fail")),
            JobCancelled: await client.enqueue(ending("cancel")),
            JobRescheduled: await client.enqueue(ending("reschedule")),
            JobRetrying: await client.enqueue(retrying()),
        }
        in_transaction = await client.enqueue(ending("complete"))
        await Worker(client, registry, name="w").run_once()
        await settled()
    for kind, handle in enqueued.items():
        assert seen.of(handle.id) == [JobEnqueued, JobStarted, kind]
    assert seen.of(in_transaction.id) == [JobEnqueued, JobStarted, JobCompleted]
    assert seen.workers == [WorkerStarted, WorkerStopped]
    failed = next(each for each in seen.events if isinstance(each, JobFailed))
    assert (failed.error_type, failed.attempt, failed.claims, failed.sequence) == ("Fail", 1, 1, None)
    retried = next(each for each in seen.events if isinstance(each, JobRetrying))
    assert (retried.error_message, retried.delay > 3000) == ("again", True)


async def test_a_chain_goes_on_with_a_job_of_its_own(client: Client) -> None:
    seen = Seen()
    with client.observe(seen):
        first = await client.enqueue(continuing())
        await Worker(client, registry).run_once()
        await settled()
    continued = next(each for each in seen.events if isinstance(each, JobContinued))
    assert continued.next_id is not None
    assert seen.of(continued.next_id) == [JobEnqueued, JobStarted, JobCompleted]
    assert {each.chain_id for each in seen.events if isinstance(each, JobEvent)} == {first.id}


async def test_a_transaction_is_told_after_its_commit_and_not_if_it_is_rolled_back(client: Client) -> None:
    seen = Seen()
    client.observe(seen)
    with pytest.raises(OnPurposeError):
        async with client.transaction() as tx:
            await tx.enqueue(ending("well"))
            raise OnPurposeError
    async with client.transaction() as tx:
        kept = await tx.enqueue(ending("well"))
        await settled()
        assert seen.events == []
    await settled()
    assert [type(each) for each in seen.events] == [JobEnqueued]
    assert seen.of(kept.id) == [JobEnqueued]


async def test_one_that_raises_is_logged_once_a_minute_and_others_hear_all_the_same(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(BaseException):
        pass

    def failing(event: Event) -> None:
        raise (OnPurposeError if isinstance(event, JobStarted) else SystemExit)(event)

    async def cancelled(_: Event) -> None:
        raise asyncio.CancelledError

    seen = Seen()
    for observer in (failing, cancelled, seen):
        client.observe(observer)
    handle = await client.enqueue(ending("well"))
    assert (await Worker(client, registry).run_once()).completed == 1
    await settled()
    assert seen.of(handle.id) == [JobEnqueued, JobStarted, JobCompleted]
    assert [each.levelno for each in caplog.records if "observer" in each.message] == [logging.ERROR] * 2


async def test_one_that_hangs_holds_nobody_up_and_misses_events_with_a_reset(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_observers, "_MOST_WAITING", 3)
    go_on, got, begun = asyncio.Event(), list[Event](), asyncio.Event()

    async def hanging(event: Event) -> None:
        got.append(event)
        begun.set()
        await go_on.wait()

    client.observe(hanging)
    for _ in range(5):
        await client.enqueue(ending("well"))
        await begun.wait()
    assert (await Worker(client, registry).run_once()).completed == 5
    assert len(got) == 1
    go_on.set()
    await settled()
    assert [type(each) for each in got[:2]] == [JobEnqueued, Reset]
    assert len(got) == 5
    assert len([each for each in caplog.records if "too slow" in each.message]) == 1


async def test_closing_lets_observers_see_what_waits_and_leaves_none_behind() -> None:
    seen, hang = Seen(), asyncio.Event()

    async def hanging(_: Event) -> None:
        await hang.wait()

    client = Client(MemoryStore(), close_timeout=0.1)
    client.observe(hanging)
    async with client:
        client.observe(seen)
        await client.enqueue(ending("well"))
    assert [type(each) for each in seen.events] == [JobEnqueued]
    await settled()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "aioqueue observer"] == []


async def test_a_task_that_is_cancelled_before_its_first_step_stops_no_later_event(client: Client) -> None:
    seen = Seen()
    client.observe(seen)
    await client.enqueue(ending("well"))
    for task in asyncio.all_tasks():
        if task.get_name() == "aioqueue observer":
            task.cancel()
    await settled()
    await client.enqueue(ending("well"))
    await settled()
    assert [type(each) for each in seen.events].count(JobEnqueued) == 2


async def test_stopping_and_troubles(client: Client) -> None:
    seen = Seen()
    client.observe(seen)
    worker = Worker(client, registry, name="w")
    async with worker:
        worker._troubles.add("tend", OnPurposeError("what"))
    await settled()
    assert seen.workers == [WorkerStarted, WorkerError, WorkerStopping, WorkerStopped]
    error = next(each for each in seen.events if isinstance(each, WorkerError))
    assert (error.worker, error.part, error.error) == ("w", "tend", "OnPurposeError: what")


async def test_nothing_is_made_while_nobody_observes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    with client.observe(seen):
        pass
    monkeypatch.setattr(_observers.Observers, "tell", lambda *_: pytest.fail("an event was made for nobody"))
    await client.enqueue(ending("well"))
    assert (await Worker(client, registry).run_once()).completed == 1
    not_callable: Any = None
    with pytest.raises(TypeError):
        client.observe(not_callable)
    assert seen.events == []
    with anyio.fail_after(5):
        await client.close()
