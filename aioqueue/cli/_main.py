"""The command `aioqueue`: the group to which each subcommand belongs."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, TextIO

import click

from aioqueue.cli._bulk import prune
from aioqueue.cli._chains import chains
from aioqueue.cli._changes import changing_commands
from aioqueue.cli._completion import completion
from aioqueue.cli._doctor import doctor
from aioqueue.cli._ending import complete, fail
from aioqueue.cli._health import health
from aioqueue.cli._jobs import jobs
from aioqueue.cli._limits import limits, sequences
from aioqueue.cli._options import Problem
from aioqueue.cli._pauses import pause, pauses, resume
from aioqueue.cli._queue import enqueue, migrate, stats
from aioqueue.cli._schedules import schedules
from aioqueue.cli._top import top
from aioqueue.cli._webhooks import webhooks
from aioqueue.cli._why import why
from aioqueue.cli._worker import worker
from aioqueue.cli._workers import workers

__all__ = ["main"]


class _Main(click.Group):
    """The group, with what concerns the standard output of every command."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click calls it."""
        stdout: TextIO = sys.stdout
        if reconfigure := getattr(stdout, "reconfigure", None):  # something else may stand in for it
            reconfigure(errors="backslashreplace")  # what its encoding doesn't have is no reason to fail
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _CANT_BE_WRITTEN:
                raise
            _throw_away(stdout)
            raise Problem(f"standard output can't be written: {error.strerror}") from None


_CANT_BE_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a full disk says, or a broken one. Databases' errors are others by then, and click knows the pipe that nobody reads."""


def _throw_away(stream: TextIO) -> None:
    """Have Python not try once more, at its exit, to write what a stream still holds."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="aioqueue-jobs", prog_name="aioqueue")
def main() -> None:
    """Durable background jobs in the database that you have.

    Every command takes --url, or AIOQUEUE_URL. Exit codes: 0 is success, 1 an error, 2 wrong usage or settings, 3 that
    jobs have failed, 4 that a worker had to leave jobs behind when it was stopped, 5 that another worker has its name.
    """


for command in (why, *changing_commands(), complete, fail, prune):
    jobs.add_command(command)
for command in (worker, migrate, enqueue, jobs, chains, pause, resume, pauses, limits, sequences, schedules):
    main.add_command(command)
for command in (workers, stats, top, webhooks, health, doctor, completion):
    main.add_command(command)
