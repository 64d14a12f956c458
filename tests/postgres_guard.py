"""Stops a test's PostgreSQL server and removes its directory when whoever started it is gone, however it ended.

Run as a process of its own: `postgres_guard.py DIRECTORY`, with the reading end of a pipe as its standard input. The
pipe closes when the tests' process closes it, or dies (of SIGKILL too).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def postmaster_pid(data: Path) -> int | None:
    """The server's process id, if its file says one."""
    try:
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None


def gone(pid: int, within: float) -> bool:
    """Wait until no such process exists (a zombie, which somebody else has to reap, counts as none)."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def stop(data: Path) -> None:
    """Stop the server, fast if it can and by force if not."""
    pid = postmaster_pid(data)
    if pid is None:
        return
    for number, within in ((signal.SIGCONT, 0.0), (signal.SIGINT, 20.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if within and gone(pid, within):
            return


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory = Path(sys.argv[1])
    while os.read(0, 4096):
        pass
    for data in directory.glob("data*"):
        stop(data)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
