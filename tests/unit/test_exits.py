"""Which exits mean a job's failure and which the program, and whose task or callback has ended an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from aioqueue.definitions._context import activate
from aioqueue.runtime._exits import from_a_signal, is_exit
from aioqueue.worker._event_loop_end import WatchfulTask, event_loop_end, hook_exception_handler, what_ended
from tests.unit.test_attempt import make

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(autouse=True, scope="module")
def _nothing_of_others() -> None:
    """Who has ended a loop is looked for among all objects: those that other tests have left aren't looked through."""
    gc.collect()
    gc.freeze()


class Quits(SystemExit):
    @property
    def __traceback__(self) -> Any:
        raise ValueError("no")


def caught(raise_: Callable[[], None]) -> BaseException:
    try:
        raise_()
    except BaseException as error:
        return error
    raise AssertionError


def interrupts() -> None:
    raise KeyboardInterrupt


def interrupts_again() -> None:
    try:
        interrupts()
    except KeyboardInterrupt:
        raise


def is_signalled() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_code_has_raised_is_no_signal() -> None:
    for raise_ in (interrupts, interrupts_again):
        error = caught(raise_)
        assert is_exit(error)
        assert not from_a_signal(error)
    assert is_exit(KeyboardInterrupt())  # without a traceback: nobody has raised it yet
    assert not is_exit(ValueError())
    assert not is_exit(asyncio.CancelledError())
    assert is_exit(Quits())


def test_exits_among_others() -> None:
    group = BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [SystemExit(), OSError()])])
    assert is_exit(group)
    assert not is_exit(ExceptionGroup("", [ValueError()]))
    assert not is_exit(BaseExceptionGroup("", [asyncio.CancelledError(), caught(is_signalled)]))


def test_a_real_signal_by_the_interpreters_own_handler() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    error = caught(is_signalled)
    assert type(error) is KeyboardInterrupt
    assert from_a_signal(error)
    assert not is_exit(error)


def test_a_real_signal_in_asyncio_run() -> None:
    async def main() -> BaseException:
        signal.raise_signal(signal.SIGINT)  # the first one cancels the program
        return caught(is_signalled)

    seen: list[BaseException] = []

    async def catches() -> None:
        seen.append(await main())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(catches())
    assert from_a_signal(seen[0])


# -- whose it was -----------------------------------------------------------------------------------------------------


async def child() -> None:
    raise SystemExit(1)


def callback() -> None:
    raise SystemExit(2)


async def waits_for(*others: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*others)


async def gathers() -> None:
    await waits_for(child(), asyncio.sleep(1000))


async def awaits() -> None:
    await asyncio.get_running_loop().create_task(child())


async def groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(waits_for(child()))


async def forgets() -> None:
    task = asyncio.get_running_loop().create_task(child())
    del task
    await asyncio.Event().wait()


async def calls_soon() -> None:
    asyncio.get_running_loop().call_soon(callback)
    await asyncio.Event().wait()


async def calls_later() -> None:
    asyncio.get_running_loop().call_later(0.001, callback)
    await asyncio.Event().wait()


async def calls_from_a_thread() -> None:
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    threading.Thread(target=lambda: context.run(loop.call_soon_threadsafe, callback)).start()
    await asyncio.Event().wait()


TASKS = [gathers, awaits, groups, forgets]
CALLBACKS = [calls_soon, calls_later, calls_from_a_thread]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("body", [*TASKS, *CALLBACKS])
@pytest.mark.parametrize("of_a_job", [True, False], ids=["of a job", "of nobody's"])
def test_whose_task_or_callback_has_ended_a_loop(
    loop: str, body: Callable[[], Coroutine[Any, Any, None]], of_a_job: bool
) -> None:
    attempts: list[Any] = []
    ends: list[Any] = []

    async def runs() -> None:
        with contextlib.ExitStack() as stack:
            if of_a_job:
                attempts.append(stack.enter_context(activate(make())))
            await body()

    async def main() -> None:
        hook_exception_handler(asyncio.get_running_loop())
        neighbour = WatchfulTask(
            asyncio.Event().wait(),
            name="neighbour",
            context=contextvars.Context(),
            cancelled=lambda: ends.append(event_loop_end()),
        )
        await asyncio.wait([asyncio.create_task(quietly(runs())), neighbour])

    async def quietly(coroutine: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(SystemExit):
            await coroutine

    logged: list[str] = []
    runner = asyncio.Runner(loop_factory=LOOPS[loop])
    runner.get_loop().set_exception_handler(lambda _, context: logged.append(context["message"]))
    with pytest.raises(SystemExit) as raised, runner:
        runner.run(main())
    (end,) = ends
    own = attempts[0] if of_a_job else None
    assert end.error is raised.value
    if loop == "uvloop" and (body in CALLBACKS or (body is forgets and not of_a_job)):
        assert (end.known, end.attempt) == (False, None)
    elif loop == "uvloop" and body in {awaits, groups}:
        assert end.attempt in {None, own}  # it goes on for a while: perhaps until the body itself has raised it
    else:
        assert (end.known, end.attempt) == (True, own)


def test_a_later_exit_isnt_taken_for_an_earlier_one_in_whose_place_in_memory_it_is() -> None:
    """An earlier worker of the process may have ended by a task that nobody waited for: its exit is gone by then."""

    async def main() -> None:
        hook_exception_handler(asyncio.get_running_loop())
        with activate(make()):
            await forgets()

    def ends() -> None:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        runner.get_loop().set_exception_handler(lambda _, __: None)
        with contextlib.suppress(SystemExit), runner:
            runner.run(main())

    ends()
    gc.collect()
    assert not [end for end in map(what_ended, [SystemExit(number) for number in range(100)]) if end.known]


def test_without_an_exit_nobody_has_ended_the_loop() -> None:
    ends: list[Any] = []

    async def main() -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.add_done_callback(lambda _: ends.append(event_loop_end()))

    asyncio.run(main())
    assert [(each.error, each.known, each.attempt) for each in ends] == [(None, False, None)]
