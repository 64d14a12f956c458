"""Starts commands on terminals from a process that has imported what each of them would import again.

Run as a process of its own: `python -m tests.cli.terminal_starter`, with a socket as its standard input. Each request is a line
of JSON with the command's three files; the command is a fork, which reads and writes these, has the terminal of the first, and
ends as any interpreter does. The answers are its process id and, when it has ended, its exit code. rich isn't imported here:
whether a command does that, and can, is the command's.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import socket
import sys
import termios
from typing import Any

from aioqueue.cli import main


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Start what is asked for until nobody is left to ask. Returns the request in each process that is a command."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, 65536, 3)
        if not message:
            return None
        while not message.endswith(b"\n"):
            message += requests.recv(65536)
        process = os.fork()
        if not process:
            requests.close()
            _take(files)
            return dict(json.loads(message))
        for file in files:
            os.close(file)
        requests.sendall(b"%d\n" % process)
        _, status = os.waitpid(process, 0)
        requests.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _take(files: list[int]) -> None:
    """Have these as standard input, output and error, and the terminal that the first one is."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - it's the process's
        text = io.TextIOWrapper(raw, before.encoding, before.errors, line_buffering=number > 0 and os.isatty(number))
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def run(request: dict[str, Any]) -> None:
    """Be the command."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[:] = ["-c", *request["arguments"]]
    if request["without_rich"]:
        sys.modules["rich"] = None
    main()


if __name__ == "__main__":
    with contextlib.closing(socket.socket(fileno=os.dup(0))) as own:
        asked = serve(own)
    if asked is not None:
        run(asked)
