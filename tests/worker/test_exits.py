"""An exit in a job's task, callback or resource costs that job an attempt, however the event loop is run, and no other."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import uvloop

from aioqueue import Client, Fixed, Job, JobState, Registry, Retry, current_attempt
from aioqueue.worker import Worker
from aioqueue.worker._own_loop import run_in_own_loop

if TYPE_CHECKING:
    from uuid import UUID

LIMIT = 60
AT_ONCE = Retry(max_attempts=3, backoff=Fixed(0), jitter=0)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


async def part() -> None:
    raise SystemExit(1)


def callback() -> None:
    raise SystemExit(2)


async def interrupts() -> None:
    raise KeyboardInterrupt


async def whole(*parts: Any) -> None:
    await asyncio.gather(*parts)


async def gather() -> None:
    await whole(part(), asyncio.sleep(1000))


async def gather_alone() -> None:
    await whole(part())


async def nested() -> None:
    await whole(whole(part()), whole(asyncio.sleep(1000)))


async def nobody_waits() -> None:
    task = asyncio.get_running_loop().create_task(part())
    del task
    await asyncio.Event().wait()


async def task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(part())
        group.create_task(asyncio.sleep(1000))


async def anyio_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        group.start_soon(part)


async def keyboard_interrupt() -> None:
    await whole(interrupts())


async def call_soon() -> None:
    asyncio.get_running_loop().call_soon(callback)
    await asyncio.Event().wait()


async def call_later() -> None:
    asyncio.get_running_loop().call_later(0.001, callback)
    await asyncio.Event().wait()


async def from_a_thread() -> None:
    await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, callback)
    await asyncio.Event().wait()


async def resource() -> None:
    await exits_when_opened.get()


async def resource_of_the_worker() -> None:
    await exits_in_worker.get()


async def resource_at_its_end() -> None:
    await exits_when_closed.get()


WAITED_FOR = [gather, gather_alone, nested, task_group, anyio_group, keyboard_interrupt]
CALLBACKS = [call_soon, call_later, from_a_thread]
RESOURCES = [resource, resource_of_the_worker, resource_at_its_end]
"""These end no loop at all."""


registry = Registry()
starts: list[int] = []
beside = asyncio.Event()


@registry.resource(scope="attempt")
async def exits_when_opened() -> AsyncIterator[int]:
    raise SystemExit(3)
    yield 1


@registry.resource
async def exits_in_worker() -> AsyncIterator[int]:
    raise SystemExit(4)
    yield 1


@registry.resource(scope="attempt")
async def exits_when_closed() -> AsyncIterator[int]:
    yield 1
    raise SystemExit(5)


BODIES = {each.__name__: each for each in (*WAITED_FOR, nobody_waits, *CALLBACKS, *RESOURCES)}


@registry.job(retry=AT_ONCE)
async def guilty(kind: str) -> None:
    starts.append(current_attempt().number)
    await BODIES[kind]()


@registry.job
async def neighbour() -> int:
    """Ends when the guilty one has; `beside` says that it runs."""
    while len(starts) < 3:
        await asyncio.sleep(0.001)
    return current_attempt().number


@registry.job
async def long_neighbour() -> None:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _no_starts() -> None:
    starts.clear()


def look(url: str, *ids: UUID) -> list[Job]:
    async def looks() -> list[Job]:
        async with Client(url) as client:
            return [job for job in await client.store.fetch(list(ids)) if job is not None]

    return asyncio.run(looks())


def enqueue(url: str, kind: str, *, long: bool = False) -> list[UUID]:
    async def enqueues() -> list[UUID]:
        async with Client(url) as client:
            one = await client.enqueue((long_neighbour if long else neighbour)())
            return [(await client.enqueue(guilty(kind))).id, one.id]

    return asyncio.run(enqueues())


async def until_finished(client: Client, job_id: UUID) -> None:
    async with asyncio.timeout(LIMIT):
        while not (job := (await client.store.fetch([job_id]))[0]) or not job.state.finished:
            await asyncio.sleep(0.005)


@contextmanager
def runner(loop: str) -> Iterator[asyncio.Runner]:
    """Unretrieved exceptions are told to nobody here: pytest would take them for failures."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as made:
        made.get_loop().set_exception_handler(lambda loop, context: None)
        yield made


# -- a program that is nothing but a worker -----------------------------------------------------------------------------


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
        assert run_in_own_loop(made, serve()) == "served"
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
        run_in_own_loop(made, serve())
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
        run_in_own_loop(made, serve())
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
        run_in_own_loop(made, exits())
    assert raised.value.code == 7
    with pytest.raises(SystemExit) as raised, runner(loop) as made:
        run_in_own_loop(made, starts_one_that_exits())
    assert raised.value.code == 1


def test_ctrl_c_still_ends_it(url: str) -> None:
    """A program without our handlers of signals: the first cancels it, and it says so at its end."""

    async def serve() -> None:
        async with Client(url) as client, Worker(client, registry):
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt), runner("asyncio") as made:
        run_in_own_loop(made, serve())


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
