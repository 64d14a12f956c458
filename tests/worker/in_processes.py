"""Handlers that run in processes of their own: these import them by name."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from aioqueue import Cancel, Fail, Fixed, Registry, Reschedule, Retry, RetryIn, current_attempt

registry = Registry()
ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=2, backoff=Fixed(0), jitter=0)

logger = logging.getLogger("tests.in_processes")


class Odd(ValueError):
    """Can be pickled, and not read again."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(number)
        self.why = why


class Unpicklable(LookupError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        raise RuntimeError("can't be pickled")


@registry.job(executor="process")
def where() -> int:
    return os.getpid()


@registry.job(executor="process", retry=ONCE)
def works(what: str) -> Any:
    if what == "a value that no pickle knows":
        return {"numbers": [1, 2.5], "text": "é"}
    if what == "much":
        return "x" * 20_000_000
    if what == "what can't be stored":
        return threading.Lock()
    if what == "signals":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    raise AssertionError(what)


@registry.job(executor="process", retry=ONCE)
def typed() -> int:
    wrong: Any = "no number"
    return wrong


@registry.job(executor="process", retry=Retry(max_attempts=2, backoff=Fixed(3600), fail_on=(LookupError,)))
def ends(how: str) -> None:
    match how:
        case "_exit":
            os._exit(3)
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "fork":  # what was forked off keeps the connection open
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            os._exit(5)
        case "sys.exit":
            sys.exit(4)
        case "ctrl-c":
            raise KeyboardInterrupt
        case "odd":
            raise Odd(1, why="odd")
        case "unpicklable":
            raise Unpicklable("a text")
        case "local":
            raise type("Local", (ValueError,), {})("of nowhere")
        case "group":
            raise ExceptionGroup("several", [Unpicklable("one"), Fail("enough", "of both")])
        case "ordinary":
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise ValueError("outer") from error
        case "Fail":
            raise Fail("on purpose", outcome="declined")
        case "Cancel":
            raise Cancel("not wanted")
        case "RetryIn":
            raise RetryIn(3600)
        case "Reschedule":
            raise Reschedule(delay=3600)


@registry.job(executor="process", retry=ONCE)
def stays(path: str, *, looks: bool = False, returns: bool = False) -> str:
    """Stays for a minute; a program that it has started too."""
    program = subprocess.Popen(["sleep", "60"])
    Path(path).write_text(f"{os.getpid()} {program.pid}")
    attempt = current_attempt()
    for _ in range(6000):
        if looks and attempt.cancelled:
            Path(path + ".seen").write_text(f"{attempt.cancel_reason}")
            if returns:
                return f"stopped: {attempt.cancel_reason}"
            raise InterruptedError("it looked")
        time.sleep(0.01)
    return "never"


@registry.job(executor="process", retry=ONCE)
def absent(what: str) -> str:
    attempt = current_attempt()
    try:
        match what:
            case "client":
                attempt.client.enqueue(where())
            case "enqueue":
                attempt.enqueue(where())
            case "completion":
                attempt.completion()
            case "resource":
                http.get_from_thread()
            case "from_thread":
                attempt.from_thread(asyncio.sleep, 0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


@registry.resource
async def http() -> Any:
    yield 1


@registry.job(executor="process", capture_logs=True)
def tells(count: int) -> list[Any]:
    attempt = current_attempt()
    attempt.set_outcome("told")
    for each in range(count):
        logger.info("number %d", each, extra={"each": each, "path": Path("/a")})
        attempt.progress(each * 100 / count, f"at {each}")
    logger.debug("not let through")
    quiet = logging.getLogger("tests.in_processes.quiet")
    quiet.propagate = False
    try:
        raise Odd(2, why="for the log")
    except Odd:
        quiet.exception("it broke")
    return [attempt.number, attempt.job.type, attempt.arguments, attempt.metadata, attempt.cancelled, attempt.worker_id]


def download(url: str) -> int:
    Path(url).write_text(f"{Path(url).read_text() if Path(url).exists() else ''}download {os.getpid()}\n")
    return 7


async def upload(size: int) -> str:
    if current_attempt().number == 1:
        os._exit(9)
    await asyncio.sleep(0)
    return "x" * size


@registry.job(executor="process", phases=("download", "upload"), retry=AT_ONCE)
def staged(path: str) -> list[Any]:
    attempt = current_attempt()
    size = attempt.from_thread(attempt.phase, "download", download, path)
    attempt.progress(50)
    done = asyncio.run(attempt.phase("upload", upload, size))
    try:
        attempt.from_thread(attempt.phase, "upload", upload, size)
    except Exception as error:
        return [size, done, type(error).__name__, attempt.from_thread(attempt.phase_results)]
    return []


@registry.job(executor="process", retry=ONCE)
def patient(path: str) -> str:
    """Stays until it may go."""
    Path(path).write_text(f"{os.getpid()} {os.getpid()}")
    go = Path(path).with_suffix(".go")
    while not go.exists():
        time.sleep(0.01)
    return "went"


@registry.job(executor="process", dry_run=True)
def runs_dry() -> bool:
    return current_attempt().dry_run
