"""A command that is run on a terminal, and what it writes there."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from functools import cache
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
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    reads, writes = os.pipe() if output == "pipe" else (None, theirs)
    request = {
        "arguments": arguments,
        "environment": {**plain, "TERM": "xterm-256color", **environment},
        "folder": os.getcwd(),
        "without_rich": without_rich,
    }
    try:
        starter = _starter()
        socket.send_fds(starter, [json.dumps(request).encode() + b"\n"], [theirs, writes, theirs])
        for file in {theirs, writes}:
            os.close(file)
        process = _number(starter)
        os.write(ours, answer.encode())
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
                if interrupt_at and interrupt_at.encode() in shown:
                    while not _reads_standard_input(process):
                        time.sleep(0.01)
                    os.write(ours, b"\x03")
                    interrupt_at = ""
        except OSError:  # the other end is closed: on Linux that's an error
            pass
        stdout = b""
        if reads is not None:
            with open(reads, "rb") as pipe:
                stdout = pipe.read()
        os.close(ours)
        return Ended(_number(starter), shown.decode().replace("\r\n", "\n"), stdout.decode())
    except BaseException:  # what it would tell next is of this command
        _starter.cache_clear()
        raise


@cache
def _starter() -> socket.socket:
    """The process that starts commands: the first interpreter takes a second to import what they need, and each would again."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.cli.terminal_starter"]
    process = subprocess.Popen(command, stdin=theirs, cwd=Path(__file__).parent.parent.parent, start_new_session=True)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _number(starter: socket.socket) -> int:
    """The next number that it tells."""
    line = b""
    while not line.endswith(b"\n"):
        part = starter.recv(1)
        assert part, "the process that starts commands has ended"
        line += part
    return int(line)


def _reads_standard_input(pid: int) -> bool:
    """Whether the main thread stands in a call of the system on it: a signal that comes before that doesn't end `input`."""
    return Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[1:2] == ["0x0"]
