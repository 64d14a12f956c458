"""The event loop of a program that is nothing but a worker: a job's exit ends the job's attempt, and not the loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.runtime._exits import is_exit
from aioqueue.runtime._log import event
from aioqueue.worker._event_loop_end import what_ended
from aioqueue.worker._slot_attempt import SlotAttempt
from aioqueue.worker._text import described, one_line, traceback_text

if TYPE_CHECKING:
    from collections.abc import Coroutine
__all__ = ["run_in_own_event_loop"]

logger = logging.getLogger("aioqueue.worker")

T = TypeVar("T")


def run_in_own_event_loop(runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end, as `Runner.run` does, whatever its jobs raise.

    `SystemExit` and `KeyboardInterrupt` out of a task or a callback end asyncio's loop, which can be run again. Where a job
    has started them, its attempt is ended in their place, and the loop goes on: no neighbour is interrupted.

    Raises:
        SystemExit: Somebody else's, and the program's own.
        KeyboardInterrupt: Ctrl-C.
    """
    loop = runner.get_loop()
    task = loop.create_task(main)
    while not task.done():
        try:
            runner.run(_ended(task))
        except (SystemExit, KeyboardInterrupt) as error:
            if not is_exit(error) or not (task.done() or _ends_its_attempt(error)):
                raise
    return task.result()


async def _ended(task: asyncio.Task[Any]) -> None:
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise


def _ends_its_attempt(error: BaseException) -> bool:
    """Cancel the attempt whose task or callback has raised an exit. Returns whether the loop is to go on.

    It does too where nobody can tell whose it was: the job that has raised it would end each worker anew.
    """
    end = what_ended(error)
    if not end.known:
        logger.error(
            "a callback has raised %s, which would end the worker; whose it was can't be told\n%s",
            described(error),
            traceback_text(error),
            extra=event("worker.callback_exited"),
        )
        return True
    if not isinstance(end.attempt, SlotAttempt):
        return False
    slot = end.attempt.slot
    logger.error(
        "%s %s: attempt %d ends, since a task or callback that it has started has raised %s",
        one_line(slot.job.type),
        slot.job.id,
        slot.job.attempt,
        described(error),
        extra=slot.event("attempt.exited"),
    )
    slot.exited(error)
    return True
