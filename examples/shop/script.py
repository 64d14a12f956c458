"""A plain script: `python -m examples.shop.script pear plum quince` places orders, ships them, and prints the parcels.

Started without any items, it ships what is left. SIGTERM lets the running jobs finish within the grace, Ctrl-C gives them
back at once; whatever isn't shipped then is kept.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aioqueue import AioqueueError, Client, Worker
from examples.shop.database import DATABASE_URL, Order, open_database
from examples.shop.jobs import database, registry, ship


async def run(items: list[str]) -> None:
    """Place an order for each item, work until they're shipped, and print the parcels."""
    task = asyncio.current_task()
    assert task is not None
    # The worker installs no handlers: signals are the program's own. Leaving its block, for whatever reason, stops it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with open_database() as sessions, Client(DATABASE_URL) as client:
        worker = Worker(client, registry, resources={database: sessions})
        if not items:
            print(f"{(await worker.run_once()).completed} shipped")
            return
        async with sessions.begin() as session:
            orders = [Order(item=item, quantity=1) for item in items]
            session.add_all(orders)
            await session.flush()
            jobs = await client.enqueue_many([ship(order.id) for order in orders], tx=session)
        async with worker:
            for order, job in zip(orders, jobs, strict=True):
                print(f"{order.item}: {await job.result()}")


def main() -> int:
    """Read the command line."""
    try:
        asyncio.run(run(sys.argv[1:]))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: what isn't shipped is kept", file=sys.stderr)
        return 130
    except AioqueueError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
