"""Real worker processes, and the ledger: an append-only file, the only truth about what ran.

Every job of `tests.faults.app` writes a line when its handler begins and one when it ends. A line is one `write` to a
file opened for appending, so that lines of several processes never mix, and what a killed process wrote is there.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from aioqueue import Job

ROOT = Path(__file__).parent.parent
PATIENCE = 120.0
"""Seconds that a test waits for something before it fails: far more than it ever takes."""

FORBIDDEN = (
    "Task was destroyed but it is pending",
    "exception was never retrieved",
    "Event loop is closed",
    "Failed to detach context",
    "was never awaited",
    "Exception ignored in",
    "ResourceWarning",
)
"""What no log of ours may contain."""


async def until(
    condition: Callable[[], object | Awaitable[object]],
    what: str,
    *,
    within: float = PATIENCE,
    story: Callable[[], str] = str,
) -> None:
    """Wait until something is true that only other processes can make so. `story` tells more about a failure.

    Raises:
        AssertionError: It isn't, within `within` seconds.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if not isinstance(value, bool) and hasattr(value, "__await__"):
            value = await value
        if value:
            return
        assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}\n{story()}"
        await anyio.sleep(0.02)


# -- the ledger -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line: what happened to which attempt, where and when. `at` is the machine's monotonic clock."""

    event: str
    job: str
    attempt: int
    pid: int
    worker: str
    at: float
    note: str = ""


class Ledger:
    """See above.

    Arguments:
        path: The file; it needn't exist.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def write(self, event: str, job: str, attempt: int, worker: str, note: str = "") -> None:
        entry = {"event": event, "job": job, "attempt": attempt, "pid": os.getpid(), "worker": worker, "note": note}
        # SIGKILL can tear a line where a page of the file ends: the next one begins on a line of its own all the same.
        line = b"\n" + json.dumps({**entry, "at": time.monotonic()}).encode() + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            assert os.write(descriptor, line) == len(line)
        finally:
            os.close(descriptor)

    def entries(self, event: str | None = None) -> list[Entry]:
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return []
        # What is torn was about to be said by a process that was killed before it went on.
        found = [Entry(**json.loads(line)) for line in lines if line.startswith("{") and line.endswith("}")]
        return [entry for entry in found if event is None or entry.event == event]

    def count(self, event: str) -> int:
        return len(self.entries(event))

    def running(self) -> list[Entry]:
        """The starts without an end, which may still run or have been killed."""
        ended = {(entry.job, entry.attempt, entry.pid) for entry in self.entries() if entry.event != "start"}
        return [entry for entry in self.entries("start") if (entry.job, entry.attempt, entry.pid) not in ended]


# -- processes --------------------------------------------------------------------------------------------------------


def die_with_parent() -> None:
    """Called in a worker process of a test: the kernel kills it if the tests are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class WorkerProcess:
    """One `python -m aioqueue.worker`.

    Arguments:
        url: The database.
        ledger: Where its jobs write.
        folder: Where its output goes.
        options: More of its command line.
        environment: Variables besides the test's own.
    """

    _numbers = 0

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        folder: Path,
        *options: str,
        app: str = "tests.faults.app:registry",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        WorkerProcess._numbers += 1
        self.log = folder / f"worker-{WorkerProcess._numbers}.log"
        self.options = options
        self._command = [sys.executable, "-m", "aioqueue.worker", app, "--url", url, *options]
        self._environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONWARNINGS": "default::ResourceWarning",
            "PYTHONPATH": str(ROOT),
            "FAULTS_LEDGER": str(ledger.path.absolute()),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, again too; doesn't wait until it works."""
        assert self._process is None or self._process.poll() is not None, "it's running"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when it's dead."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGSTOP: it's frozen until `cont`. Returns when it is."""
        self.send(signal.SIGSTOP)
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def cont(self) -> None:
        self.send(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM; doesn't wait."""
        self.send(signal.SIGTERM)

    async def exit_code(self, *, within: float = PATIENCE) -> int:
        """Wait for its end; a negative number is the signal that ended it."""
        await until(lambda: self.process.poll() is not None, "the worker's end", within=within, story=self.output)
        return self.process.returncode

    # -- its output -----------------------------------------------------------------------------------------------

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def wait_for(self, pattern: str, *, times: int = 1, within: float = PATIENCE) -> None:
        """Wait until its log matches a regular expression that often."""
        await until(
            lambda: len(re.findall(pattern, self.output())) >= times,
            f"{pattern!r} in the log",
            within=within,
            story=self.output,
        )


@contextmanager
def ended(workers: Iterable[WorkerProcess]) -> Iterator[None]:
    """Kill what is left of the workers when the block ends, stopped ones too."""
    try:
        yield
    finally:
        for worker in workers:
            if worker._process is not None and worker.alive:
                worker.kill()


# -- invariants -------------------------------------------------------------------------------------------------------


def check_logs(workers: Iterable[WorkerProcess], *, allowed: tuple[str, ...] = ()) -> None:
    """No worker's log holds what a program with lost tasks, loops or connections writes.

    Raises:
        AssertionError: One does.
    """
    for worker in workers:
        output = worker.output()
        for phrase in FORBIDDEN:
            assert phrase in allowed or phrase not in output, f"{phrase!r} in {worker.log.name}:\n{output}"


def check_ledger(ledger: Ledger, jobs: Iterable[Job], *, killed: Collection[int] = ()) -> None:
    """What the ledger says fits what the queue says about finished jobs.

    - Every job is finished, and its attempts were counted: never more starts than the attempts that it was allowed
      (one that its worker cancelled and gave back isn't counted).
    - A completed job's output is one that the ledger saw: written by one of its attempts, which began and ended.
    - No attempt was started twice, and no two attempts of a job ran at once, except those that a kill or a stop
      kept from ending: `killed` gives the process ids to leave out, and is usually all that were hit.

    Raises:
        AssertionError: It doesn't.
    """
    by_job: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries():
        by_job[entry.job].append(entry)
    for job in jobs:
        entries = by_job.pop(str(job.id), [])
        assert job.state.finished, f"{job} isn't finished"
        stopped = {(entry.attempt, entry.pid) for entry in entries if entry.event == "cancelled"}
        starts = [entry for entry in entries if entry.event == "start" and (entry.attempt, entry.pid) not in stopped]
        if job.max_attempts is not None:
            assert len(starts) <= job.max_attempts, f"{job.id} was started more often than allowed: {entries}"
        numbers = [entry.attempt for entry in starts]
        assert len(set(numbers)) == len(numbers), f"an attempt of {job.id} was started twice: {entries}"
        assert all(1 <= number <= job.attempt for number in numbers), f"an attempt of {job.id} wasn't counted: {entries}"
        _check_overlap(entries, killed)
        if job.state == "completed" and isinstance(job.output, dict):
            told = [entry for entry in entries if entry.event == "end" and entry.attempt == job.output["attempt"]]
            assert len(told) == 1, f"the output of {job.id} is of an attempt that didn't end: {job.output}, {entries}"
            assert told[0].pid == job.output["pid"], f"the output of {job.id} is another's: {job.output}, {entries}"
    assert not by_job, f"jobs ran that the queue doesn't know: {by_job}"


def _check_overlap(entries: list[Entry], killed: Collection[int]) -> None:
    """One after the other: whoever starts while another's attempt is open has waited for that one's process to die."""
    current: Entry | None = None
    for entry in sorted(entries, key=lambda entry: entry.at):
        if entry.event == "start":
            assert current is None or current.pid in killed, f"two attempts ran at once: {entries}"
            current = entry
        elif current is not None and (entry.attempt, entry.pid) == (current.attempt, current.pid):
            current = None
