"""What removing old jobs costs a worker: `python -m benchmarks.retention [--postgres] [--rows N] [--statement-timeout 2s]`.

Tables are filled with finished jobs: completed, failed and cancelled ones, chains of two steps, some with phases, progress,
logs and deliveries; beside them unfinished ones, a hundredth as many: ready, scheduled, blocked, running, and steps of chains
that go on. A worker works off a steady stream of jobs, alone, then while it removes what is older than `--age`, and alone
once more. What says that it's kept longer stays, and so does each chain that goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from aioqueue import Client, Registry, Worker
from benchmarks import listing, listing_sqlite
from benchmarks.retention_tables import PostgresTables, SqliteTables, Tables
from benchmarks.server import add_options, postgres, prepared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

BATCH, AHEAD = 250, 1_000
"""Jobs that are enqueued at once, and that wait at least."""

registry = Registry(prefix="benchmark.")
_ran = 0


@registry.job
async def noop(number: int) -> None:  # noqa: ARG001 - a small argument, as jobs have
    """Do nothing but count."""
    global _ran
    _ran += 1


class Watched:
    """What retention asks of the store: how long each call took, how many chains went, and whether it has caught up."""

    def __init__(self) -> None:
        self.removed = 0
        self.seconds: dict[str, list[float]] = {"find_old": [], "purge": [], "take_duty": []}
        self.caught_up = asyncio.Event()

    @contextmanager
    def watching(self, store: Any) -> Generator[None]:
        """Watch the calls of the block."""
        with ExitStack() as stack:
            for name in self.seconds:
                stack.enter_context(mock.patch.object(store, name, self._timed(name, getattr(store, name))))
            yield

    def _timed(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def timed(*given: Any) -> Any:
            began = time.perf_counter()
            try:
                result = await call(*given)
            finally:
                self.seconds[name].append(time.perf_counter() - began)
            if name == "purge":
                self.removed += len(result)
            elif name == "find_old" and result.cursor is None:
                self.caught_up.set()
            return result

        return timed


@asynccontextmanager
async def stream(client: Client, rate: float) -> AsyncIterator[None]:
    """Enqueue jobs during the block, at this rate, or else so that some always wait."""

    async def feed() -> None:
        began, first, sent = time.perf_counter(), _ran, 0
        while True:
            while sent - (rate * (time.perf_counter() - began) if rate else _ran - first + AHEAD) > 0:
                await asyncio.sleep(0.005)
            batch = min(BATCH, max(int(rate / 20), 1)) if rate else BATCH
            await client.enqueue_many([noop(sent + number) for number in range(batch)])
            sent += batch

    task = asyncio.create_task(feed())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def sampled(ended: Callable[[], bool]) -> list[float]:
    """Jobs per second, one sample for each second until it has ended; without the first, in which it begins."""
    samples: list[float] = []
    while not samples or not ended():
        began, before = time.perf_counter(), _ran
        await asyncio.sleep(1.0)
        samples.append((_ran - before) / (time.perf_counter() - began))
    return samples[1:] or samples


async def alone(client: Client, arguments: argparse.Namespace) -> list[float]:
    """Work jobs off, and remove nothing."""
    end = time.perf_counter() + arguments.seconds
    async with (
        Worker(client, registry, concurrency=arguments.concurrency, retention_interval=0),
        stream(client, arguments.rate),
    ):
        return await sampled(lambda: time.perf_counter() > end)


async def beside(client: Client, watched: Watched, arguments: argparse.Namespace) -> tuple[list[float], float]:
    """Work jobs off, and remove old ones, until none is left. Returns the samples, and how many seconds that took."""
    ages = {"retention_completed": arguments.age, "retention_failed": arguments.age, "retention_interval": 1.0}
    began = time.perf_counter()

    def ended() -> bool:
        return watched.caught_up.is_set() or time.perf_counter() > began + arguments.longest

    with watched.watching(client.store):
        async with Worker(client, registry, concurrency=arguments.concurrency, **ages), stream(client, arguments.rate):
            samples = await sampled(ended)
            return samples, time.perf_counter() - began


def told(name: str, samples: list[float]) -> None:
    """Print one line of rates."""
    low = sorted(samples)[len(samples) // 10]
    print(f"{name:8}  {statistics.median(samples):8,.0f} jobs/s (a tenth of the seconds below {low:,.0f})", flush=True)


async def run(url: str, tables: Tables, arguments: argparse.Namespace) -> None:
    """Measure."""
    await tables.fill_beside()
    before = await tables.sizes()
    watched = Watched()
    async with Client(url) as client:
        first = await alone(client, arguments)
        told("alone", first)
        during, seconds = await beside(client, watched, arguments)
        told("beside", during)
        last = await alone(client, arguments)
        told("alone", last)
    ratio = statistics.median(during) / statistics.median(first + last)
    print(f"ratio     {ratio:8.2f}")
    caught_up = "all that was old enough" if watched.caught_up.is_set() else "not all"
    print(f"removed   {watched.removed:8,} chains in {seconds:,.0f} s, {watched.removed / seconds:,.0f} a second: {caught_up}")
    for name, taken in watched.seconds.items():
        if taken:
            print(
                f"{name:10}{1e3 * statistics.median(taken):8.1f} ms, the longest of {len(taken):,} {1e3 * max(taken):,.1f} ms"
            )
    for name, size in (await tables.sizes()).items():
        print(f"size      {name}: {before[name]:,} MB before, {size:,} MB after")
    for name, count in (await tables.left()).items():
        print(f"left      {count:8,} {name}")


async def on_postgres(url: str, arguments: argparse.Namespace) -> None:
    """Fill the tables, and measure."""
    await prepared(url)
    await listing.fill(url, live=arguments.rows // 100, archived=arguments.rows)
    tables = PostgresTables(url)
    await tables.limit_statements(arguments.statement_timeout)
    await run(url, tables, arguments)


async def on_sqlite(path: Path, arguments: argparse.Namespace) -> None:
    """The same in a file."""
    url = f"sqlite:///{path}"
    async with Client(url):
        pass
    listing_sqlite.fill(path, start=listing.FIRST_MILLISECOND, live=arguments.rows // 100, archived=arguments.rows)
    await run(url, SqliteTables(path), arguments)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retention", description=(__doc__ or "").splitlines()[0])
    add_options(parser, Path)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--sqlite", action="store_true", help="a file in a temporary folder, which is the default")
    parser.add_argument("--rows", type=int, default=2_000_000, help="finished jobs")
    parser.add_argument("--age", type=float, default=60.0, help="seconds that jobs are kept")
    parser.add_argument("--statement-timeout", default="2s", metavar="TIME", help="PostgreSQL's, for all connections")
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.0, help="jobs enqueued a second; by default as many as are worked off")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the worker is alone, before and after")
    parser.add_argument("--longest", type=float, default=1_800.0, help="seconds after which it's given up")
    arguments = parser.parse_args()
    if arguments.postgres or arguments.server:
        with postgres(arguments.server, arguments.binaries) as databases, databases.fresh() as url:
            asyncio.run(on_postgres(url, arguments))
        return
    with tempfile.TemporaryDirectory(prefix="aioqueue-retention-") as folder:
        asyncio.run(on_sqlite(Path(folder) / "jobs.db", arguments))


if __name__ == "__main__":
    main()
