"""Stopping by signals, for programs that are nothing but a worker."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.errors import SingletonHeld
from aioqueue.runtime._log import event
from aioqueue.runtime._process import LEFT_BEHIND, NAME_HELD
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioqueue.worker._health import OnceResult
    from aioqueue.worker._worker import Worker

__all__ = ["exit_code", "run_until_signalled", "stopped_by_signals"]

logger = logging.getLogger("aioqueue.worker")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(worker: Worker) -> Generator[None]:
    """Within the block, a first SIGINT or SIGTERM stops the worker, a second one by force. Main thread only."""
    loop = asyncio.get_running_loop()
    received = 0

    def handle(number: int, _frame: object) -> None:
        nonlocal received
        received += 1
        loop.call_soon_threadsafe(tell, number)

    def tell(number: int) -> None:
        name, how = signal.Signals(number).name, " at once" if received > 1 else ""
        logger.info(
            "worker %s: %s: stopping%s",
            one_line(worker.name),
            name,
            how,
            extra=event("worker.stopping", worker=worker.name, signal=name),
        )
        worker.stop(force=received > 1)

    # Not the event loop's own handlers: a handler that blocks the loop would keep the second signal from counting.
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


async def exit_code(worker: Worker, *, once: bool) -> int:
    """Run a worker, and give what its process exits with, as `run_until_signalled` does; but signals are the caller's."""
    result: OnceResult | None = None
    try:
        if once:
            result = await worker.run_once()
        else:
            await worker.run()
    except SingletonHeld as held:
        return _name_held(worker, held, once=once)
    if worker._left_behind:
        return LEFT_BEHIND
    return 3 if result is not None and result.failed else 0


def _name_held(worker: Worker, held: SingletonHeld, *, once: bool) -> int:
    """Say who has the name that only one worker may have. Returns the exit code."""
    skips = once and not worker._had_name
    logger.log(
        logging.INFO if skips else logging.ERROR,
        "worker %s: %s, since %s works as %s, whose lease lasts for another %.3g s unless it's renewed",
        one_line(worker.name),
        "it does nothing now" if skips else "it ends",
        one_line(held.worker),
        one_line(held.name),
        held.ends_in,
        extra=event("worker.name_held", worker=worker.name, singleton=held.name, held_by=held.worker, ends_in=held.ends_in),
    )
    return 0 if skips else NAME_HELD


async def run_until_signalled(worker: Worker, *, once: bool = False) -> int:
    """Run a worker until SIGINT or SIGTERM, or, with `once`, until nothing is due.

    Returns:
        The exit code: 0 after a stop, whether the jobs finished or were given back; 4 if some had to be left behind, since
        they didn't stop, or what became of them couldn't be written; with `once`, 3 if some failed. 5 if another worker has the
        name that only one may have (`singleton=`); with `once` that's 0, if it had it from the beginning.

    Raises:
        AioqueueError: As `Worker.run`: the command line explains it, and exits with 1.
    """
    with stopped_by_signals(worker):
        return await exit_code(worker, once=once)
