"""Whether a worker's memory levels off: `python -m benchmarks.memory [--postgres] [--jobs N]`. Needs psutil.

One worker works off the jobs; a tenth of them fail for good, each with a big traceback: deep, with a long message, and
with values in its frames that nothing may keep. The producer is another process, so that what
it needs isn't counted. The figures are printed on the way: levels off means that the last ones are those of before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no type information

from aioqueue import Client, Registry, Retry, Worker
from benchmarks.server import add_options, postgres, prepared

CHUNK = 5_000
ONE_FAILS = 10
DEPTH = 60
POINTS = (0.1, 0.25, 0.5, 0.75, 1.0)

registry = Registry(prefix="benchmark.")
_ran = 0
_reached: asyncio.Event | None = None
_next = 0


@registry.job(retry=Retry(max_attempts=1))
async def work(number: int) -> str:
    """Return something, or fail deep down."""
    global _ran
    _ran += 1
    if _ran >= _next and _reached is not None:
        _reached.set()
    return fail(DEPTH, "x" * 10_000) if number % ONE_FAILS == 0 else f"done {number}"


def fail(depth: int, ballast: str) -> str:
    """Raise at a depth, with something heavy in each frame."""
    kept = bytearray(1_000)
    if depth == 0:
        raise ValueError(f"it went wrong: {ballast}")
    return fail(depth - 1, ballast) + kept.hex()


@dataclass(frozen=True, slots=True)
class Figures:
    """What the worker's process holds at one point.

    Attributes:
        jobs: Worked off so far.
        resident: Megabytes of memory now.
        peak: Megabytes of memory at most so far.
        tasks: Of the event loop.
        threads: Of the process.
        descriptors: Of the process.
    """

    jobs: int
    resident: float
    peak: float
    tasks: int
    threads: int
    descriptors: int


def figures(process: psutil.Process) -> Figures:
    """Look."""
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return Figures(
        jobs=_ran,
        resident=process.memory_info().rss / 2**20,
        peak=peak / 1024,
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        descriptors=process.num_fds(),
    )


async def enqueue(url: str, jobs: int) -> None:
    """Store all jobs."""
    await prepared(url)
    async with Client(url) as client:
        for start in range(0, jobs, CHUNK):
            await client.enqueue_many([work(number) for number in range(start, min(start + CHUNK, jobs))])


async def drain(url: str, jobs: int, concurrency: int) -> None:
    """Work all jobs off, printing the figures on the way as JSON, one line each."""
    global _reached, _next
    _reached = asyncio.Event()
    points = sorted({max(1, round(jobs * point)) for point in POINTS})
    process = psutil.Process()
    _next = points[0]
    async with Client(url) as client, Worker(client, registry, concurrency=concurrency):
        for point, following in zip(points, [*points[1:], jobs + 1], strict=True):
            await _reached.wait()
            # More may have run before this was woken.
            _next = following
            if _ran < following:
                _reached.clear()
            if _ran >= point:
                print(json.dumps(asdict(figures(process))), flush=True)


def show(url: str, jobs: int, concurrency: int) -> list[Figures]:
    """Run producer and worker, each in a process of its own, and print a table."""
    command = [sys.executable, "-m", "benchmarks.memory"]
    rest = [url, str(jobs), str(concurrency)]
    subprocess.run([*command, "--enqueue", *rest], check=True)
    completed = subprocess.run([*command, "--drain", *rest], stdout=subprocess.PIPE, check=True)
    rows = [Figures(**json.loads(line)) for line in completed.stdout.splitlines()]
    print(f"{'jobs':>9}  {'resident MB':>11}  {'peak MB':>8}  tasks  threads  descriptors")
    for row in rows:
        print(
            f"{row.jobs:9,}  {row.resident:11.1f}  {row.peak:8.1f}  {row.tasks:5}  {row.threads:7}  {row.descriptors:11}",
            flush=True,
        )
    return rows


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] in (["--enqueue"], ["--drain"]):
        logging.getLogger("aioqueue").setLevel(logging.CRITICAL)
        phase, url, jobs, concurrency = sys.argv[1:]
        coroutine = enqueue(url, int(jobs)) if phase == "--enqueue" else drain(url, int(jobs), int(concurrency))
        asyncio.run(coroutine)
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    add_options(parser, Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        if arguments.postgres or arguments.server:
            databases = stack.enter_context(postgres(arguments.server, arguments.binaries))
            url = stack.enter_context(databases.fresh())
        else:
            url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory(prefix='aioqueue-memory-'))}/memory.db"
        show(url, arguments.jobs, arguments.concurrency)


if __name__ == "__main__":
    main()
