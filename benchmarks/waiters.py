"""What a process costs that waits for many results: `python -m benchmarks.waiters [--postgres] [--waiters N] [--steps N]`.

A worker in a process of its own works off the jobs, chains of so many steps, while this process waits for all of their ends.
Look-ups are statements of up to 500 ids each; nothing else is asked while one waits.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from aioqueue import Call, Client, Registry, done
from benchmarks.drain import database
from benchmarks.server import prepared

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from uuid import UUID

    from aioqueue import Job
    from benchmarks.server import Databases

registry = Registry(prefix="benchmark.")


@registry.job
async def step(number: int, left: int) -> Call[int]:
    """Go on with the next step, until none is left."""
    return done(number) if left <= 1 else step(number, left - 1)


class Lookups:
    """The look-ups of a client: how many ids each had, and how many seconds it took."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.seconds: list[float] = []

    @contextmanager
    def counted(self, client: Client) -> Generator[None]:
        """Count those of the block."""
        look = client.store.fetch_ends

        async def fetch_ends(ids: Sequence[UUID]) -> Sequence[Job | None]:
            began = time.perf_counter()
            found = await look(ids)
            self.ids.append(len(ids))
            self.seconds.append(time.perf_counter() - began)
            return found

        with mock.patch.object(client.store, "fetch_ends", fetch_ends):
            yield


async def measure(url: str, waiters: int, steps: int, quiet: float) -> None:
    """Wait while nothing happens, and then while a worker works the chains off, and print what that took."""
    await prepared(url)
    async with Client(url) as client:
        delay = 3600.0
        handles = await client.enqueue_many([step(number, steps).options(delay=delay) for number in range(waiters)])
        waiting = [asyncio.create_task(handle.result()) for handle in handles]
        await asyncio.sleep(1)  # the first look-ups are over
        with lookups(client, f"{waiters} wait, and nothing happens", quiet) as counted, counted.counted(client):
            await asyncio.sleep(quiet)
        command = [sys.executable, "-m", "aioqueue.worker", "benchmarks.waiters:registry", "--log-level", "warning"]
        worker = subprocess.Popen([*command, "--url", url, "--concurrency", "100"])
        try:
            with lookups(client, f"{waiters} wait, chains of {steps}") as counted, counted.counted(client):
                await client.run_now(*handles)
                assert await asyncio.gather(*waiting) == list(range(waiters))
        finally:
            worker.terminate()
            worker.wait()


@contextmanager
def lookups(client: Client, what: str, at_least: float = 0.0) -> Generator[Lookups]:
    """Count the look-ups of the block, and print them."""
    counted, began, cpu = Lookups(), time.perf_counter(), time.process_time()
    yield counted
    took = max(time.perf_counter() - began, at_least)
    cpu = time.process_time() - cpu
    each = f"{statistics.median(counted.seconds) * 1000:.1f} ms, {statistics.mean(counted.ids):.0f} ids" if counted.ids else "-"
    rate = len(counted.ids) / took
    kind = client.store.description.partition(":")[0]
    print(f"{kind}: {what}: {took:.1f} s, {rate:.1f} statements/s (each {each}), processor {cpu / took:.1%}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds in which nothing happens")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        databases: Databases | None = None
        if arguments.postgres:
            from benchmarks.server import postgres  # lazy: it needs what the tests need

            databases = stack.enter_context(postgres())
        for steps in arguments.steps:
            with database(arguments.url, databases) as url:
                asyncio.run(measure(url, arguments.waiters, steps, arguments.quiet))


if __name__ == "__main__":
    main()
