"""One process of a load: a worker, and callers that enqueue with a few keys in every way. It fails where one waits too long."""

from __future__ import annotations

import asyncio
import random
import sys
import time

from aioqueue import Call, Client, DuplicateJob, Registry, StoreContended, Unique, Worker

__all__ = ["main"]

KEYS = 30
LONGEST_SECONDS = 10.0
"""What one call may take on a busy machine: far less than if it had waited for a deadlock to be found, again and again."""

WAYS = (
    Unique(),
    Unique(until="started"),
    Unique(window=0.2),
    Unique(on_conflict="raise"),
    Unique(on_conflict="replace"),
    Unique(on_conflict="replace", window=0.2),
    Unique(on_conflict="replace", until="started"),
)

registry = Registry()


@registry.job
async def work(number: int) -> None:
    await asyncio.sleep(0)


@registry.job
async def parent(child: None) -> Call[None]:
    return work(1)


def a_call(chance: random.Random, types: str = "wp") -> Call[None]:
    call = work(chance.randrange(100)) if chance.choice(types) == "w" else parent(work(2).output)
    return call.options(key=f"k{chance.randrange(KEYS)}", unique=chance.choice(WAYS))


async def main(url: str, seconds: float, seed: int) -> None:
    """Enqueue for so long.

    Raises:
        AssertionError: Something took too long.
    """
    until, slowest = time.monotonic() + seconds, 0.0

    async def produce(client: Client, number: int) -> None:
        nonlocal slowest
        chance = random.Random(100 * seed + number)
        while (began := time.monotonic()) < until:
            calls = [a_call(chance) for _ in range(chance.choice((1, 1, 2, 8)))]
            try:
                if len(calls) == 1:
                    await client.enqueue(calls[0])
                elif chance.random() < 0.5:
                    await client.enqueue_many(calls)
                else:
                    async with client.transaction() as tx:
                        await tx.enqueue_many(calls)
            except (DuplicateJob, StoreContended):
                pass
            slowest = max(slowest, time.monotonic() - began)

    async with Client(url) as client, Worker(client, registry, poll_interval=0.05), asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(produce(client, number))
    assert slowest < LONGEST_SECONDS, slowest


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
