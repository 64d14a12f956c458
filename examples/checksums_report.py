"""What the example shows: a line while it runs, and a summary at its end."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TextIO

from aioqueue import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue import Job

SHOWN = 5
QUIET_INTERVAL = 5.0
"""Seconds between lines when nobody watches a terminal."""


class File(NamedTuple):
    """One file that was measured."""

    path: str
    size: int
    digest: str
    seconds: float


@dataclass(frozen=True)
class Results:
    """The finished jobs of a run, and how many there will be, as far as that is known: None while the files are counted."""

    jobs: Sequence[Job]
    total: int | None

    @property
    def files(self) -> list[File]:
        """Those that could be read."""
        return [
            File(_path(job), job.output["size"], job.output["digest"], job.output["seconds"])
            for job in self.jobs
            if job.state is JobState.COMPLETED
        ]

    @property
    def failures(self) -> list[Job]:
        """Those that couldn't."""
        return [job for job in self.jobs if job.state is not JobState.COMPLETED]


def _path(job: Job) -> str:
    path = job.arguments["path"]
    # Control characters in a file's name do nothing to the terminal.
    return path if path.isprintable() else ascii(path)[1:-1]


class Progress:
    """A line that is written over on a terminal, and one every few seconds elsewhere.

    Arguments:
        stream: Usually standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._began = time.monotonic()
        self._first: int | None = None
        self._next = 0.0
        self._open = False

    def show(self, results: Results) -> None:
        """Say how far it is."""
        now, done = time.monotonic(), len(results.jobs)
        if self._first is None:
            self._first = done
        if not self._terminal and now < self._next and done != results.total:
            return
        self._next = now + QUIET_INTERVAL
        total = "?" if results.total is None else str(results.total)
        percent = f"{100 * done // results.total:3d} %" if results.total else "  ? %"
        size = sum(file.size for file in results.files)
        rate = (done - self._first) / max(now - self._began, 0.001)
        failed = len(results.failures)
        line = f"{percent}  {done} of {total} files, {bytes_text(size)}, {rate:.0f} files/s"
        line += f", {failed} failed" if failed else ""
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{line[:width]}")
            self._open = True
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line as it is, and begin the next."""
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False


def bytes_text(size: float) -> str:
    """A size for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def summary(results: Results, before: int) -> str:
    """What came out, as text.

    Arguments:
        results: All of the run.
        before: How many files an earlier start had done.
    """
    files = results.files
    same: dict[tuple[str, int], list[File]] = defaultdict(list)
    for file in files:
        same[file.digest, file.size].append(file)
    repeated = [group for (_digest, size), group in same.items() if size and len(group) > 1]
    spare = sum(len(group) - 1 for group in repeated)
    wasted = sum((len(group) - 1) * group[0].size for group in repeated)
    lines = [
        f"files       {len(results.jobs)}" + (f" ({before} of them by an earlier start)" if before else ""),
        f"bytes       {sum(file.size for file in files)} ({bytes_text(sum(file.size for file in files))})",
        f"duplicates  {spare} ({bytes_text(wasted)}), in {len(repeated)} groups",
        f"failures    {len(results.failures)}",
    ]
    lines += _section("largest", ((bytes_text(each.size), each.path) for each in _top(files, "size")))
    lines += _section("slowest", ((f"{1000 * each.seconds:.1f} ms", each.path) for each in _top(files, "seconds")))
    if results.failures:
        lines += ["", "failed"]
        for job in sorted(results.failures, key=_path):
            times = "once" if job.attempt == 1 else f"{job.attempt} times"
            reason = "no reason is known" if job.last_error is None else str(job.last_error)
            lines.append(f"  {_path(job)}: {reason if reason.isprintable() else ascii(reason)} (tried {times})")
    return "\n".join(lines)


def _top(files: Iterable[File], field: str) -> list[File]:
    return sorted(files, key=lambda each: (-getattr(each, field), each.path))[:SHOWN]


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    found = list(rows)
    return ["", title, *(f"  {value:>10}  {path}" for value, path in found)] if found else []
