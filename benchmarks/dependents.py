"""How fast jobs are told that what they wait for has ended: `python -m benchmarks.dependents [--postgres] [--jobs N]`.

Three shapes: one chain that so many jobs wait for, one job that waits for so many chains, and diamonds (one job, two that
wait for it, one that waits for both). First the store alone: claims, settles and tends as a worker does, a hundred outcomes
at a time. Then the same shape anew, worked off by a worker with its handlers. On PostgreSQL statements are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aioqueue import Client, NewJob, Registry, Worker
from aioqueue.abc import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Settlement, SettlementKind
from benchmarks.drain import CHUNK, database
from benchmarks.server import prepared

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from aioqueue.abc import Store
    from aioqueue.vocabulary._job import ClaimedJob
    from benchmarks.server import Databases

registry = Registry(prefix="benchmark.")
BATCH = 100
"""Outcomes that are settled at once, and the slots of the worker."""
PORTION = 1_000
"""What one call of `tend` may do."""

_ran = 0
_wanted = 0
_all_ran: asyncio.Event | None = None


@registry.job
async def node() -> None:
    """Do nothing but count."""
    global _ran
    _ran += 1
    if _ran >= _wanted and _all_ran is not None:
        _all_ran.set()


# -- shapes -----------------------------------------------------------------------------------------------------------


def _job(*blockers: NewJob) -> NewJob:
    return NewJob(id=new_id(), type=node.name, payload=b"{}", blockers=tuple(NewBlocker(each.id) for each in blockers))


def one_chain(count: int) -> list[NewJob]:
    """So many jobs wait for one."""
    first = _job()
    return [first, *(_job(first) for _ in range(count))]


def one_dependent(count: int) -> list[NewJob]:
    """One job waits for so many."""
    blockers = [_job() for _ in range(count)]
    return [*blockers, _job(*blockers)]


def diamonds(count: int) -> list[NewJob]:
    """Diamonds with so many sides in all: four each."""
    made: list[NewJob] = []
    for _ in range(max(1, count // 4)):
        top = _job()
        left, right = _job(top), _job(top)
        made += [top, left, right, _job(left, right)]
    return made


SHAPES: dict[str, Callable[[int], list[NewJob]]] = {
    "one chain": one_chain,
    "one dependent": one_dependent,
    "diamonds": diamonds,
}


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round measured.

    Attributes:
        edges: How many times a job was told that something that it waited for has ended.
        inserted: Jobs stored per second, with what they wait for.
        resolved: Edges per second, over all calls that settle somebody who is waited for, or tend; claims aren't in it.
        longest: The longest call that settled or tended, in milliseconds.
        statements: What was sent to PostgreSQL for each of 1,000 edges, in those calls; None on SQLite.
        rate: Jobs per second by a worker, from its start until all have run.
        cpu: Processor time of that worker's process in microseconds per job.
    """

    edges: int
    inserted: float
    resolved: float
    longest: float
    statements: float | None
    rate: float
    cpu: float


class Statements:
    """Counts what is sent to PostgreSQL."""

    def __init__(self) -> None:
        self.count = 0

    async def connect(self, url: str) -> Any:
        """Open a connection whose statements count."""
        import asyncpg  # lazy: on SQLite it isn't needed

        connection = await asyncpg.connect(url)
        connection.add_query_logger(self._add)
        return connection

    def _add(self, _: object) -> None:
        self.count += 1


class Stopwatch:
    """The calls that settle and tend: how long they took together, and the longest of them."""

    def __init__(self, statements: Statements | None) -> None:
        self.seconds = self.longest = 0.0
        self.sent = 0
        self._statements = statements

    @asynccontextmanager
    async def timed(self) -> AsyncGenerator[None]:
        """Measure the block."""
        before = 0 if self._statements is None else self._statements.count
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.seconds += took
        self.longest = max(self.longest, took)
        if self._statements is not None:
            await asyncio.sleep(0)  # the driver tells its loggers in the event loop's next round
            self.sent += self._statements.count - before


async def insert(store: Store, jobs: Sequence[NewJob]) -> float:
    """Store a shape, in order: jobs per second."""
    began = time.perf_counter()
    for start in range(0, len(jobs), CHUNK):
        await store.insert(jobs[start : start + CHUNK])
    return len(jobs) / (time.perf_counter() - began)


async def resolve(store: Store, jobs: Sequence[NewJob], watch: Stopwatch) -> None:
    """Work off the jobs without running them; what ends jobs for which nobody waits isn't measured."""
    waited_for = {blocker.chain_id for job in jobs for blocker in job.blockers}
    lease = await store.open_lease("benchmark", 3600.0)
    left = len(jobs)
    while left:
        claimed = await store.claim(lease, [node.name], BATCH)
        more = not claimed  # what nobody was told of yet is found by tending
        if claimed:
            async with watch.timed() if any(job.id in waited_for for job in claimed) else nullcontext():
                results = await store.settle([_completed(job, lease) for job in claimed])
            assert all(result.lost is None and not result.busy for result in results), results
            more = any(result.more for result in results)
            left -= len(claimed)
        told = len(claimed)
        while more:
            async with watch.timed():
                tended = await store.tend(PORTION)
            more, told = tended.more, told + tended.resolved
        assert told, f"{left} jobs wait, and nobody tells them"
    await store.release(lease, [], end=True)


def _completed(job: ClaimedJob, lease: int) -> Settlement:
    return Settlement(id=job.id, lease_id=lease, claims=job.claims, kind=SettlementKind.COMPLETED, output=b"null")


async def measure(url: str, shape: str, count: int) -> Round:
    """Measure one shape, twice: by the store, and by a worker."""
    global _ran, _wanted, _all_ran
    await prepared(url)
    statements = Statements() if url.startswith("postgres") else None
    async with Client(url) if statements is None else Client(url, connect=partial(statements.connect, url)) as client:
        jobs = SHAPES[shape](count)
        edges = sum(len(job.blockers) for job in jobs)
        inserted = await insert(client.store, jobs)
        watch = Stopwatch(statements)
        await resolve(client.store, jobs, watch)

    async with Client(url) as client:
        again = SHAPES[shape](count)
        await insert(client.store, again)
        _ran, _wanted, _all_ran = 0, len(again), asyncio.Event()
        began, cpu = time.perf_counter(), time.process_time()
        async with Worker(client, registry, concurrency=BATCH):
            await _all_ran.wait()
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Round(
        edges=edges,
        inserted=inserted,
        resolved=edges / watch.seconds,
        longest=1e3 * watch.longest,
        statements=None if statements is None else 1e3 * watch.sent / edges,
        rate=len(again) / elapsed,
        cpu=1e6 * cpu / len(again),
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dependents", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file for each round")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--jobs", type=int, default=10_000, help="dependents, blockers, or sides of diamonds")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        databases: Databases | None = None
        if arguments.postgres:
            from benchmarks.server import postgres  # lazy: it needs what the tests need

            databases = stack.enter_context(postgres())
        print("shape           edges  stored/s  resolved/s  longest ms  statements/1000  jobs/s (CPU µs)")
        for shape in arguments.shapes:
            rounds: list[Round] = []
            for _ in range(arguments.rounds):
                with database(arguments.url, databases) as url:
                    rounds.append(asyncio.run(measure(url, shape, arguments.jobs)))
            _show(shape, rounds)


def _show(shape: str, rounds: Sequence[Round]) -> None:
    def median(field: str) -> float:
        return float(statistics.median(getattr(each, field) for each in rounds))

    statements = "-" if rounds[0].statements is None else f"{median('statements'):.1f}"
    worker = f"{median('rate'):,.0f} ({median('cpu'):.0f})"
    longest = max(each.longest for each in rounds)
    figures = f"{median('inserted'):8,.0f}  {median('resolved'):10,.0f}  {longest:10.1f}  {statements:>15}  {worker}"
    print(f"{shape:13}  {rounds[0].edges:6}  {figures}", flush=True)


if __name__ == "__main__":
    main()
