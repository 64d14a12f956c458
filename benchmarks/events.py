"""What it costs that somebody reads events: `python -m benchmarks.events [--postgres] [--jobs N] [--against COMMIT]`.

Rounds are those of `benchmarks.drain`: with one process beside the worker that reads all events, and without one, which is
what most jobs have. `--against COMMIT` measures an older commit, too, which may not know events at all. The rounds alternate;
of each two lines the ratio is printed. For each round that was read a line on the standard error says what was seen of it.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aioqueue import Client
from benchmarks.drain import ROOT, Round, compare, database, in_process, worktree
from benchmarks.server import postgres, prepared

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.server import Databases

READ = "read"
LAST_SECONDS = 10.0
"""After the worker's end, in which what is still missing may come."""


async def read(url: str, jobs: int) -> None:
    """Read until as many jobs have completed, or none completes any more, and print how many events that were."""
    seen: Counter[str] = Counter()
    await prepared(url)
    async with Client(url) as client, client.events() as stream:

        async def count() -> None:
            async for event in stream:
                seen[type(event).__name__] += 1
                if seen["JobCompleted"] == jobs:
                    break

        print("reads", flush=True)
        counting = asyncio.create_task(count())
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))  # once the worker has ended
        await asyncio.wait([counting, ended], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([counting], timeout=LAST_SECONDS)
        at = time.time()
        counting.cancel()
        await ended
    print(
        f"{seen.total():,} events, {jobs - seen['JobCompleted']:,} jobs' ends are missing, {seen['Reset']} resets, {at:.3f}",
        flush=True,
    )


def one_round(tree: Path, url: str | None, databases: Databases | None, jobs: int, concurrency: int, how: str) -> Round:
    """Run one round in a new process, beside another one that reads, if it's to be read."""
    with database(url, databases) as own:
        if how != READ:
            return in_process(tree, own, None, jobs, concurrency, how)
        command = [sys.executable, "-m", "benchmarks.events", "--read", own, str(jobs)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            if reader.stdout.readline() != "reads\n":
                raise RuntimeError("the reader hasn't begun")
            measured = in_process(tree, own, None, jobs, concurrency, how)
            ended = time.time()
            told, _ = reader.communicate("\n")
        what, _, at = told.rpartition(", ")
        print(f"read: {what}, the last {float(at) - ended:+.2f} s after the worker's end", file=sys.stderr, flush=True)
    return measured


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["--read"]:
        asyncio.run(read(sys.argv[2], int(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.events", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file for each round")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit, too, read by nobody")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        trees = {"read": (ROOT, READ), "not read": (ROOT, "")}
        if arguments.against is not None:
            trees[arguments.against] = stack.enter_context(worktree(arguments.against)), ""
        databases = stack.enter_context(postgres()) if arguments.postgres else None
        compare(trees, databases, arguments, one_round)


if __name__ == "__main__":
    main()
