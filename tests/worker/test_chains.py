"""What a handler that may continue its chain returns, and what becomes of that: run by a worker, in memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Call, CallNext, Client, Fixed, JobState, NewJob, OnceResult, Registry, Retry, Worker, current_attempt, done
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Settlement, SettlementKind, SettleResult
from aioqueue.worker._run import _BODIES
from tests.worker.chains import Settling, ended, once, steps
from tests.worker.faults import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioqueue import Attempt

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> Settling:
    return Settling()


@pytest.fixture
async def client(store: Settling) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


# -- chains -------------------------------------------------------------------------------------------------------------


async def test_a_linear_chain_ends_with_the_last_steps_value(client: Client, registry: Registry) -> None:
    @registry.job
    async def fetch(url: str) -> Call[int]:
        return count(url * 3)

    @registry.job
    def count(text: str) -> Call[int]:
        return double(len(text))

    @registry.job
    async def double(number: int) -> int:
        return number * 2

    handle = await client.enqueue(fetch("ab"))
    assert await Worker(client, registry).run_once() == OnceResult(continued=2, completed=1)
    first, second, third = await steps(client, handle)
    assert [each.type for each in (first, second, third)] == ["fetch", "count", "double"]
    assert [each.state for each in (first, second, third)] == [JobState.CONTINUED, JobState.CONTINUED, JobState.COMPLETED]
    assert [each.position for each in (first, second, third)] == [0, 1, 2]
    assert {each.chain_id for each in (first, second, third)} == {handle.id}
    assert (first.output, second.output, third.output) == (None, None, 12)


async def test_a_branch_takes_one_way_or_ends_at_once(client: Client, registry: Registry) -> None:
    @registry.job
    async def decide(way: str) -> Call[str]:
        match way:
            case "left":
                return left(1)
            case "right":
                return right()
            case _:
                return done("nowhere")

    @registry.job
    async def left(number: int) -> str:
        return f"left {number}"

    @registry.job
    def right() -> Call[str]:
        return done("right")

    outputs = [(await ended(client, registry, decide(way))).output for way in ("left", "right", "back")]
    assert outputs == ["left 1", "right", "nowhere"]


async def test_a_loop_goes_on_until_it_is_done_with_the_waits_that_it_asks_for(client: Client, registry: Registry) -> None:
    @registry.job
    async def poll(times: int) -> Call[str]:
        if times == 0:
            return done("ready")
        return poll(times - 1).options(delay=timedelta(minutes=5))

    store = client.store
    assert isinstance(store, MemoryStore)
    handle = await client.enqueue(poll(2))
    for _ in range(2):
        assert await Worker(client, registry).run_once() == OnceResult(continued=1)
        assert await Worker(client, registry).run_once() == OnceResult()
        store.advance(300)
    assert await Worker(client, registry).run_once() == OnceResult(completed=1)
    assert [each.payload for each in await steps(client, handle)] == [b'{"times":2}', b'{"times":1}', b'{"times":0}']


async def test_steps_can_go_to_any_other(client: Client, registry: Registry) -> None:
    visited: list[str] = []

    @registry.job
    async def a(number: int) -> Call[int]:
        visited.append("a")
        return b(number + 1)

    @registry.job
    def b(number: int) -> Call[int]:
        visited.append("b")
        return a(number) if number < 3 else c(number)

    @registry.job
    async def c(number: int) -> Call[int]:
        visited.append("c")
        return done(number)

    assert (await ended(client, registry, a(0))).output == 3
    assert visited == ["a", "b", "a", "b", "a", "b", "c"]


async def test_what_a_chain_begins_with_goes_along_and_a_steps_own_adds_to_it(client: Client, registry: Registry) -> None:
    @registry.job(tags=["typed"])
    async def first() -> Call[None]:
        return second().options(priority=1, tags=["own"], metadata={"b": 3}, timeout=5, expires=60, retry=Retry(max_attempts=3))

    @registry.job(priority=3)
    async def second() -> None: ...

    call = first().options(key="k", unique=True, tags=["given"], metadata={"a": 1, "b": 2}, priority=4, timeout=9)
    last = await ended(client, registry, call)
    assert (last.type, last.key, last.tags) == ("second", "k", ("typed", "given", "own"))
    assert last.metadata == {"a": 1, "b": 3}
    assert (last.priority, last.timeout, last.max_attempts) == (1, 5.0, 3)
    assert last.expires_at is not None


async def test_a_failed_attempt_of_a_step_is_tried_again_where_it_is(client: Client, registry: Registry) -> None:
    @registry.job
    async def first() -> Call[int]:
        return second()

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def second() -> Call[int]:
        if current_attempt().number == 1:
            raise ValueError("not yet")
        return done(current_attempt().job.position)

    handle = await client.enqueue(first())
    assert await Worker(client, registry).run_once() == OnceResult(continued=1, retried=1, completed=1)
    assert [each.attempt for each in await steps(client, handle)] == [1, 2]


async def test_a_label_is_kept_with_the_step_that_has_set_it(client: Client, registry: Registry) -> None:
    @registry.job
    async def first() -> Call[None]:
        current_attempt().set_outcome("changed")
        return second()

    @registry.job
    async def second() -> Call[None]:
        return done(None)

    handle = await client.enqueue(first())
    await Worker(client, registry).run_once()
    assert [each.outcome for each in await steps(client, handle)] == ["changed", None]


# -- a returned call is used ----------------------------------------------------------------------------------------------


async def test_a_returned_call_does_not_warn_whatever_becomes_of_the_attempt(client: Client, registry: Registry) -> None:
    async def replaces(attempt: Attempt, call_next: CallNext) -> object:
        await call_next()
        return done("replaced")

    async def raises(attempt: Attempt, call_next: CallNext) -> object:
        await call_next()
        raise ValueError("no")

    @registry.resource(scope="attempt")
    async def fails_to_close() -> AsyncIterator[None]:
        yield
        raise ValueError("no")

    @registry.job
    async def end() -> str:
        return "end"

    @registry.job(middlewares=[replaces])
    async def replaced() -> Call[str]:
        return end()

    @registry.job(middlewares=[raises], retry=once)
    def failed() -> Call[str]:
        return end()

    @registry.job(retry=once)
    async def unclosed() -> Call[str]:
        await fails_to_close.get()
        return end()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await ended(client, registry, replaced())).output == "replaced"
        assert (await ended(client, registry, failed())).state is JobState.FAILED
        assert (await ended(client, registry, unclosed())).state is JobState.FAILED
        gc.collect()


async def test_a_call_that_is_returned_to_nobody_was_used(client: Client, registry: Registry) -> None:
    """By a handler in a thread that its worker has left behind: that's no mistake of the handler's."""
    started, gate = threading.Event(), threading.Event()

    @registry.job
    async def end() -> str:
        return "end"

    @registry.job
    def late() -> Call[str]:
        started.set()
        gate.wait(120)
        return end()

    handle = await client.enqueue(late())
    worker = Worker(client, registry)
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(started.wait, 60)
    worker.stop(force=True)
    await running
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gate.set()
        await until(lambda: handle.id not in _BODIES)
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
    assert [each.message for each in caught] == []


async def test_middlewares_see_the_call_and_may_give_another(client: Client, registry: Registry) -> None:
    seen: list[object] = []

    async def around(attempt: Attempt, call_next: CallNext) -> object:
        returned = await call_next()
        seen.append(returned)
        return other(2).options(priority=1)

    @registry.job(middlewares=[around])
    async def first() -> Call[int]:
        return other(1)

    @registry.job
    async def other(number: int) -> int:
        return number

    last = await ended(client, registry, first())
    assert (last.output, last.priority) == (2, 1)
    assert seen == [other(1)]


async def test_a_thread_handler_returns_its_call_from_its_thread(client: Client, registry: Registry) -> None:
    threads: list[bool] = []

    @registry.job
    def first() -> Call[bool]:
        threads.append(threading.current_thread() is threading.main_thread())
        return second()

    @registry.job
    def second() -> Call[bool]:
        return done(True)

    assert (await ended(client, registry, first())).output is True
    assert threads == [False]


# -- the log --------------------------------------------------------------------------------------------------------------


async def test_the_log_says_with_which_job_a_chain_goes_on(
    client: Client, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.job
    async def first() -> Call[None]:
        return second()

    @registry.job
    async def second() -> None: ...

    with caplog.at_level(logging.INFO, logger="aioqueue.worker"):
        handle = await client.enqueue(first())
        await Worker(client, registry).run_once()
    _, last = await steps(client, handle)
    records: list[Any] = [each for each in caplog.records if getattr(each, "event", "").startswith("attempt.")]
    assert [(each.event, each.job_type) for each in records] == [
        ("attempt.started", "first"), ("attempt.ended", "first"), ("attempt.started", "second"), ("attempt.ended", "second")
    ]  # fmt: skip
    assert {each.chain_id for each in records} == {str(handle.id)}
    went_on, stopped = records[1], records[3]
    assert (went_on.outcome, went_on.levelname) == ("continued", "INFO")
    assert (went_on.next_job_id, went_on.next_job_type) == (str(last.id), "second")
    assert went_on.getMessage().endswith(f"and its chain goes on with second {last.id}")
    assert (stopped.outcome, stopped.next_job_id, stopped.next_job_type) == ("completed", None, None)


# -- what is written at once ----------------------------------------------------------------------------------------------


def settlement(kind: SettlementKind, **parts: Any) -> Settlement:
    return Settlement(id=new_id(), claims=1, lease_id=1, kind=kind, **parts)


def test_the_next_job_counts_to_a_settlements_size() -> None:
    following = NewJob(id=new_id(), type="a", payload=b'{"a":1}', metadata=b'{"b":2}')
    assert settlement(SettlementKind.CONTINUED, next=following).size == 14
    assert settlement(SettlementKind.COMPLETED, output=b"12345").size == 5
    assert settlement(SettlementKind.CANCELLED).size == 0


async def test_large_next_jobs_are_written_in_several_batches(client: Client, store: Settling, registry: Registry) -> None:
    """A batch has 16 MiB at most, and each of these 6."""
    ready = asyncio.Barrier(5)
    batches: list[int] = []
    works = store.settle

    async def settle(settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        batches.append(sum(each.size for each in settlements))
        return await works(settlements, orphaned=orphaned)

    @registry.job
    async def step() -> Call[None]:
        await ready.wait()
        return large("x" * 6 * 1024 * 1024)

    @registry.job
    async def large(text: str) -> None: ...

    store.settle = settle
    await client.enqueue_many([step() for _ in range(5)])
    await Worker(client, registry, types=["step"]).run_once()
    assert sum(batches) > 30 * 1024 * 1024
    assert max(batches) <= 16 * 1024 * 1024
