"""What becomes of an attempt, however its handler ends."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import weakref

import pytest

from aioqueue import (
    Client,
    Fail,
    Fixed,
    Job,
    JobState,
    Registry,
    Reschedule,
    Retry,
    RetryIn,
    current_attempt,
)
from aioqueue.worker import OnceResult, Worker

pytestmark = pytest.mark.anyio

AT_ONCE = Retry(max_attempts=3, backoff=Fixed(0), jitter=0)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


async def run(client: Client, registry: Registry, *calls, **settings) -> list[Job]:
    handles = await client.enqueue_many(calls)
    async with asyncio.timeout(60):
        await Worker(client, registry, **settings).run_once()
    return [await handle.snapshot() for handle in handles]


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: SystemExit(0),
        KeyboardInterrupt,
        GeneratorExit,
        BaseException,
        asyncio.CancelledError,
        Unprintable,
        StopIteration,
        lambda: ExceptionGroup("several", [ValueError("one"), OSError("two")]),
        lambda: ValueError("a\0b\x1b[31m\ud800"),
        lambda: ValueError("x" * 5_000_000),
    ],
)
async def test_whatever_is_raised_fails_the_attempt_and_nothing_else(client, in_thread, make) -> None:
    registry = Registry()

    def raises() -> None:
        raise make()

    async def raises_async() -> None:
        raise make()

    bad = registry.job(retry=AT_ONCE)(raises if in_thread else raises_async)

    @registry.job
    async def neighbour() -> int:
        return 1

    failed, fine = await run(client, registry, bad(), neighbour())
    assert (failed.state, failed.attempt, len(failed.errors)) == (JobState.FAILED, 3, 3)
    assert all(len(error.message) < 10_000 and len(error.traceback) < 50_000 for error in failed.errors)
    assert not any("\0" in error.message or "\x1b" in error.message for error in failed.errors)
    assert fine.state is JobState.COMPLETED


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_a_job_is_started_exactly_as_often_as_it_may(client, attempts) -> None:
    registry, starts = Registry(), []

    @registry.job(retry=Retry(max_attempts=attempts, backoff=Fixed(0)))
    async def fails() -> None:
        starts.append(current_attempt().number)
        raise ValueError("no")

    (job,) = await run(client, registry, fails())
    assert starts == list(range(1, attempts + 1))
    assert (job.state, job.attempt) == (JobState.FAILED, attempts)


async def test_a_timeout_is_a_counted_failure(client) -> None:
    registry = Registry()

    @registry.job(timeout=0.05, retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def slow() -> None:
        await asyncio.Event().wait()

    (job,) = await run(client, registry, slow())
    assert (job.state, job.attempt) == (JobState.FAILED, 2)
    assert [error.type for error in job.errors] == ["TimeoutError"] * 2


async def test_a_value_returned_after_the_timeout_counts(client) -> None:
    registry = Registry()

    @registry.job(timeout=0.05)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert current_attempt().cancelled
        return "done"

    (job,) = await run(client, registry, stubborn())
    assert (job.state, job.output) == (JobState.COMPLETED, "done")


async def test_a_handlers_own_timeouts_and_cancelled_tasks_are_failures(client) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=1))
    async def own_timeout() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    @registry.job(retry=Retry(max_attempts=1))
    async def awaits_a_cancelled_task() -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task

    jobs = await run(client, registry, own_timeout(), awaits_a_cancelled_task())
    assert [(job.state, job.errors[0].type) for job in jobs] == [
        (JobState.FAILED, "TimeoutError"),
        (JobState.FAILED, "CancelledError"),
    ]


async def test_what_handlers_raise_to_say_what_comes_next(client) -> None:
    registry = Registry()

    @registry.job
    async def declines() -> None:
        raise Fail("declined by the bank", "declined")

    @registry.job
    async def tries_again() -> int:
        if current_attempt().number < 3:
            raise RetryIn(0)
        return current_attempt().number

    @registry.job
    async def puts_off() -> int:
        if current_attempt().job.reschedules < 4:
            raise Reschedule(delay=0)
        return current_attempt().number

    @registry.job(max_reschedules=2)
    async def puts_off_for_ever() -> None:
        raise Reschedule(delay=0)

    declined, again, put_off, bounded = await run(client, registry, declines(), tries_again(), puts_off(), puts_off_for_ever())
    assert (declined.state, declined.outcome, declined.attempt) == (JobState.FAILED, "declined", 1)
    assert declined.errors[0].message == "declined by the bank"
    assert (again.state, again.output) == (JobState.COMPLETED, 3)
    assert (put_off.state, put_off.output, put_off.reschedules) == (JobState.COMPLETED, 1, 4)
    assert (bounded.state, bounded.reschedules) == (JobState.FAILED, 2)
    assert "max_reschedules" in bounded.errors[-1].message


async def test_classes_that_are_retried_and_classes_that_are_not(client) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0), fail_on=(KeyError,)))
    async def fails_on() -> None:
        raise KeyError("x")

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0), retry_on=(OSError,)))
    async def retries_on(kind: str) -> None:
        raise ConnectionError if kind == "os" else ValueError

    jobs = await run(client, registry, fails_on(), retries_on("os"), retries_on("value"))
    assert [(job.state, job.attempt) for job in jobs] == [(JobState.FAILED, 1), (JobState.FAILED, 2), (JobState.FAILED, 1)]


async def test_arguments_and_outputs_that_do_not_fit(client) -> None:
    registry = Registry()

    @registry.job
    async def double(number: int) -> int:
        return number * 2

    @registry.job
    async def unstorable() -> dict[str, float]:
        return {"x": float("nan")}

    handle = await client.enqueue_by_name("double", {"number": "many"})
    (bad_output,) = await run(client, registry, unstorable())
    bad_arguments = await handle.snapshot()
    assert (bad_arguments.state, bad_arguments.attempt) == (JobState.FAILED, 1)
    assert bad_arguments.errors[0].type == "ArgumentsError"
    assert (bad_output.state, bad_output.attempt) == (JobState.FAILED, 1)
    assert "x" in bad_output.errors[0].message


async def test_expired_jobs_are_discarded_and_outcomes_kept(client) -> None:
    registry, ran = Registry(), []

    @registry.job
    async def note(name: str) -> None:
        ran.append(name)
        current_attempt().set_outcome("noted")

    late = await client.enqueue(note("late").options(expires=0.001))
    await asyncio.sleep(0.01)  # the clock of the database has to move on
    (fine,) = await run(client, registry, note("fine"))
    assert ran == ["fine"]
    assert (await late.snapshot()).state is JobState.CANCELLED
    assert (await late.snapshot()).errors[0].type == "Expired"
    assert fine.outcome == "noted"


async def test_unknown_types_are_left_alone(client) -> None:
    old, new = Registry(), Registry()

    @old.job(name="a")
    async def a() -> None: ...

    @new.job(name="b", aliases=("older_b",))
    async def b() -> int:
        return 1

    unknown = await client.enqueue_by_name("b")
    aliased = await client.enqueue_by_name("older_b")
    await run(client, old, a())
    assert ((await unknown.snapshot()).state, (await unknown.snapshot()).attempt) == (JobState.READY, 0)
    await run(client, new)
    assert {(await each.snapshot()).state for each in (unknown, aliased)} == {JobState.COMPLETED}


async def test_the_context_is_fresh_for_each_attempt_and_reaches_threads(client) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")
    seen: list[tuple[str, str]] = []

    async def tags(attempt, call_next):
        seen.append(("before", variable.get()))
        variable.set(str(attempt.job.id))
        try:
            return await call_next()
        finally:
            seen.append(("after", variable.get()))

    registry = Registry(middlewares=[tags])

    @registry.job(retry=Retry(max_attempts=1))
    async def in_loop() -> bool:
        await asyncio.sleep(0)
        found = variable.get() == str(current_attempt().job.id)
        variable.set("left behind")
        return found

    @registry.job
    def in_thread() -> bool:
        found = variable.get() == str(current_attempt().job.id)
        variable.set("left behind")
        return found

    calls = [make() for _ in range(50) for make in (in_loop, in_thread)]
    jobs = await run(client, registry, *calls, concurrency=4)
    assert {job.output for job in jobs} == {True}
    assert {value for when, value in seen if when == "before"} == {"clean"}
    assert variable.get() == "clean"


async def test_threads_are_not_capped_by_a_default_executor(client) -> None:
    registry, together = Registry(), threading.Barrier(60)

    @registry.job
    def meet() -> None:
        together.wait(timeout=60)

    jobs = await run(client, registry, *[meet() for _ in range(60)], concurrency=60)
    assert {job.state for job in jobs} == {JobState.COMPLETED}


async def test_a_thread_keeps_its_slot_after_its_timeout(client) -> None:
    registry, gate, told = Registry(), threading.Event(), threading.Event()
    running = 0
    most = 0

    @registry.job(timeout=0.05)
    def stubborn() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while not current_attempt().cancelled:
            gate.wait(0.01)
        told.set()
        running -= 1
        return current_attempt().number

    jobs = await run(client, registry, *[stubborn() for _ in range(6)], concurrency=1)
    assert told.is_set()
    assert most == 1
    assert {(job.state, job.output) for job in jobs} == {(JobState.COMPLETED, 1)}


async def test_errors_keep_no_frames(client, caplog) -> None:
    class Big:
        pass

    caplog.set_level(logging.CRITICAL, logger="aioqueue.worker")  # pytest keeps what is logged, with the exceptions
    registry, alive = Registry(), []

    @registry.job(retry=Retry(max_attempts=1))
    async def fails() -> None:
        big = Big()
        alive.append(weakref.ref(big))
        raise ValueError("no")

    @registry.job(retry=Retry(max_attempts=1))
    def fails_in_thread() -> None:
        big = Big()
        alive.append(weakref.ref(big))
        raise ValueError("no")

    await run(client, registry, fails(), fails_in_thread())
    gc.collect()
    assert [each() for each in alive] == [None, None]


async def test_once_says_what_it_did(client) -> None:
    registry = Registry()

    @registry.job(retry=Retry(max_attempts=1))
    async def maybe(good: bool) -> None:
        if not good:
            raise ValueError("no")

    await client.enqueue_many([maybe(True), maybe(True), maybe(False), maybe(True).options(delay=3600)])
    assert await Worker(client, registry).run_once() == OnceResult(completed=2, failed=1)
