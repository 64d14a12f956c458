"""Steps of chains per second by one worker, beside plain jobs: `python -m benchmarks.chains [--postgres] [--jobs N]`.

As many chains as the worker has slots, so that each slot always has a step; the plain jobs are all there before it begins. The
rounds of the two alternate, each on a database of its own where `--url` doesn't name one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aioqueue import Call, Client, Registry, Worker, done
from benchmarks.drain import CHUNK, database

if TYPE_CHECKING:
    from benchmarks.server import Databases

registry = Registry(prefix="benchmark.")
_ran = 0
_wanted = 0
_all_ran: asyncio.Event | None = None


def _count() -> None:
    global _ran
    _ran += 1
    if _ran >= _wanted and _all_ran is not None:
        _all_ran.set()


@registry.job
async def plain(number: int) -> None:  # noqa: ARG001 - a small argument, as jobs have
    """Do nothing but count."""
    _count()


@registry.job
async def step(left: int) -> Call[None]:
    """The same, and go on with the next step."""
    _count()
    return done(None) if left <= 1 else step(left - 1)


async def measure(url: str, jobs: int, concurrency: int, steps: int) -> tuple[float, float]:
    """Work off so many jobs: plain ones, or as chains of so many steps if that's more than 0.

    Returns:
        Jobs or steps per second, and processor time for each in microseconds.
    """
    global _ran, _wanted, _all_ran
    calls: list[Call[None]] = [step(steps) for _ in range(concurrency)] if steps else [plain(each) for each in range(jobs)]
    _ran, _wanted, _all_ran = 0, jobs, asyncio.Event()
    if url.startswith("postgres"):
        from aioqueue.postgres import make_store  # lazy: on SQLite it isn't needed

        await make_store(url).migrate()
    async with Client(url) as client:
        for start in range(0, len(calls), CHUNK):
            await client.enqueue_many(calls[start : start + CHUNK])
        began, cpu = time.perf_counter(), time.process_time()
        async with Worker(client, registry, concurrency=concurrency):
            await _all_ran.wait()
        return jobs / (time.perf_counter() - began), 1e6 * (time.process_time() - cpu) / jobs


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chains", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file for each round")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        databases: Databases | None = None
        if arguments.postgres:
            from benchmarks.server import postgres  # lazy: it needs what the tests need

            databases = stack.enter_context(postgres())
        print("slots  jobs/s (CPU µs)     steps/s (CPU µs)    steps/jobs")
        for concurrency in arguments.concurrency:
            steps = max(1, arguments.jobs // concurrency)
            measured: dict[int, list[tuple[float, float]]] = {0: [], steps: []}
            for _ in range(arguments.rounds):
                for kind, rounds in measured.items():
                    with database(arguments.url, databases) as url:
                        rounds.append(asyncio.run(measure(url, steps * concurrency, concurrency, kind)))
            medians = [[statistics.median(figures) for figures in zip(*rounds, strict=True)] for rounds in measured.values()]
            figures = "".join(f"{f'{rate:,.0f} ({cpu:.0f})':20}" for rate, cpu in medians)
            print(f"{concurrency:5}  {figures}{medians[1][0] / medians[0][0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
