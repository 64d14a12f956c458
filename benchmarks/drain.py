"""How fast one worker works off no-op jobs: `python -m benchmarks.drain [--postgres] [--jobs N] [--concurrency 1 10 100]`.

Each round is a process of its own, on a database of its own where `--url` doesn't name one: a new SQLite file, or, with
`--postgres`, a new database on a server that is started for it, as durable as in production (`benchmarks.server`).
`--against COMMIT` measures another commit, too: the rounds of the two alternate, so that what else the machine does
hits both, and the ratios of their medians are printed. `--tracing` does the same with spans: made by an SDK, and thrown away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from aioqueue import Client, Registry, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.server import Databases

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 5_000

registry = Registry(prefix="benchmark.")
_ran = 0
_wanted = 0
_all_ran: asyncio.Event | None = None


@registry.job
async def noop(number: int) -> None:  # noqa: ARG001 - a small argument, as jobs have
    """Do nothing but count."""
    global _ran
    _ran += 1
    if _ran >= _wanted and _all_ran is not None:
        _all_ran.set()


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round measured.

    Attributes:
        rate: Jobs worked off per second, the settling of the last included.
        cpu: Processor time of the worker's process, all threads, in microseconds per job.
        enqueued: Jobs enqueued per second.
        memory: The peak of the process's resident memory, in MB.
    """

    rate: float
    cpu: float
    enqueued: float
    memory: float


async def measure(url: str, jobs: int, concurrency: int) -> Round:
    """Enqueue the jobs, then work them off in this process."""
    global _wanted, _all_ran
    _wanted, _all_ran = jobs, asyncio.Event()
    if url.startswith("postgres"):
        from aioqueue.postgres import make_store  # lazy: a worker on SQLite doesn't have it in its memory

        await make_store(url).migrate()
    async with Client(url) as client:
        began = time.perf_counter()
        for start in range(0, jobs, CHUNK):
            await client.enqueue_many([noop(number) for number in range(start, min(start + CHUNK, jobs))])
        enqueued = jobs / (time.perf_counter() - began)
        began, cpu = time.perf_counter(), time.process_time()
        async with Worker(client, registry, concurrency=concurrency):
            await _all_ran.wait()
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Round(rate=jobs / elapsed, cpu=1e6 * cpu / jobs, enqueued=enqueued, memory=memory)


@contextmanager
def database(url: str | None, databases: Databases | None) -> Iterator[str]:
    """The database of one round: the given one, or a new one."""
    with ExitStack() as stack:
        if url is None and databases is not None:
            url = stack.enter_context(databases.fresh())
        if url is None:
            url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory(prefix='aioqueue-drain-'))}/drain.db"
        yield url


def take_spans() -> None:
    """Configure an SDK as a service does, with an exporter that throws spans away."""
    from opentelemetry import trace  # lazy: other rounds don't have it in their memory
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:  # noqa: ARG002 - the signature of the base
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=100_000))
    trace.set_tracer_provider(provider)


def in_process(tree: Path, url: str | None, databases: Databases | None, jobs: int, concurrency: int, how: str) -> Round:
    """Run one round in a new process, on the code of a tree."""
    with database(url, databases) as own:
        completed = subprocess.run(
            [sys.executable, __file__, "--round", own, str(jobs), str(concurrency), how],
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE,
            check=True,
        )
    return Round(**json.loads(completed.stdout))


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Another commit, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="aioqueue-against-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare(
    trees: dict[str, tuple[Path, str]],
    databases: Databases | None,
    arguments: argparse.Namespace,
    one_round: Callable[[Path, str | None, Databases | None, int, int, str], Round] = in_process,
) -> None:
    """Measure each tree at each concurrency and print a table, with the ratios of each to the next."""
    width = max(map(len, trees))
    print(f"{'code':{width}}  slots  jobs/s (lowest to highest)       CPU µs/job  enqueued/s  peak MB")
    for concurrency in arguments.concurrency:
        rounds: dict[str, list[Round]] = {name: [] for name in trees}
        for _ in range(arguments.rounds):
            for name, (tree, how) in trees.items():
                rounds[name].append(one_round(tree, arguments.url, databases, arguments.jobs, concurrency, how))
        for name, measured in rounds.items():
            rates = sorted(each.rate for each in measured)
            spread = f"{statistics.median(rates):8,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"
            cpu, enqueued = (statistics.median(getattr(each, field) for each in measured) for field in ("cpu", "enqueued"))
            memory = max(each.memory for each in measured)
            print(f"{name:{width}}  {concurrency:5}  {spread:32}  {cpu:10.1f}  {enqueued:10,.0f}  {memory:7.1f}", flush=True)
        for here, there in pairwise(rounds.values()):
            rate = statistics.median(each.rate for each in here) / statistics.median(each.rate for each in there)
            cpu = statistics.median(each.cpu for each in here) / statistics.median(each.cpu for each in there)
            print(f"{'ratio':{width}}  {concurrency:5}  {rate:8.2f}{'':26}{cpu:10.2f}", flush=True)


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["--round"]:
        url, jobs, concurrency, how = sys.argv[2:]
        if how == "tracing":
            take_spans()
        print(json.dumps(vars(asyncio.run(measure(url, int(jobs), int(concurrency))))))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drain", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file for each round")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument("--tracing", action="store_true", help="measure it with spans, too (needs opentelemetry-sdk)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        trees = {"here, with spans": (ROOT, "tracing")} if arguments.tracing else {}
        trees["here"] = ROOT, ""
        databases: Databases | None = None
        if arguments.against is not None:
            trees[arguments.against] = stack.enter_context(worktree(arguments.against)), ""
        if arguments.postgres:
            from benchmarks.server import postgres  # lazy: it needs what the tests need

            databases = stack.enter_context(postgres())
        compare(trees, databases, arguments)


if __name__ == "__main__":
    main()
