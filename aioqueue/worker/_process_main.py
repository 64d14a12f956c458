"""The process of a handler, from within: runs one attempt after another, and ends with its worker.

`_process` starts it. Its main thread runs handlers; a thread hears that an attempt should stop, and that the worker is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NoReturn, cast

from aioqueue.definitions._completion import OWN
from aioqueue.definitions._context import Attempt, activate
from aioqueue.definitions._import_names import found_in
from aioqueue.definitions._job_type import JobType
from aioqueue.definitions._phases import Returned
from aioqueue.errors import NotInProcess, RegistrationError
from aioqueue.vocabulary._cancel_reason import CancelReason
from aioqueue.worker._process_messages import (
    Answer,
    Begin,
    Begun,
    Ended,
    Labelled,
    PhaseQuestion,
    Reported,
    error_from,
    logged,
    shown_error,
)
from aioqueue.worker._processes import mark_as_handlers_process, unguarded
from aioqueue.worker._threads import leave_if_forked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from aioqueue.definitions._call import Call
    from aioqueue.definitions._completion import Completion
    from aioqueue.definitions._phases import PhaseKeeper
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._phases import Progress

__all__ = ["main"]

_LOOK_SECONDS = 1.0
"""Between two looks whether the worker is still there, where its end of the pipe isn't closed since others have it too."""
_BETWEEN_REPORTS_SECONDS = 0.05
"""Of progress; the last one is always sent."""
_PR_SET_PDEATHSIG = 1

_levels: dict[str, int] = {}
"""Of loggers, as the worker has said last."""


class _Worker:
    """The worker, for the length of one attempt: what is sent to it, from any thread."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._sending = threading.RLock()
        self._asking = threading.Lock()
        self._waiting: Progress | None = None
        self._reported_at = -1.0
        self._more = threading.Event()
        self._reporter: threading.Thread | None = None
        self.over = False

    def send(self, message: object) -> None:
        """Tell it something; nothing after the end of the attempt, or from a process that was forked off."""
        written = pickle.dumps(message)
        with self._sending:
            if self.over or os.getpid() != self._pid:
                return
            self._connection.send_bytes(written)

    def ask(self, question: PhaseQuestion) -> Any:
        """Ask it, and wait for the answer. Raises what that says."""
        with self._asking:
            if self.over or os.getpid() != self._pid:
                raise NotInProcess("the attempt has ended in this process: its phases can't be run any more")
            self.send(question)
            answer: Answer = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - from the worker that has started us
        if answer.error is not None:
            raise error_from(answer.error)
        return answer.value

    def report(self, progress: Progress) -> None:
        """Tell it how far the attempt has come: the first at once, then the newest twenty times a second."""
        with self._sending:
            if self._reported_at + _BETWEEN_REPORTS_SECONDS <= time.monotonic():
                self._waiting, self._reported_at = None, time.monotonic()
                self.send(Reported(progress))
                return
            self._waiting = progress
            if self._reporter is None:
                self._reporter = threading.Thread(target=self._report_later, name="aioqueue progress", daemon=True)
                contextvars.Context().run(self._reporter.start)
        self._more.set()

    def _report_later(self) -> None:
        while not self.over:
            self._more.wait()
            self._more.clear()
            time.sleep(_BETWEEN_REPORTS_SECONDS)
            self._report_now()

    def _report_now(self) -> None:
        with self._sending:
            if self._waiting is not None:
                progress, self._waiting, self._reported_at = self._waiting, None, time.monotonic()
                with suppress(OSError):  # the worker is gone: whoever watches for that ends this process
                    self.send(Reported(progress))

    def end(self, message: Ended) -> None:
        """Tell it how the attempt has ended, as the last that it's told of it."""
        written = pickle.dumps(message)
        with self._asking, self._sending:
            self._report_now()
            self.over = True
            self._connection.send_bytes(written)
        self._more.set()


class _Keeper:
    """The `PhaseKeeper` of an attempt whose worker is in another process: each call waits for that."""

    def __init__(self, worker: _Worker) -> None:
        self._worker = worker

    async def read(self) -> Mapping[str, bytes]:
        return cast("Mapping[str, bytes]", self._worker.ask(PhaseQuestion("read")))

    async def begin(self, name: str) -> None:
        self._worker.ask(PhaseQuestion("begin", name))

    async def complete(self, name: str, result: bytes) -> None:
        self._worker.ask(PhaseQuestion("complete", name, result))

    async def fail(self, name: str, error: BaseException) -> None:
        self._worker.ask(PhaseQuestion("fail", name, error=shown_error(error)))

    def resume(self, name: str) -> None:
        self._worker.send(PhaseQuestion("resume", name))


class _Absent:
    """Stands for what is in the worker's process only."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _not_here(self._what)


def _not_here(what: str) -> NotInProcess:
    return NotInProcess(
        f'{what} isn\'t there in the process of a handler with executor="process": return what is to be done with it, and do '
        "that in a job that waits for this one; or open one in the handler"
    )


class ProcessAttempt(Attempt):
    """The attempt as its handler sees it in a process of its own."""

    def __init__(self, job: ClaimedJob, job_type: JobType[..., Any, Any], worker_id: str, worker: _Worker) -> None:
        resources: Any = _Absent("a resource")
        super().__init__(job, job_type, worker_id=worker_id, client=_Absent("the client"), resources=resources)
        self._worker = worker

    def enqueue(self, call: Call[Any]) -> None:  # noqa: ARG002 - as of every attempt
        """Refuse it. See `Attempt`."""
        raise _not_here("attempt.enqueue")

    def completion(self, *, tx: object = OWN) -> AbstractAsyncContextManager[Completion, None]:  # noqa: ARG002 - as of every attempt
        """Refuse it. See `Attempt`."""
        raise _not_here("attempt.completion")

    def from_thread(self, function: Callable[..., Coroutine[Any, Any, Any]], /, *arguments: Any, **named: Any) -> Any:
        """Run a phase, as a handler in a thread would. See `Attempt`."""
        if getattr(function, "__self__", None) is not self:
            raise NotInProcess(
                "there is no event loop of the worker's in the process of a handler: from_thread() is for attempt.phase and "
                "attempt.phase_results there, and asyncio.run(...) for what else is async"
            )
        return asyncio.run(function(*arguments, **named))

    def set_outcome(self, label: str | None) -> None:
        """Label how it ended. See `Attempt`."""
        super().set_outcome(label)
        self._worker.send(Labelled(label))

    def _show(self, progress: Progress) -> None:
        self._worker.report(progress)

    def _keeper(self) -> PhaseKeeper:
        return _Keeper(self._worker)

    async def _in_thread(self, function: Callable[[], object]) -> Returned:
        return Returned(function())


class _Child:
    """The process: its connection, and the attempt that runs."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._attempt: ProcessAttempt | None = None
        self._worker: _Worker | None = None
        self._told: list[CancelReason | None] = []
        self._in_log = threading.local()
        self._call_handlers = logging.Logger.callHandlers

    def serve(self) -> NoReturn:
        """Run what the worker asks for, until it's gone."""
        while True:
            try:
                begin: Begin = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - from the worker that has started us
                worker = _Worker(self._connection)
                ended = contextvars.Context().run(self._run, begin, worker)
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError, ValueError):  # nobody reads it, or it's closed
                        stream.flush()
                self._attempt = self._worker = None
                worker.end(ended)
            except (EOFError, OSError):
                _end()

    def _run(self, begin: Begin, worker: _Worker) -> Ended:
        try:
            _take_over(begin)
            self._worker = worker
            job_type = _job_type(begin)
            attempt = self._attempt = ProcessAttempt(begin.job, job_type, begin.worker, worker)
            for reason in self._told:  # while its module was imported
                attempt.mark_cancelled(reason)
            arguments = attempt.arguments
            worker.send(Begun())
            with activate(attempt):
                returned = cast("Callable[..., object]", job_type.fn)(**arguments)
        except BaseException as error:  # noqa: BLE001 - carried to the worker
            return Ended(error=shown_error(error))
        finally:
            leave_if_forked(self._pid)
        try:
            return Ended(job_type.encode_output(returned))
        except Exception as error:  # noqa: BLE001 - carried to the worker: looking at an output runs its own code
            return Ended(error=shown_error(error), unreadable=True)

    def hear(self, lifeline: int, parent: int) -> None:
        """In a thread: hear that the attempt should stop, and why; end the process with the worker's."""
        while True:
            ready = wait([lifeline], _LOOK_SECONDS)
            if os.getppid() != parent:
                _end()
            if not ready:
                continue
            heard = os.read(lifeline, 4096)
            if not heard:
                _end()
            for line in heard.decode().splitlines():
                reason = CancelReason(line) if line != "-" else None
                self._told.append(reason)
                if (attempt := self._attempt) is not None:
                    attempt.mark_cancelled(reason)

    def call_handlers(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """In place of a logger's handlers: the worker's are called, in its process, while an attempt runs."""
        worker = self._worker
        if worker is None or worker.over or os.getpid() != self._pid or getattr(self._in_log, "active", False):
            self._call_handlers(logger, record)
            return
        self._in_log.active = True  # what is logged while a record is pickled
        try:
            worker.send(logged(record))
        except OSError:  # the worker is gone: whoever watches for that ends this process
            pass
        finally:
            self._in_log.active = False


def main(channel: int, lifeline: int, parent: int) -> NoReturn:
    """The process's whole life. It's called by what `_process` has it execute.

    Arguments:
        channel: File descriptor of the connection with the worker.
        lifeline: File descriptor of a pipe that ends with the worker.
        parent: The worker's process.
    """
    for each in (channel, lifeline):
        os.set_inheritable(each, False)  # noqa: FBT003 - its parameters have no names
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _do_nothing)
    _end_with_parent()
    child = _Child(Connection(channel))
    threading.Thread(target=child.hear, args=(lifeline, parent), name="aioqueue lifeline", daemon=True).start()

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        child.call_handlers(logger, record)

    setattr(logging.Logger, "callHandlers", call_handlers)  # noqa: B010 - the type checkers call it a method that is assigned
    mark_as_handlers_process()
    child.serve()


def _do_nothing(_number: int, _frame: object) -> None:
    """Whoever stops the service may signal all of its processes: the worker knows when this one is to end.

    Unlike SIG_IGN it isn't inherited by the programs that a job starts.
    """


def _end_with_parent() -> None:
    """Have the kernel kill this process when the worker dies, also while it executes what lets no other thread run."""
    if sys.platform == "linux":
        with suppress(Exception):  # somewhere without ctypes, or prctl: the pipe tells it
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end() -> NoReturn:
    """End this process at once, and what it has started within its group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _take_over(begin: Begin) -> None:
    """Set up what is as in the worker's process."""
    sys.argv[:] = begin.argv
    _levels.update(dict.fromkeys(_levels, logging.NOTSET), **begin.levels)  # those that have none any more have none here
    for name, level in _levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.disable(begin.disabled)


def _job_type(begin: Begin) -> JobType[..., Any, Any]:
    """Import the handler.

    Raises:
        RegistrationError: There is none of this name.
        BaseException: Its module can't be imported.
    """
    if begin.module == "__main__":
        _import_main(begin.main)
    try:
        found = found_in(importlib.import_module(begin.module), begin.name)
    except AttributeError:
        found = None
    if not isinstance(found, JobType):
        raise RegistrationError(
            f"{begin.module}.{begin.name} is no job type in a process of its own: is it defined conditionally?"
        )
    return cast("JobType[..., Any, Any]", found)


def _import_main(main: dict[str, Any]) -> None:
    """Import the worker's main module, as multiprocessing does. Once that has been done, it isn't again.

    Raises:
        ConfigurationError: It runs the program: that would go on for ever, as each job would enqueue others.
    """

    def refuse() -> NoReturn:
        raise unguarded("an event loop")

    events: Any = asyncio.events
    before = events.new_event_loop
    events.new_event_loop = refuse
    try:
        cast("Any", spawn).prepare(main)
    finally:
        events.new_event_loop = before
