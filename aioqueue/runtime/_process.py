"""A process that is nothing but a worker: what SIGINT and SIGTERM do from its first instant to its last, and its end.

It's imported first of all, and imports next to nothing, since a signal that comes before its handler is there ends a process
as if it had failed, or, where it's process 1 (in a container), is ignored.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import contextmanager

TYPE_CHECKING = False  # `typing` would be most of what this imports
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["END_SECONDS", "LEFT_BEHIND", "NAME_HELD", "Stopped", "process"]

LEFT_BEHIND = 4
"""Exit code: jobs didn't stop, or what became of them couldn't be written."""
NAME_HELD = 5
"""Exit code: another worker has the name that only one may have."""

END_SECONDS = 5.0
"""For what remains of a process that was told to stop when its worker has ended: threads, tasks, and what runs at exit."""
_FORCED_SECONDS = 1.0
"""After a second signal, or a first one while modules are imported, until the process ends."""
_NAMING_SECONDS = 0.2
"""For flushing the output, and naming what is left: it may wait for somebody who doesn't read, or for a lock."""


class Stopped(BaseException):
    """A signal came while the user's modules were imported. Not an `Exception`: nobody is to take it for a failure."""


class Process:
    """SIGINT and SIGTERM of this process, once `prepare` or `command` has taken them over.

    The first one asks for a stop: before there is anything to clean up it ends the process, while the user's modules are
    imported it's raised as `Stopped`, and later it's told to whoever has asked for that. After a second one the process ends
    within a second, whatever it's doing.

    Attributes:
        exit_code: What the process exits with if it has to be ended.
        received: How many signals have come.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self.received = 0
        self._own = False
        self._follows = False
        self._run: object = None
        self._act: Callable[[int], None] = self._leave

    def prepare(self) -> None:
        """Take the signals over if this process was started to be a worker; nothing else happens in others."""
        if _started_as_worker():
            self._own = True
            self._install()

    def follow(self) -> None:
        """From now on SIGINT does nothing: who has started this process gets it from the terminal too, and says what to do."""
        self._follows = True
        self._install()

    def _install(self) -> None:
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, _do_nothing if self._follows else self._handle)

    @contextmanager
    def command(self) -> Generator[None]:
        """The worker's command: a first signal raises `Stopped` in it. In the main thread.

        In a process that does other things too, the signals are as they were when it has ended.
        """
        before = {} if self._own else {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if not self._own:
            self.exit_code = self.received = 0
        self._run = object()
        self._act = self._raise
        self._install()
        try:
            yield
        finally:
            self._act = self._hurry
            if not self._own:
                self._run = None  # nobody ends the process any more
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def hold_back(self) -> None:
        """From now on signals are only counted, until somebody is told of them."""
        self._act = self._note

    @contextmanager
    def telling(self, tell: Callable[[int], None]) -> Generator[None]:
        """Call a function with each signal's number within the block; with SIGTERM's at once, if one has come already.

        When the block has ended after a signal, or with something left behind, the process has to end in time. Otherwise it
        may take the time that it needs.

        Arguments:
            tell: Called between two instructions of whatever the main thread is executing: it may do next to nothing.
        """
        self._act = tell
        self._install()  # the user's modules may have put theirs in its place
        if self.received:
            tell(signal.SIGTERM)
        try:
            yield
        finally:
            self._act = self._hurry
            if self.received or self.exit_code == LEFT_BEHIND:
                self.end_within(END_SECONDS)

    def end_within(self, seconds: float) -> None:
        """End the process then, if it's still there, whatever tasks, threads and `atexit` handlers it has."""
        try:
            _thread.start_new_thread(self._end, (seconds, self._run))
        except RuntimeError:  # the interpreter is almost down, or there are no more threads
            os._exit(self.exit_code)

    def _end(self, seconds: float, run: object) -> None:
        time.sleep(max(seconds - _NAMING_SECONDS, 0.0))
        if run is not self._run:
            return
        try:
            _thread.start_new_thread(_name_the_rest, ())
            time.sleep(_NAMING_SECONDS)
        finally:
            if run is self._run:
                os._exit(self.exit_code)

    # -- what a signal does -------------------------------------------------------------------------------------------

    def _handle(self, number: int, _frame: object) -> None:
        self.received += 1
        if self.received > 1:
            self.end_within(_FORCED_SECONDS)
        self._act(number)

    def _leave(self, _number: int) -> None:
        os._exit(self.exit_code)

    def _raise(self, _number: int) -> None:
        self.end_within(_FORCED_SECONDS)  # what is imported may catch everything
        raise Stopped

    def _note(self, _number: int) -> None:
        pass

    def _hurry(self, _number: int) -> None:
        self.end_within(END_SECONDS)


def _do_nothing(_number: int, _frame: object) -> None:
    """Unlike SIG_IGN it isn't inherited by the programs that a job starts."""


def _started_as_worker() -> bool:
    """Whether the command is `python -m aioqueue.worker`, or `aioqueue worker`."""
    if sys.argv[:1] == ["-m"]:  # the module is still being looked for; what follows are its arguments
        return sys.orig_argv[-len(sys.argv)] == "aioqueue.worker"
    return os.path.basename(sys.argv[0]) in {"aioqueue", "aioqueue.exe"} and sys.argv[1:2] == ["worker"]


def _name_the_rest() -> None:
    # Imported here: this module comes first of all, before its signal handlers stand, and may cost next to nothing.
    import logging
    import threading

    from aioqueue.runtime._log import event

    rest = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    what = f"threads: {rest!r}" if rest else "tasks, or what runs at exit"
    logging.getLogger("aioqueue.worker").warning(
        "the process is ended while something of it still runs: %s", what, extra=event("process.ended_early")
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


process = Process()
process.prepare()
