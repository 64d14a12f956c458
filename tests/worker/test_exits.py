"""A program that is nothing but a worker: an exit in a job's task, callback or resource costs its job an attempt only."""

from __future__ import annotations

import asyncio
import signal

import pytest

from aioqueue import Client, JobState
from aioqueue.worker import Worker
from aioqueue.worker._own_event_loop import run_in_own_event_loop
from tests.worker.exiting import (
    CALLBACKS,
    LIMIT,
    LOOPS,
    RESOURCES,
    WAITED_FOR,
    enqueue,
    look,
    part,
    registry,
    runner,
    starts,
    until_finished,
)


@pytest.fixture(autouse=True)
def _no_starts() -> None:
    starts.clear()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "kind", [*(each.__name__ for each in WAITED_FOR), "nobody_waits", *(each.__name__ for each in RESOURCES)]
)
def test_in_a_loop_of_our_own_the_worker_goes_on(url: str, caplog, loop: str, kind: str) -> None:
    """The guilty one has failed after three attempts, its neighbour has never been interrupted."""
    ids = enqueue(url, kind)

    async def serve() -> str:
        async with Client(url) as client, Worker(client, registry, poll_interval=0.05):
            for job_id in ids:
                await until_finished(client, job_id)
        return "served"

    with runner(loop) as made:
        assert run_in_own_event_loop(made, serve()) == "served"
    failed, fine = look(url, *ids)
    assert (failed.state, failed.attempt, starts) == (JobState.FAILED, 3, [1, 2, 3])
    wanted = "KeyboardInterrupt" if kind == "keyboard_interrupt" else "SystemExit"
    for error in failed.errors:
        assert wanted in f"{error.type} {error.message} {error.traceback}"
    assert (fine.state, fine.attempt, fine.output, fine.errors) == (JobState.COMPLETED, 1, 1, ())


@pytest.mark.parametrize("kind", [each.__name__ for each in CALLBACKS])
def test_in_a_loop_of_our_own_callbacks_too(url: str, caplog, kind: str) -> None:
    ids = enqueue(url, kind)

    async def serve() -> None:
        async with Client(url) as client, Worker(client, registry, poll_interval=0.05):
            for job_id in ids:
                await until_finished(client, job_id)

    with runner("asyncio") as made:
        run_in_own_event_loop(made, serve())
    failed, fine = look(url, *ids)
    assert (failed.state, failed.attempt, starts) == (JobState.FAILED, 3, [1, 2, 3])
    assert {error.type for error in failed.errors} == {"SystemExit"}
    assert (fine.state, fine.attempt, fine.errors) == (JobState.COMPLETED, 1, ())
    told = f"guilty {failed.id}: attempt 1 ends, since a task or callback that it has started has raised SystemExit: 2"
    assert told in caplog.text


@pytest.mark.parametrize("kind", [each.__name__ for each in CALLBACKS])
def test_a_callback_that_uvloop_tells_nothing_of_ends_nobody(url: str, caplog, kind: str) -> None:
    ids = enqueue(url, kind, long=True)

    async def serve() -> None:
        async with Client(url) as client, Worker(client, registry, poll_interval=0.05, grace=0):
            async with asyncio.timeout(LIMIT):
                while "whose it was can't be told" not in caplog.text:
                    await asyncio.sleep(0.005)

    with runner("uvloop") as made:
        run_in_own_event_loop(made, serve())
    assert {(job.state, job.attempt, job.errors) for job in look(url, *ids)} == {(JobState.READY, 0, ())}
    assert starts == [1]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_exit_of_the_programs_own_still_ends_it(loop: str) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def exits() -> None:
        raise SystemExit(7)

    async def starts_one_that_exits() -> None:
        task = asyncio.get_running_loop().create_task(part())
        await asyncio.wait([asyncio.get_running_loop().create_task(forever()), task])

    with pytest.raises(SystemExit) as raised, runner(loop) as made:
        run_in_own_event_loop(made, exits())
    assert raised.value.code == 7
    with pytest.raises(SystemExit) as raised, runner(loop) as made:
        run_in_own_event_loop(made, starts_one_that_exits())
    assert raised.value.code == 1


def test_ctrl_c_still_ends_it(url: str) -> None:
    """A program without our handlers of signals: the first cancels it, and it says so at its end."""

    async def serve() -> None:
        async with Client(url) as client, Worker(client, registry):
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt), runner("asyncio") as made:
        run_in_own_event_loop(made, serve())
