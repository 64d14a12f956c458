"""One process of a handler, as its worker sees it: started, served, told to stop, killed."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

from aioqueue.errors import ProcessFailed
from aioqueue.worker._process_messages import Begun, Ended
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.vocabulary._cancel_reason import CancelReason
    from aioqueue.worker._process_messages import Begin

__all__ = ["HandlerProcess"]

_EXIT_SECONDS = 1.0
"""For a process that has closed its connection to be gone: then its exit code says how."""
_LOOK_SECONDS = 0.1
"""Between two looks whether a process is still there, on systems that don't tell."""
_CODE = (
    "import sys; sys.path[:] = {path!a}; from aioqueue.worker._process_main import main; main({channel}, {lifeline}, {parent})"
)


class HandlerProcess:
    """Starts a process in which handlers run, one after another.

    It's the first of a group and session of its own, so that the terminal's Ctrl-C isn't for it, and what it starts can be
    killed with it. Called in the event loop's thread, which has to live as long: on Linux the process ends with the thread
    that has started it.

    Attributes:
        told: Whether it was told to stop: it's ended then, and not used again.
        killed: Whether `kill` was called.
        served: How many attempts it has run.

    Raises:
        ProcessFailed: The machine gives none at the moment.
    """

    def __init__(self, worker: str) -> None:
        self.told = self.killed = False
        self.served = 0
        self._lock = threading.Lock()
        self._begun = False
        self._cancel: Callable[[], object] | None = None
        fds: list[int] = []
        try:
            ours, theirs = (each.detach() for each in socket.socketpair())
            fds += [ours, theirs]
            fds += [*os.pipe()]
            self._process = _started(worker, theirs, fds[2])
        except OSError as error:
            for each in fds:
                os.close(each)
            raise ProcessFailed(f"no process can be started for the handler: {error}", exit_code=None) from error
        os.close(theirs)
        os.close(fds[2])
        self._lifeline = fds[3]
        os.set_blocking(self._lifeline, False)
        self._connection: Connection[Any, Any] = Connection(ours)
        self._pidfd = _pidfd(self._process.pid)

    @property
    def pid(self) -> int:
        """Its number in the system."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether another attempt may be run by it."""
        return not (self.told or self.killed or self._connection.closed or self._exited(0) or self._connection.poll())

    def serve(self, begin: Begin, handle: Callable[[HandlerProcess, Any], None]) -> Ended:
        """Have it run an attempt, and do what it asks for, until that has ended. In a thread: it waits.

        Unless it can be used again, the process is gone when this returns or raises.

        Arguments:
            begin: The attempt.
            handle: Called with each message.

        Raises:
            ProcessFailed: It has ended before its handler.
        """
        ended: Ended | None = None
        self._begun = False
        try:
            with suppress(OSError):  # it's gone: seen below
                self._connection.send_bytes(pickle.dumps(begin))
            while ended is None:
                message = pickle.loads(self._received())  # noqa: S301 - from the process that we've started
                if isinstance(message, Ended):
                    ended = message
                elif isinstance(message, Begun):
                    self._begun = True
                else:
                    handle(self, message)
        except (EOFError, OSError):
            pass
        finally:
            code = None if ended is not None and not self.told and not self.killed else self.end(_EXIT_SECONDS)
        self.served += 1
        if ended is None:
            raise ProcessFailed(_how(code, begun=self._begun), exit_code=code)
        return ended

    def answer(self, message: object) -> None:
        """Answer what it has asked. It may be gone."""
        with suppress(OSError):
            self._connection.send_bytes(pickle.dumps(message))

    def wait_for(self, cancel: Callable[[], object] | None) -> None:
        """Say what is to be called when the process is killed, while `handle` waits for something; None afterwards."""
        with self._lock:
            self._cancel = cancel
            killed = self.killed
        if cancel is not None and killed:
            cancel()

    def tell(self, reason: CancelReason | None) -> None:
        """Tell it that its attempt should stop, and why. Waits for nothing."""
        self.told = True
        with self._lock, suppress(OSError):
            if self._lifeline >= 0:
                os.write(self._lifeline, f"{reason or '-'}\n".encode())

    def kill(self) -> None:
        """Kill it, and what it has started within its group. `serve` ends then. Waits for nothing."""
        self.killed = True
        self._kill()

    def end(self, patience: float, *, longest: float | None = None) -> int | None:
        """Wait for it to be gone by itself, kill what is left, and wait until that's gone.

        Arguments:
            patience: Seconds that it has to end by itself.
            longest: Seconds to wait once it's killed; None for as long as it takes.

        Returns:
            The exit code; None if it isn't known.
        """
        if patience > 0 and not self.killed:
            self._exited(patience)
        self._kill()
        gone = self._exited(longest)
        with self._lock:
            code = self._process.wait() if gone else None
            if not self._connection.closed:
                self._connection.close()
            for fd in (self._lifeline, self._pidfd):
                if fd >= 0:
                    os.close(fd)
            self._lifeline = self._pidfd = -1
        return code

    def _kill(self) -> None:
        with self._lock:
            cancel = self._cancel
            if self._process.returncode is None:  # afterwards the number may be another process's
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        if cancel is not None:
            cancel()

    def _received(self) -> bytes:
        """The next message; what was sent before it ended comes first.

        Raises:
            EOFError, OSError: It has ended; also if what it has forked off keeps the connection open.
        """
        objects: list[Any] = [self._connection] if self._pidfd < 0 else [self._connection, self._pidfd]
        while not self._connection.poll():
            ready = wait(objects, _LOOK_SECONDS if self._pidfd < 0 else None)
            if self._connection not in ready and self._exited(0) and not self._connection.poll():
                raise EOFError
        return self._connection.recv_bytes()

    def _exited(self, longest: float | None) -> bool:
        """Wait until it has ended, for at most so many seconds; without giving its number free, where that can be."""
        if self._process.returncode is not None:
            return True
        if self._pidfd >= 0:
            return bool(wait([self._pidfd], longest))
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(longest)
        return self._process.returncode is not None


def _started(worker: str, channel: int, lifeline: int) -> subprocess.Popen[bytes]:
    code = _CODE.format(
        path=[each for each in sys.path if isinstance(each, str)], channel=channel, lifeline=lifeline, parent=os.getpid()
    )
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    executable = cast("Any", spawn).get_executable()  # what multiprocessing.set_executable has set, if somebody did
    return subprocess.Popen(  # noqa: S603 - this interpreter, with our own code
        [executable, *flags, "-c", code, f"handlers of {one_line(worker)}"],
        pass_fds=(channel, lifeline),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _pidfd(pid: int) -> int:
    """What tells that a process has ended, where the system has that; otherwise -1."""
    if sys.platform == "linux":
        with suppress(OSError):  # an old kernel, or a sandbox
            return os.pidfd_open(pid)
    return -1


def _how(code: int | None, *, begun: bool) -> str:
    when = "before its handler had returned" if begun else "before it had called its handler"
    if code is None:
        return f"the handler's process has ended {when}"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        hint = ", perhaps since the machine was out of memory" if -code == signal.SIGKILL else ""
        return f"the handler's process was killed by signal {name} {when}{hint}"
    return f"the handler's process has exited with code {code} {when}"
