"""A command that is run on a terminal, and what it writes there."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 160


@dataclass(frozen=True)
class Ended:
    exit_code: int
    shown: str
    stdout: str


def on_terminal(
    *arguments: str,
    answer: str = "",
    interrupt_at: str = "",
    columns: int = COLUMNS,
    output: str = "terminal",
    without_rich: bool = False,
    **environment: str,
) -> Ended:
    """Run `aioqueue` on a terminal of its own; `output="pipe"`: but for its standard output.

    Ctrl-C is pressed once, when `interrupt_at` is shown and the command waits for an answer.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    code = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    code += ("sys.modules['rich'] = None; " if without_rich else "") + "from aioqueue.cli import main; main()"
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE if output == "pipe" else theirs,
        stderr=theirs,
        env={**plain, "TERM": "xterm-256color", **environment},
        start_new_session=True,  # whose terminal it becomes: Ctrl-C is for the processes of its session
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
            if interrupt_at and interrupt_at.encode() in shown:
                while not _reads_standard_input(process.pid):
                    time.sleep(0.01)
                os.write(ours, b"\x03")
                interrupt_at = ""
    except OSError:  # the other end is closed: on Linux that's an error
        pass
    stdout = "" if process.stdout is None else process.stdout.read().decode()
    if process.stdout is not None:
        process.stdout.close()
    os.close(ours)
    return Ended(process.wait(), shown.decode().replace("\r\n", "\n"), stdout)


def _reads_standard_input(pid: int) -> bool:
    """Whether the main thread stands in a call of the system on it: a signal that comes before that doesn't end `input`."""
    return Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[1:2] == ["0x0"]
