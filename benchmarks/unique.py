"""What a unique enqueue costs beside a plain one: `python -m benchmarks.unique [--postgres] [--rounds N]`.

One by one, gathered (so many tasks at once), and in a batch (`enqueue_many`). The kinds alternate within each round, on one
database, and a ratio is the median of the rounds' ratios. Calls are made before the clock starts. Processor time is this
process's, all threads: on SQLite that's all there is, on PostgreSQL the server has its own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from aioqueue import Call, Client, Registry, Unique
from benchmarks.drain import database
from benchmarks.server import prepared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from benchmarks.server import Databases

registry = Registry(prefix="benchmark.")
_numbers = itertools.count()

HOUR = 3600.0


@registry.job
async def noop(number: int) -> None: ...


def plain() -> Call[None]:
    """No key."""
    return noop(next(_numbers))


def keyed() -> Call[None]:
    """A key that is only a label."""
    number = next(_numbers)
    return noop(number).options(key=f"label {number}")


def unique() -> Call[None]:
    """A key of its own: the job is stored."""
    number = next(_numbers)
    return noop(number).options(key=f"own {number}", unique=True)


def held() -> Call[None]:
    """A key that is held: nothing is stored."""
    return noop(next(_numbers)).options(key="held", unique=True)


def windowed() -> Call[None]:
    """A key of its own, with a window."""
    number = next(_numbers)
    return noop(number).options(key=f"window {number}", unique=Unique(window=HOUR))


def replacing() -> Call[None]:
    """The same key each time: the job that waits gets the call's arguments."""
    return noop(next(_numbers)).options(key="replaced", unique=Unique(on_conflict="replace"))


def chosen() -> Call[None]:
    """An id of the caller's choice, which nobody has yet."""
    return noop(next(_numbers)).options(id=uuid4())


KINDS: Mapping[str, Callable[[], Call[None]]] = {
    "plain": plain,
    "key only": keyed,
    "unique": unique,
    "held": held,
    "window": windowed,
    "replace": replacing,
    "chosen id": chosen,
}


async def alone(client: Client, calls: Sequence[Call[None]]) -> None:
    """One after the other."""
    for call in calls:
        await client.enqueue(call)


async def gathered(client: Client, calls: Sequence[Call[None]]) -> None:
    """All at once, each by a task of its own."""
    await asyncio.gather(*(client.enqueue(call) for call in calls))


async def batch(client: Client, calls: Sequence[Call[None]]) -> None:
    """In one transaction."""
    await client.enqueue_many(calls)


WAYS: Mapping[str, Callable[[Client, Sequence[Call[None]]], Awaitable[None]]] = {
    "alone": alone,
    "gathered": gathered,
    "batch": batch,
}


class Taken(NamedTuple):
    """What one job has taken, in microseconds: of time, and of the processor's."""

    time: float
    cpu: float


async def measure(client: Client, way: str, kinds: Sequence[str], jobs: int) -> dict[str, Taken]:
    """One round of one way, by kind."""
    taken: dict[str, Taken] = {}
    for kind in kinds:
        calls = [KINDS[kind]() for _ in range(jobs)]
        began, cpu = time.perf_counter(), time.process_time()
        await WAYS[way](client, calls)
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
        taken[kind] = Taken(1e6 * elapsed / jobs, 1e6 * cpu / jobs)
    return taken


async def run(url: str, arguments: argparse.Namespace) -> None:
    """All rounds of all ways, and print them."""
    await prepared(url)
    sizes = {"alone": arguments.alone, "gathered": arguments.gathered, "batch": arguments.batch}
    kinds: list[str] = ["plain", *(kind for kind in arguments.kinds if kind != "plain")]
    async with Client(url) as client:
        await client.enqueue_many([held(), replacing()])
        rounds: dict[str, list[dict[str, Taken]]] = {way: [] for way in WAYS}
        for number in range(arguments.rounds + 1):
            for way in WAYS:
                # Each round begins with another kind, so that none always comes after the same one.
                turned = kinds[number % len(kinds) :] + kinds[: number % len(kinds)]
                taken = await measure(client, way, turned, sizes[way])
                if number:  # the first one warms up
                    rounds[way].append(taken)
    for way, found in rounds.items():
        for kind in kinds:
            took = statistics.median(each[kind].time for each in found)
            ratios = [each[kind].time / each["plain"].time for each in found]
            cpu = statistics.median(each[kind].cpu for each in found)
            cpu_ratio = statistics.median(each[kind].cpu / each["plain"].cpu for each in found)
            spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
            print(
                f"{way:8}  {sizes[way]:5}  {kind:9}  {took:7.0f}  {statistics.median(ratios):5.2f}  {spread:14}"
                f"  {cpu:6.0f}  {cpu_ratio:5.2f}",
                flush=True,
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unique", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own (needs the extra `test`)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--alone", type=int, default=100, metavar="JOBS")
    parser.add_argument("--gathered", type=int, default=500, metavar="JOBS")
    parser.add_argument("--batch", type=int, default=1_000, metavar="JOBS")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        databases: Databases | None = None
        if arguments.postgres:
            from benchmarks.server import postgres  # lazy: it needs what the tests need

            databases = stack.enter_context(postgres())
        url = stack.enter_context(database(arguments.url, databases))
        print("way        jobs  kind       µs each  beside plain           CPU µs  beside plain")
        asyncio.run(run(url, arguments))


if __name__ == "__main__":
    main()
