"""Threads for handlers that are plain functions: as many as there are slots, and none that holds up the end."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.worker._holdings import Slot

__all__ = ["HandlerThreads", "Raised", "leave_if_forked", "wait_for_thread"]


class Raised:
    """Carries what a function raised: a future can't hold everything (`StopIteration`)."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


_Work = tuple["Callable[[], object]", contextvars.Context, "asyncio.Future[object]", "Callable[[], None]"]


class HandlerThreads:
    """Runs functions in threads, started as they're needed and used again.

    They're daemons, so that a function that never returns doesn't keep the process from ending. Default executors
    have a limit of their own and are waited for at exit.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def run(self, function: Callable[[], object], ended: Callable[[], None]) -> asyncio.Future[object]:
        """Run a function in a copy of the current context; the future gives what it returned, or `Raised`.

        Arguments:
            function: Runs in a thread. Cancelling the future doesn't stop it.
            ended: Called in the thread after it.

        Raises:
            RuntimeError: The machine gives no more threads. The function doesn't run then, neither later.
        """
        if self._threads <= self._busy:
            thread = threading.Thread(target=self._serve, name=f"aioqueue handler of {self._name}", daemon=True)
            # A thread may inherit the context that starts it (Python 3.14), and it outlives this attempt.
            contextvars.Context().run(thread.start)
            self._threads += 1
        future: asyncio.Future[object] = self._loop.create_future()
        self._busy += 1
        self._work.put((function, contextvars.copy_context(), future, ended))
        return future

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            function, context, future, ended = work
            result: object = None
            try:
                result = context.run(function)
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                result = Raised(error)
            leave_if_forked(self._pid)
            ended()
            try:
                self._loop.call_soon_threadsafe(self._tell, future, result)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            del work, function, context, future, ended, result

    def _tell(self, future: asyncio.Future[object], result: object) -> None:
        self._busy -= 1
        if not future.done():
            future.set_result(result)

    def close(self) -> None:
        """Let the threads end, each when what it runs has returned."""
        for _ in range(self._threads):
            self._work.put(None)


async def wait_for_thread(slot: Slot, future: asyncio.Future[object]) -> asyncio.CancelledError | None:
    """Wait until a function of an attempt's has ended in its thread, whatever cancels this: it can't be stopped, only told.

    Returns:
        The cancellation that came meanwhile.

    Raises:
        asyncio.CancelledError: The attempt is abandoned: the thread is left behind.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            if slot.abandoned:
                raise
            if slot.attempt is not None:
                slot.attempt.mark_cancelled()
            cancelled = error
    return cancelled


def leave_if_forked(pid: int) -> None:
    """End a child that came out of its handler: it has a copy of the worker, and must not go on as a second one."""
    if os.getpid() != pid:
        os._exit(0)
