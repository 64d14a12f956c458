"""What an old open transaction costs: `python -m benchmarks.horizon [--server URL] [--minutes M]`. On PostgreSQL.

While it's open, nothing that has become invisible since it began can be vacuumed. Beside it so many jobs a second are
enqueued and run, each for a while, with ten calls of `progress` a second, and their leases are renewed often. Printed is how
long claims take in the first and in the last tenth of the time, how many dead rows there are in the end, and how often rows
were written: a job's row is written once by its claim, and never by its progress.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import asyncpg

from aioqueue import Client, Registry, Worker, current_attempt
from benchmarks.server import add_options, postgres, prepared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALLS_PER_SECOND = 10
WRITTEN = """SELECT relname AS name, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_hot_upd AS hot, n_tup_del AS deleted,
    n_dead_tup AS dead, pg_relation_size(relid) / 1048576 AS megabytes
FROM pg_stat_user_tables
WHERE schemaname = 'aioqueue' AND relname IN ('job', 'progress', 'lease', 'archive') ORDER BY relname"""

registry = Registry(prefix="benchmark.")
_ran = 0
_waits: list[tuple[float, float]] = []


@registry.job
async def work(seconds: float, enqueued: float) -> None:
    """Take so long, and tell how far it is."""
    global _ran
    _waits.append((time.monotonic(), time.monotonic() - enqueued))  # the same process enqueues
    calls = max(round(seconds * CALLS_PER_SECOND), 1)
    for number in range(1, calls + 1):
        await asyncio.sleep(seconds / calls)
        current_attempt().progress(100 * number / calls)
    _ran += 1


@asynccontextmanager
async def held(url: str) -> AsyncIterator[None]:
    """Keep a transaction open that has seen what there is."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("SELECT count(*) FROM aioqueue.job")
            yield
    finally:
        await connection.close()


async def feed(client: Client, rate: float, seconds: float, until: float) -> int:
    """Enqueue jobs at this rate. Returns how many."""
    began, sent = time.monotonic(), 0
    while (now := time.monotonic()) < until:
        if missing := int(rate * (now - began)) - sent:
            await client.enqueue_many([work(seconds, now) for _ in range(missing)])
            sent += missing
        await asyncio.sleep(0.05)
    return sent


def ends_of(samples: list[tuple[float, float]]) -> str:
    """What they were in the first and in the last tenth of the time."""
    first, last = samples[0][0], samples[-1][0]
    tenth = (last - first) / 10
    parts = (
        [each for at, each in samples if at <= first + tenth],
        [each for at, each in samples if at >= last - tenth],
    )
    return ", then ".join(f"{1e3 * statistics.median(each):.1f} ms (longest {1e3 * max(each):.1f})" for each in parts)


async def measure(url: str, arguments: argparse.Namespace) -> None:
    """Run jobs beside a transaction, and print what that took."""
    await prepared(url)
    claims: list[tuple[float, float]] = []
    async with nullcontext() if arguments.without else held(url):
        async with Client(url) as client:
            claim = client.store.claim

            async def timed(*given: Any, **named: Any) -> Any:
                began = time.monotonic()
                claimed = await claim(*given, **named)
                if claimed:
                    claims.append((began, time.monotonic() - began))
                return claimed

            with mock.patch.object(client.store, "claim", timed):
                async with Worker(client, registry, concurrency=arguments.concurrency, lease=arguments.lease):
                    end = time.monotonic() + 60 * arguments.minutes
                    sent = await feed(client, arguments.rate, arguments.seconds, end)
                    while _ran < sent and time.monotonic() < end + 60:
                        await asyncio.sleep(0.05)
        # Connections that have been closed have reported all that they have written.
        connection = await asyncpg.connect(url)
        try:
            await asyncio.sleep(0.5)
            rows = await connection.fetch(WRITTEN)
        finally:
            await connection.close()
    print(f"jobs          {_ran:,} of {sent:,} in {arguments.minutes:g} minutes, load {os.getloadavg()[0]:.1f}")
    print(f"claim         {ends_of(claims)}")
    print(f"until begun   {ends_of(_waits)}")
    for row in rows:
        name, inserted, updated, hot, deleted, dead, size = row
        print(
            f"{name:12}  {inserted:,} inserted, {updated:,} updated ({hot:,} in place), {deleted:,} deleted; "
            f"{dead:,} dead, {size} MB"
        )
    of_jobs = {row["name"]: row for row in rows}["job"]["updated"]
    print(f"each job's row was updated {of_jobs / max(sent, 1):.2f} times")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.horizon", description=(__doc__ or "").splitlines()[0])
    add_options(parser, Path)
    parser.add_argument("--postgres", action="store_true", help="the only one there is")
    parser.add_argument("--without", action="store_true", help="no transaction is open: what to compare with")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=300.0, help="jobs enqueued a second")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each takes")
    parser.add_argument("--concurrency", type=int, default=400)
    parser.add_argument("--lease", type=float, default=6.0, help="seconds; it's renewed three times as often")
    arguments = parser.parse_args()
    with postgres(arguments.server, arguments.binaries) as databases, databases.fresh() as url:
        asyncio.run(measure(url, arguments))


if __name__ == "__main__":
    main()
