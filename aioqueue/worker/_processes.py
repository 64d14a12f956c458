"""Processes for handlers with `executor="process"`: as many as run at once, used again, killed where they don't stop."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from multiprocessing import spawn
from typing import TYPE_CHECKING, Any, cast

from aioqueue.errors import ConfigurationError
from aioqueue.worker._outcome import Unreadable
from aioqueue.worker._process import HandlerProcess
from aioqueue.worker._process_messages import (
    Answer,
    Begin,
    Labelled,
    Logged,
    PhaseQuestion,
    Reported,
    error_from,
    record_from,
    shown_error,
)
from aioqueue.worker._text import one_line
from aioqueue.worker._threads import Raised

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioqueue.definitions._phases import PhaseKeeper
    from aioqueue.worker._process_messages import Ended
    from aioqueue.worker._slot_attempt import SlotAttempt
    from aioqueue.worker._threads import HandlerThreads

__all__ = ["HandlerProcesses", "mark_as_handlers_process", "unguarded"]

logger = logging.getLogger("aioqueue.worker")

_NOTICE_SECONDS = 2.0
"""For a handler to see `attempt.cancelled`, and end; then its process is killed."""
_IDLE_SECONDS = 60.0
"""For which a process without work is kept."""
_GONE_SECONDS = 0.5
"""For a process that was killed to be gone, when the worker has ended."""

_in_handlers_process = False


def mark_as_handlers_process() -> None:
    """Say that this process is one of a handler: no worker starts in it."""
    global _in_handlers_process
    _in_handlers_process = True


def unguarded(what: str) -> ConfigurationError:
    """The error of a main module that runs its program when a handler's process imports it."""
    return ConfigurationError(
        f"{what} was to be started in the process of a handler, which imports the handler's module: in that module, run the "
        'program under `if __name__ == "__main__":`'
    )


class HandlerProcesses:
    """Runs handlers in processes of their own, which are started as they're needed and used again.

    A thread of the worker's waits for each that runs; there's neither a process nor a thread while none does, but for processes
    that are kept for a minute.

    Arguments:
        name: The worker's.
        threads: For waiting.

    Raises:
        ConfigurationError: This is such a process: its main module starts a worker when it's imported.
    """

    def __init__(self, name: str, threads: HandlerThreads) -> None:
        if _in_handlers_process:
            raise unguarded("a worker")
        self._name = name
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._idle: dict[HandlerProcess, asyncio.TimerHandle] = {}
        self._busy: set[HandlerProcess] = set()
        self._over = False

    async def run(self, attempt: SlotAttempt) -> object:
        """Run an attempt's handler in a process, and wait until that has ended, or is gone.

        A cancellation is told to the handler, and kills the process two seconds later; another one without a reason of the
        worker's, at once. A value that it has returned by then counts, as that of a handler in a thread.

        Raises:
            asyncio.CancelledError: It was cancelled, and its process killed.
            ProcessFailed: The machine gives no process, or it has ended before its handler.
            Unreadable: What it has returned can't be stored.
            BaseException: What the handler has raised.
        """
        process = self._take()
        try:
            served = _Served(attempt, self._loop)
            begin = _begin(attempt)
            future = self._threads.run(lambda: served.read(process.serve(begin, served.handle)), _nothing)
        except BaseException:  # no more threads, for example
            self._put_back(process)
            raise
        try:
            cancelled = await self._wait(attempt, process, future)
        finally:
            if future.done():
                self._put_back(process)
            else:  # the event loop has ended
                process.kill()
        result = future.result()
        try:
            if cancelled is not None and (not attempt.slot.reasons or (process.killed and isinstance(result, Raised))):
                raise cancelled
            if isinstance(result, Raised):
                raise result.error
            return result
        finally:
            cancelled = result = None  # their tracebacks lead to this frame
            del future

    async def _wait(
        self, attempt: SlotAttempt, process: HandlerProcess, future: asyncio.Future[object]
    ) -> asyncio.CancelledError | None:
        """Wait until the process's thread has ended. Returns the last cancellation that came meanwhile."""
        slot, cancelled = attempt.slot, None
        known, kill_at = 0, 0.0
        while not future.done():
            try:
                await asyncio.wait([future], timeout=max(kill_at - self._loop.time(), 0.0) if kill_at else None)
                if kill_at and not future.done() and self._loop.time() >= kill_at:
                    kill_at = 0.0
                    self._log_killed(attempt, process)
                    process.kill()
            except asyncio.CancelledError as error:
                if cancelled is not None and len(slot.reasons) == known:
                    kill_at = 0.0
                    process.kill()
                else:
                    attempt.mark_cancelled()
                    process.tell(attempt.cancel_reason)
                    kill_at = kill_at or self._loop.time() + _NOTICE_SECONDS
                cancelled, known = error, len(slot.reasons)
        return cancelled

    def _log_killed(self, attempt: SlotAttempt, process: HandlerProcess) -> None:
        job, slot = attempt.job, attempt.slot
        logger.info(
            "%s %s: the process of attempt %d is killed, since its handler doesn't stop: %d",
            one_line(job.type),
            job.id,
            job.attempt,
            process.pid,
            extra=slot.event("attempt.killed", pid=process.pid),
        )

    # -- which process ------------------------------------------------------------------------------------------------

    def _take(self) -> HandlerProcess:
        process = self._kept() or HandlerProcess(self._name)
        self._busy.add(process)
        return process

    def _kept(self) -> HandlerProcess | None:
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            if process.usable:
                return process
            self._retire(process)
        return None

    def _put_back(self, process: HandlerProcess) -> None:
        self._busy.discard(process)
        if not process.usable or self._over:
            self._retire(process)
            return
        self._idle[process] = self._loop.call_later(_IDLE_SECONDS, self._idle_for_long, process)

    def _idle_for_long(self, process: HandlerProcess) -> None:
        if self._idle.pop(process, None) is not None:
            self._retire(process)

    def _retire(self, process: HandlerProcess) -> None:
        process.end(0, longest=_GONE_SECONDS)

    def close(self) -> None:
        """Kill those that are left: the worker has ended."""
        self._over = True
        idle, self._idle = self._idle, {}
        for process in (*idle, *self._busy):
            process.kill()
        for process, timer in idle.items():
            timer.cancel()
            process.end(0, longest=_GONE_SECONDS)


class _Served:
    """Does for one attempt what its process asks for. In the thread that waits for that."""

    def __init__(self, attempt: SlotAttempt, loop: asyncio.AbstractEventLoop) -> None:
        self._attempt = attempt
        self._loop = loop
        self._keeper: PhaseKeeper | None = None

    def handle(self, process: HandlerProcess, message: Any) -> None:
        """Do what a message asks for."""
        attempt = self._attempt
        if isinstance(message, Reported):
            attempt.take_progress(message.progress)
        elif isinstance(message, Labelled):
            attempt.set_outcome(message.label)
        elif isinstance(message, Logged):
            self._log(message)
        elif isinstance(message, PhaseQuestion):
            if message.verb == "resume":
                self._phases().resume(message.name)
            else:
                process.answer(self._answer(process, message))

    def read(self, ended: Ended) -> object:
        """What the handler has returned. Raises what it has raised."""
        if ended.error is not None:
            error = error_from(ended.error)
            if ended.unreadable:
                raise Unreadable(error, "OutputError")
            raise error
        try:
            return self._attempt.job_type.decode_output(ended.output or b"null")
        except Exception as error:  # noqa: BLE001 - classified: a converter of the user's may raise anything
            raise Unreadable(error, "OutputError") from None

    def _log(self, message: Logged) -> None:
        try:
            record = record_from(message)
            captured = self._attempt.slot.captured
            if captured is not None:
                captured.add(record)
            logging.getLogger(record.name).handle(record)
        except Exception as error:  # noqa: BLE001 - logged: a filter that breaks would break the handler where it's in a thread
            slot = self._attempt.slot
            logger.warning(
                "a log record of a handler's process couldn't be handled: %s",
                one_line(error),
                extra=slot.event("attempt.log_broken"),
            )

    def _phases(self) -> PhaseKeeper:
        if self._keeper is None:
            self._keeper = self._attempt.keeper()
        return self._keeper

    def _answer(self, process: HandlerProcess, question: PhaseQuestion) -> Answer:
        future = asyncio.run_coroutine_threadsafe(self._ask(question), self._loop)
        process.wait_for(future.cancel)
        try:
            return Answer(future.result())
        except BaseException as error:  # noqa: BLE001 - carried to the handler
            return Answer(error=shown_error(error))
        finally:
            process.wait_for(None)

    def _ask(self, question: PhaseQuestion) -> Coroutine[Any, Any, object]:
        keeper = self._phases()
        match question.verb:
            case "read":
                return cast("Coroutine[Any, Any, object]", keeper.read())
            case "begin":
                return cast("Coroutine[Any, Any, object]", keeper.begin(question.name))
            case "complete":
                return cast("Coroutine[Any, Any, object]", keeper.complete(question.name, question.result))
            case _:
                error = RuntimeError() if question.error is None else error_from(question.error)
                return cast("Coroutine[Any, Any, object]", keeper.fail(question.name, error))


def _begin(attempt: SlotAttempt) -> Begin:
    function: Any = attempt.job_type.fn
    loggers = list(logging.root.manager.loggerDict.items())
    levels = {name: each.level for name, each in loggers if isinstance(each, logging.Logger) and each.level}
    return Begin(
        job=attempt.job,
        worker=attempt.worker_id,
        module=function.__module__,
        name=function.__qualname__,
        main=_main() if function.__module__ == "__main__" else {},
        argv=list(sys.argv),
        levels={"": logging.root.level, **levels},
        disabled=logging.root.manager.disable,
    )


@functools.cache
def _main() -> dict[str, Any]:
    """How to import this process's main module: as multiprocessing does."""
    data: dict[str, Any] = cast("Any", spawn).get_preparation_data("")
    return {name: value for name, value in data.items() if name.startswith("init_main_from_")}


def _nothing() -> None:
    """What ends with a handler's thread, ends here with the attempt."""
