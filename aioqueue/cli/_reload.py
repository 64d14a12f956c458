"""`aioqueue worker --reload`: the worker runs in a process of its own, which is started anew when Python files change.

The process that was started watches the files, and starts the same command again as its child, which is the worker. A pipe
leads from the one to the other: how often the worker has been asked to stop is written to it, and its end says that the
process which watches is gone. A terminal sends a Ctrl-C to the whole group; the worker does nothing with its own copy, and
goes by what is written.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aioqueue.cli._options import Problem, WrongUsage
from aioqueue.cli._text import one_line
from aioqueue.runtime._log import event
from aioqueue.runtime._process import process

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from types import FrameType

    from watchfiles import Change

    Changes = Iterator[set[tuple[Change, str]]]

__all__ = ["follow_reloader", "run_reloading"]

logger = logging.getLogger("aioqueue.worker")

_PIPE_VARIABLE = "_AIOQUEUE_RELOADER"
_LOOK_MILLISECONDS = 100
"""Between looks at the files, at the child, and for signals; so long no file has to change before the worker is started."""
_GROUP_SECONDS = 0.05
"""For one's own copy of a signal that was sent to the whole group, and has come to the other process already."""
_FORCED_SECONDS = 3.0
"""For a worker that was asked twice, and ends within a second then."""
_NOT_WATCHED = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders; those whose names begin with a dot aren't either."""


# -- in the worker's process ------------------------------------------------------------------------------------------


def follow_reloader() -> bool:
    """Do as the process that watches says, if this one was started by it, and stop when that is gone.

    Returns:
        Whether it was.
    """
    number = os.environ.pop(_PIPE_VARIABLE, None)
    if number is None:
        return False
    os.set_inheritable(int(number), False)  # noqa: FBT003 - the signature is Python's
    process.follow()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_follow, args=(int(number),), name="aioqueue-reload", daemon=True).start()
    return True


def _follow(pipe: int) -> None:
    while asked := os.read(pipe, 1):
        time.sleep(_GROUP_SECONDS)  # somebody may have sent a SIGTERM to the whole group
        while (received := process.received) < asked[0]:
            os.kill(os.getpid(), signal.SIGTERM)
            while process.received == received:  # the main thread is in C code: two signals would be one
                time.sleep(_GROUP_SECONDS)
    if not process.received:
        os.kill(os.getpid(), signal.SIGTERM)


# -- in the process that watches --------------------------------------------------------------------------------------


def run_reloading(folder: str | None, stop_seconds: float) -> int:
    """Run this process's own command as a child, anew after each change, until a signal. In the main thread.

    Arguments:
        folder: Its Python files are watched; None for the working folder.
        stop_seconds: The child is killed if it takes longer to end than that.

    Returns:
        The last child's exit code.

    Raises:
        WrongUsage: There is no such folder.
        Problem: It can't be watched, or no process can be started.
    """
    where = Path(folder or ".").resolve()
    if not where.is_dir():
        raise WrongUsage(f"--app-dir: there is no folder {where}")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    reloader = _Reloader(stop_seconds)
    with reloader.taking_signals():
        try:
            return reloader.run(_changes(where), where)
        except (OSError, RuntimeError) as error:  # what watchfiles raises: too many folders, mostly
            raise Problem(f"--reload: {where} can't be watched, or the worker can't be started: {error}") from None
        finally:
            reloader.end()


def _changes(where: Path) -> Changes:
    """Give what has changed, and an empty set each time that nothing has for a while."""
    watchfiles = importlib.import_module("watchfiles")  # an extra's: the command line works without it

    def wanted(_change: Change, path: str) -> bool:
        return _is_watched(Path(path), where)

    changes: Changes = watchfiles.watch(
        where,
        watch_filter=wanted,
        step=_LOOK_MILLISECONDS,
        rust_timeout=_LOOK_MILLISECONDS,
        yield_on_timeout=True,
        raise_interrupt=False,
    )
    return changes


def _is_watched(path: Path, where: Path) -> bool:
    folders = path.relative_to(where).parts[:-1]
    return path.suffix == ".py" and not any(each in _NOT_WATCHED or each.startswith(".") for each in folders)


class _Reloader:
    """The process that watches, and its child.

    Arguments:
        stop_seconds: As for `run_reloading`.
    """

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._code = 0
        self._signals = 0
        self._restarts = False
        """Whether the child was asked to stop since files have changed."""

    @contextmanager
    def taking_signals(self) -> Generator[None]:
        """Within the block, hand SIGINT and SIGTERM on to the child."""
        # Before this a signal ends the command, which has no child yet; afterwards there is none any more.
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        process.hold_back()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._tell()

    def run(self, changes: Changes, where: Path) -> int:
        """Start the child, and anew after each change, until a signal. Returns the last one's exit code."""
        next(changes)  # from now on nothing is missed: the child reads what is there later
        logger.info("the Python files in %s are watched", one_line(str(where)), extra=event("reload.watching"))
        self._start()
        while not self._signals:
            changed = {path for _, path in next(changes)}
            ended = self._child is not None and self._child.poll() is not None
            if ended:
                time.sleep(_GROUP_SECONDS)
            if self._signals:
                break
            if changed:
                logger.info(
                    "%s: the worker is started anew",
                    _described(changed, where),
                    extra=event("reload.changed", files=len(changed)),
                )
                self.end(restarts=True)
                while next(changes):
                    pass  # what was changed meanwhile is read by the next one too
                if not self._signals:
                    self._start()
            elif ended:
                code = self.end()
                logger.warning(
                    "the worker has ended with exit code %d: it's started again at the next change",
                    code,
                    extra=event("reload.waiting", exit_code=code),
                )
        return self.end()

    def _start(self) -> None:
        theirs, self._pipe = os.pipe()
        # Until the child follows, a Ctrl-C would interrupt the start of its interpreter.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._child = subprocess.Popen(  # noqa: S603 - what was started, once more
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, _PIPE_VARIABLE: str(theirs)},
                pass_fds=[theirs],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(theirs)

    def _tell(self) -> None:
        """Write how often the child has been asked to stop; it does nothing if it knows."""
        asked = self._signals + self._restarts
        if self._pipe is not None and asked:
            with suppress(OSError):  # the child is gone
                os.write(self._pipe, bytes([min(asked, 255)]))

    def end(self, *, restarts: bool = False) -> int:
        """Wait until the child has ended, having asked it to, and kill it if it takes too long.

        Returns:
            Its exit code, or that of the one before if there is none.
        """
        child = self._child
        if child is None:
            return self._code
        self._restarts = restarts or not self._signals
        self._tell()
        deadline = time.monotonic() + self._stop_seconds
        while (code := child.poll()) is None:
            if self._signals + self._restarts > 1:
                deadline = min(deadline, time.monotonic() + _FORCED_SECONDS)
            if time.monotonic() > deadline:
                logger.warning("the worker doesn't end: it's killed", extra=event("reload.killed"))
                child.kill()
                deadline = math.inf
            with suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_MILLISECONDS / 1000)
        pipe, self._pipe, self._child, self._restarts = self._pipe, None, None, False
        assert pipe is not None
        os.close(pipe)
        if self._signals and code in {-signal.SIGINT, -signal.SIGTERM}:
            code = 0  # it hadn't begun
        self._code = code if code >= 0 else 128 - code
        return self._code


def _described(changed: Iterable[str], where: Path) -> str:
    first, *others = sorted(os.path.relpath(path, where) for path in changed)
    return one_line(f"{first} has changed" if not others else f"{first} and {len(others)} more have changed")
