"""What limits, rates, sequences and fairness cost: `python -m benchmarks.gates [--postgres] [--jobs N] [--pinned]`.

One worker works off no-op jobs that use one of them each, beside jobs that use none: `plain` where nobody uses any, and
`ungated` where the worker serves another type, too, of which 1,000 are held at a limit of 0. Each round is a process of its
own, on a database of its own; the cases alternate, and the ratio of each one's median to that of `plain` is printed. `--pinned`
has somebody keep an old snapshot meanwhile, since which as many jobs of the case have run: nothing of them can be vacuumed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue import Client, Limit, Rate, Registry, Worker
from benchmarks.drain import CHUNK, ROOT, Round, database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.definitions._decorators import JobOptions
    from benchmarks.server import Databases

CASES: dict[str, str] = {
    "plain": "no limit anywhere",
    "ungated": "none for these jobs",
    "wide": "a limit as wide as the slots",
    "keys": "10,000 keys with a limit of 1, or a third as many as jobs",
    "fair": "10,000 tenants take turns, or a fifth as many as jobs",
    "sequence": "1,000 keys, one after the other of each",
    "rate": "a rate that keeps nobody",
}
HELD = 1_000


class Drain:
    """One case: its job, and how many of it have run.

    Arguments:
        case: One of `CASES`.
        jobs: How many are enqueued at once.
        slots: The worker's.
    """

    def __init__(self, case: str, jobs: int, slots: int) -> None:
        self.jobs, self.slots = jobs, slots
        self.values = {"keys": min(10_000, -(-jobs // 3)), "fair": min(10_000, -(-jobs // 5)), "sequence": 1_000}.get(
            case, jobs
        )
        self.registry = Registry(prefix="benchmark.")
        self._ran = 0
        self._all_ran = asyncio.Event()
        options: dict[str, JobOptions] = {
            "wide": {"limit": Limit(slots)},
            "keys": {"limit": Limit(1, by="value")},
            "fair": {"fairness_by": "value"},
            "sequence": {"sequence_by": "value"},
            "rate": {"rate": Rate(1_000_000, per=timedelta(seconds=1))},
        }

        @self.registry.job(**options.get(case, {}))
        async def noop(value: int) -> None:  # noqa: ARG001 - a small argument, as jobs have
            self._ran += 1
            if self._ran == jobs:
                self._all_ran.set()

        @self.registry.job(limit=Limit(0))
        async def held() -> None: ...

        self.noop, self.held = noop, held
        self.beside = case == "ungated"

    async def run(self, client: Client) -> Round:
        """Enqueue the jobs, then work them off in this process."""
        types = [self.noop.name, *([self.held.name] if self.beside else [])]
        if self.beside:
            await client.enqueue_many([self.held() for _ in range(HELD)])
            await Worker(client, self.registry, types=types).run_once()
        self._ran = 0
        self._all_ran.clear()
        began = time.perf_counter()
        for start in range(0, self.jobs, CHUNK):
            end = min(start + CHUNK, self.jobs)
            await client.enqueue_many([self.noop(number % self.values) for number in range(start, end)])
        enqueued = self.jobs / (time.perf_counter() - began)
        began, cpu = time.perf_counter(), time.process_time()
        async with Worker(client, self.registry, types=types, concurrency=self.slots):
            await self._all_ran.wait()
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Round(rate=self.jobs / elapsed, cpu=1e6 * cpu / self.jobs, enqueued=enqueued, memory=0.0)


@asynccontextmanager
async def old_snapshot(url: str) -> AsyncIterator[None]:
    """Keep a transaction open that has seen what there is."""
    if url.startswith("postgres"):
        import asyncpg  # lazy: a round on SQLite doesn't need it

        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.execute("SELECT count(*) FROM aioqueue.job")
                yield
        finally:
            await connection.close()
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield


async def measure(url: str, case: str, jobs: int, slots: int, *, pinned: bool) -> Round:
    """One round."""
    if url.startswith("postgres"):
        from benchmarks.server import prepared  # lazy: it needs what the tests need

        await prepared(url)
    drain = Drain(case, jobs, slots)
    async with Client(url) as client:
        if not pinned:
            return await drain.run(client)
        async with old_snapshot(url):
            await drain.run(client)
            return await drain.run(client)


def in_process(case: str, databases: Databases | None, arguments: argparse.Namespace) -> Round:
    """Run one round in a new process."""
    with database(None, databases) as own:
        completed = subprocess.run(
            [sys.executable, "-m", "benchmarks.gates", "--round", own, case, str(arguments.jobs), str(arguments.concurrency)]
            + ["--pinned"] * arguments.pinned,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            check=True,
        )
    return Round(**json.loads(completed.stdout))


def compare(databases: Databases | None, arguments: argparse.Namespace) -> None:
    """Measure each case, and print a table."""
    rounds: dict[str, list[Round]] = {case: [] for case in ("plain", *arguments.cases)}
    for _ in range(arguments.rounds):
        for case, measured in rounds.items():
            measured.append(in_process(case, databases, arguments))
    print("case      jobs/s (lowest to highest)     ratio  CPU µs/job  ratio  enqueued/s  what", flush=True)
    first = _medians(rounds["plain"])
    for case, measured in rounds.items():
        rates = sorted(each.rate for each in measured)
        rate, cpu, enqueued = _medians(measured)
        spread = f"{rate:8,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"
        ratios = f"{rate / first[0]:5.2f}  {cpu:10.1f}  {cpu / first[1]:5.2f}"
        print(f"{case:8}  {spread:29}  {ratios}  {enqueued:10,.0f}  {CASES[case]}", flush=True)


def _medians(rounds: list[Round]) -> tuple[float, float, float]:
    rate, cpu, enqueued = ([getattr(each, field) for each in rounds] for field in ("rate", "cpu", "enqueued"))
    return statistics.median(rate), statistics.median(cpu), statistics.median(enqueued)


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["--round"]:
        url, case, jobs, slots, *pinned = sys.argv[2:]
        print(json.dumps(vars(asyncio.run(measure(url, case, int(jobs), int(slots), pinned=bool(pinned))))))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gates", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--concurrency", type=int, default=100, help="slots of the worker; 100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pinned", action="store_true", help="somebody keeps an old snapshot")
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES)[1:], default=list(CASES)[1:], help="beside `plain`; all of them"
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        databases: Databases | None = None
        if arguments.postgres:
            from benchmarks.server import postgres  # lazy: it needs what the tests need

            databases = stack.enter_context(postgres())
        compare(databases, arguments)


if __name__ == "__main__":
    main()
