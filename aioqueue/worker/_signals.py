"""Stopping by signals, for programs that are nothing but a worker."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioqueue.worker._health import OnceResult
    from aioqueue.worker._worker import Worker

__all__ = ["run_until_signalled", "stopped_by_signals"]

logger = logging.getLogger("aioqueue.worker")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(worker: Worker) -> Generator[None]:
    """Within the block, a first SIGINT or SIGTERM stops the worker, a second one by force. Main thread only."""
    loop = asyncio.get_running_loop()
    received = 0

    def handle(number: signal.Signals) -> None:
        nonlocal received
        received += 1
        logger.info("worker %s: %s: stopping%s", one_line(worker.name), number.name, " at once" if received > 1 else "")
        worker.stop(force=received > 1)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


async def run_until_signalled(worker: Worker, *, once: bool = False) -> int:
    """Run a worker until SIGINT or SIGTERM, or, with `once`, until nothing is due.

    Returns:
        The exit code: 0 after a stop, whether the jobs finished or were given back; with `once`, 3 if some failed.

    Raises:
        AioqueueError: As `Worker.run`: the command line explains it, and exits with 1.
    """
    with stopped_by_signals(worker):
        if not once:
            await worker.run()
            return 0
        result: OnceResult = await worker.run_once()
        return 3 if result.failed else 0
