"""A command that is run on a terminal, and what it writes there."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass

COLUMNS = 160


@dataclass(frozen=True)
class Ended:
    exit_code: int
    shown: str
    stdout: str


def on_terminal(
    *arguments: str,
    answer: str = "",
    columns: int = COLUMNS,
    output: str = "terminal",
    without_rich: bool = False,
    **environment: str,
) -> Ended:
    """Run `aioqueue` on a terminal of its own; `output="pipe"`: but for its standard output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    code = "import sys; " + ("sys.modules['rich'] = None; " if without_rich else "") + "from aioqueue.cli import main; main()"
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE if output == "pipe" else theirs,
        stderr=theirs,
        env={**plain, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other end is closed: on Linux that's an error
        pass
    stdout = "" if process.stdout is None else process.stdout.read().decode()
    if process.stdout is not None:
        process.stdout.close()
    os.close(ours)
    return Ended(process.wait(), shown.decode().replace("\r\n", "\n"), stdout)
