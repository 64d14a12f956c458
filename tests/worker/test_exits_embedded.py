"""Exits in jobs inside another program, whose event loop they end; Ctrl-C; and what happens in threads."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client, JobState, Registry, Retry, current_attempt
from aioqueue.worker import Worker

if TYPE_CHECKING:
    from uuid import UUID

from tests.worker.exiting import (
    LIMIT,
    LOOPS,
    enqueue,
    interrupts,
    look,
    part,
    registry,
    runner,
    starts,
)


@pytest.fixture(autouse=True)
def _no_starts() -> None:
    starts.clear()


# -- inside another program ---------------------------------------------------------------------------------------------


async def embedded(url: str) -> None:
    async with Client(url) as client, Worker(client, registry, poll_interval=0.05):
        await asyncio.Event().wait()


async def awaited(url: str) -> None:
    async with Client(url) as client:
        await Worker(client, registry, poll_interval=0.05).run()


@pytest.mark.parametrize("program", [embedded, awaited])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "kind", ["gather", "gather_alone", "task_group", "anyio_group", "nobody_waits", "call_soon", "call_later"]
)
def test_what_ends_the_loop_of_another_program_costs_its_job_an_attempt(
    url: str, caplog, program: Any, loop: str, kind: str
) -> None:
    """As asyncio has it, the loop ends with the exit, and the program with it. Somebody starts it again."""
    known = loop == "asyncio" or kind not in {"call_soon", "call_later"}
    ids = enqueue(url, kind, long=True)
    for number in range(1, 4):
        with pytest.raises(SystemExit), runner(loop) as made:
            made.run(program(url))
        failed, fine = look(url, *ids)
        assert (fine.state, fine.attempt, fine.errors) == (JobState.READY, 0, ())
        if known:
            state = JobState.FAILED if number == 3 else JobState.READY
            assert (failed.state, failed.attempt, len(failed.errors)) == (state, number, number)
            assert failed.errors[-1].type in {"SystemExit", "BaseExceptionGroup"}
        else:
            assert (failed.state, failed.attempt, failed.errors) == (JobState.READY, 0, ())
    assert len(starts) == 3


def test_without_a_trace_the_event_loops_end_counts_after_some_interruptions(url: str) -> None:
    """Nothing shows who has ended it, neither here: no job may end the workers for ever."""
    (guilty_id, _) = enqueue(url, "call_soon", long=True)
    for _ in range(20):
        with pytest.raises(SystemExit), runner("uvloop") as made:
            made.run(embedded(url))
        (job,) = look(url, guilty_id)
        if job.state is JobState.FAILED:
            break
    assert (job.state, job.attempt) == (JobState.FAILED, 3)
    assert {error.type for error in job.errors} == {"EventLoopEnded"}
    assert len(starts) == 5 + 3


def test_stops_and_cancellations_never_count_however_many(url: str) -> None:
    began = asyncio.Event()
    waiting = Registry()

    @waiting.job(retry=Retry(max_attempts=1))
    async def waits() -> None:
        began.set()
        await asyncio.Event().wait()

    async def interrupts_it() -> None:
        async with Client(url) as client:
            handle = await client.enqueue(waits())
            for number in range(20):
                began.clear()
                task = asyncio.create_task(Worker(client, waiting, poll_interval=0.05).run())
                async with asyncio.timeout(LIMIT):
                    await began.wait()
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                job = await handle.snapshot()
                assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ()), number

    asyncio.run(interrupts_it())


# -- Ctrl-C -------------------------------------------------------------------------------------------------------------


def _blocks_and_is_signalled(times: int) -> Registry:
    signalled = Registry()

    @signalled.job(retry=Retry(max_attempts=1))
    async def blocks() -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    return signalled


def test_ctrl_c_in_the_middle_of_a_handler_is_a_stop_and_no_failure(url: str) -> None:
    """The second one in `asyncio.run` comes at once, wherever the program is: in a handler that blocks the loop."""
    signalled = _blocks_and_is_signalled(2)

    async def program() -> UUID:
        async with Client(url) as client:
            job_id = (await client.enqueue(signalled.types["blocks"]())).id
            ids.append(job_id)
            await Worker(client, signalled).run()
        raise AssertionError

    ids: list[UUID] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(program())
    (job,) = look(url, *ids)
    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ())


def test_ctrl_c_by_the_interpreters_own_handler_is_not_swallowed(url: str) -> None:
    """A program that runs its loop itself."""
    signalled = _blocks_and_is_signalled(1)
    ids: list[UUID] = []

    async def program() -> None:
        async with Client(url) as client:
            ids.append((await client.enqueue(signalled.types["blocks"]())).id)
            await Worker(client, signalled).run()

    loop = asyncio.new_event_loop()
    task = loop.create_task(program())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    (job,) = look(url, *ids)
    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, ())


def test_an_exit_of_what_a_thread_calls_in_the_loop_is_raised_in_the_thread(url: str) -> None:
    threaded = Registry()
    raised: list[BaseException] = []

    @threaded.job(retry=Retry(max_attempts=1))
    def calls(interrupt: bool) -> None:
        try:
            current_attempt().from_thread(interrupts if interrupt else part)
        except BaseException as error:
            raised.append(error)
            raise

    async def program() -> None:
        async with Client(url) as client:
            ids.extend([(await client.enqueue(calls(each))).id for each in (True, False)])
            await Worker(client, threaded, concurrency=1).run_once()

    ids: list[UUID] = []
    asyncio.run(program())
    assert [type(error) for error in raised] == [KeyboardInterrupt, SystemExit]
    assert [(job.state, job.errors[0].type) for job in look(url, *ids)] == [
        (JobState.FAILED, "KeyboardInterrupt"),
        (JobState.FAILED, "SystemExit"),
    ]


def test_interrupts_and_exits_in_threads_are_errors_like_any_other(url: str) -> None:
    threaded = Registry()

    @threaded.job(retry=Retry(max_attempts=1))
    def exits(interrupt: bool) -> None:
        assert threading.current_thread() is not threading.main_thread()
        time.sleep(0)
        raise KeyboardInterrupt if interrupt else SystemExit

    async def program() -> None:
        async with Client(url) as client:
            ids.extend([(await client.enqueue(exits(each))).id for each in (True, False)])
            await Worker(client, threaded).run_once()

    ids: list[UUID] = []
    asyncio.run(program())
    jobs = look(url, *ids)
    assert [(job.state, job.errors[0].type) for job in jobs] == [
        (JobState.FAILED, "KeyboardInterrupt"),
        (JobState.FAILED, "SystemExit"),
    ]
