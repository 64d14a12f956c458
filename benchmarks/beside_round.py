"""One round of `benchmarks.beside_pgqueuer`, in a process of its own: `beside_round.py NAME URL JOBS CONCURRENCY`.

It runs in the environment that has both libraries, on the same interpreter, the same driver and the same event loop
(uvloop). Both get the same work: jobs whose payload is one small number are enqueued beforehand; one worker works them
off; the time runs from the first call of the handler until the last job has left the table of live jobs.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import resource
import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

import aioqueue
from aioqueue import Client, Registry, Worker
from aioqueue.postgres import make_store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CHUNK = 1_000
PATIENCE = 120.0

registry = Registry(prefix="benchmark.")


class Counter:
    """Counts calls of a handler.

    Arguments:
        wanted: When it's done.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.calls = 0
        self.began = 0.0
        self.done = asyncio.Event()

    def count(self) -> None:
        """One more."""
        if not self.calls:
            self.began = time.perf_counter()
        self.calls += 1
        if self.calls == self.wanted:
            self.done.set()


counter: Counter


@registry.job
async def noop(i: int) -> None:  # noqa: ARG001 - a small argument, as jobs have
    """Do nothing but count."""
    counter.count()


class Ours:
    """aioqueue, with its defaults but for the concurrency."""

    table = "aioqueue.job"

    def __init__(self, url: str) -> None:
        self.url = url

    async def enqueue(self, jobs: int) -> None:
        """Store the jobs."""
        await make_store(self.url).migrate()
        async with Client(self.url) as client:
            for start in range(0, jobs, CHUNK):
                await client.enqueue_many([noop(i) for i in range(start, min(start + CHUNK, jobs))])

    async def work(self, concurrency: int) -> None:
        """Work them off, until cancelled."""
        async with Client(self.url) as client:
            await Worker(client, registry, concurrency=concurrency).run()


class Theirs:
    """pgqueuer, with a batch as large as the concurrency: its fastest setting at that concurrency."""

    table = "pgqueuer"

    def __init__(self, url: str) -> None:
        self.url = url
        # By name: it's no dependency of this project, in no environment but the one that this is run in.
        self._db, self._queries, self._qm = (
            importlib.import_module(f"pgqueuer.{module}") for module in ("db", "queries", "qm")
        )

    async def _connected(self) -> Any:
        return self._queries.Queries(self._db.AsyncpgDriver(await asyncpg.connect(self.url)))

    async def enqueue(self, jobs: int) -> None:
        """Store the jobs."""
        queries = await self._connected()
        await queries.install()
        for start in range(0, jobs, CHUNK):
            payloads = [json.dumps({"i": i}).encode() for i in range(start, min(start + CHUNK, jobs))]
            await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

    async def work(self, concurrency: int) -> None:
        """Work them off, until cancelled."""
        manager = self._qm.QueueManager(await self._connected())

        async def handler(job: Any) -> None:
            json.loads(job.payload)
            counter.count()

        manager.entrypoint("noop", accepts_context=False)(handler)
        await manager.run(dequeue_timeout=timedelta(seconds=30), batch_size=concurrency)


CONTENDERS: dict[str, Callable[[str], Ours | Theirs]] = {"aioqueue": Ours, "pgqueuer": Theirs}


async def measure(name: str, url: str, jobs: int, concurrency: int) -> dict[str, float]:
    """Enqueue the jobs and work them off in this process.

    Returns:
        Jobs per second, and microseconds of this process's processor time per job.
    """
    global counter
    counter = Counter(jobs)
    contender = CONTENDERS[name](url)
    await contender.enqueue(jobs)
    watching = await asyncpg.connect(url)
    await watching.execute("VACUUM ANALYZE")
    await watching.execute("CHECKPOINT")
    cpu = time.process_time()
    working = asyncio.create_task(contender.work(concurrency))
    try:
        await _first(working, counter.done.wait())
        while await watching.fetchval(f"SELECT count(*) FROM {contender.table}"):
            await asyncio.sleep(0.005)
        elapsed, cpu = time.perf_counter() - counter.began, time.process_time() - cpu
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([working], timeout=5)
        await watching.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rate": jobs / elapsed, "cpu": 1e6 * cpu / jobs, "memory": memory}


async def _first(working: asyncio.Task[None], done: Coroutine[object, object, object]) -> None:
    """Wait until the jobs have run, or the worker has failed."""
    waiting = asyncio.create_task(done)
    tasks: list[asyncio.Task[Any]] = [working, waiting]
    await asyncio.wait(tasks, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        working.result()
    if not waiting.done():
        waiting.cancel()
        raise TimeoutError(f"{counter.calls} of {counter.wanted} jobs ran within {PATIENCE:g} s")


def main() -> None:
    """Read the command line."""
    name, url, jobs, concurrency = sys.argv[1:]
    uvloop = importlib.import_module("uvloop")
    result = uvloop.run(measure(name, url, int(jobs), int(concurrency)))
    print(json.dumps({**result, "version": getattr(aioqueue, "__version__", "")}), flush=True)


if __name__ == "__main__":
    main()
