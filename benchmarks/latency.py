"""From one process's enqueue to another's handler: `python -m benchmarks.latency [--url URL] [--jobs N]`."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time

from aioqueue import Client, Registry

registry = Registry(prefix="benchmark.")


@registry.job
async def arrive(sent: int) -> int:
    """How long it has been on its way, in nanoseconds: the monotonic clock is the machine's."""
    return time.monotonic_ns() - sent


async def measure(url: str, jobs: int) -> list[float]:
    """Enqueue one job after the other, at odd times, and wait for each.

    Returns:
        Milliseconds from the call of `enqueue` to the handler, sorted.
    """
    waits: list[float] = []
    async with Client(url) as client:
        await (await client.enqueue(arrive(time.monotonic_ns()))).result(timeout=60)
        for _ in range(jobs):
            await asyncio.sleep(random.uniform(0.01, 0.05))
            handle = await client.enqueue(arrive(time.monotonic_ns()))
            waits.append(await handle.result(timeout=60) / 1e6)
    return sorted(waits)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default a new SQLite file")
    parser.add_argument("--jobs", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aioqueue-latency-") as folder:
        url = arguments.url or f"sqlite:///{folder}/latency.db"
        command = [sys.executable, "-m", "aioqueue.worker", "benchmarks.latency:registry", "--log-level", "warning"]
        worker = subprocess.Popen([*command, "--url", url])
        try:
            waits = asyncio.run(measure(url, arguments.jobs))
        finally:
            worker.terminate()
            worker.wait()
    p99 = waits[min(len(waits) - 1, round(0.99 * len(waits)))]
    print(f"{len(waits)} jobs: median {statistics.median(waits):.1f} ms, p99 {p99:.1f} ms, longest {waits[-1]:.1f} ms")


if __name__ == "__main__":
    main()
