"""Limits, rates, sequences and fairness: a shop that spares its payment provider, and books in order.

    python -m examples.limits [--url URL] [--workers N]

Several processes work at once. What's printed is counted from what the handlers have seen in all of them: each writes into a
folder that they share when it begins, and takes that away when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from aioqueue import Client, Fail, Limit, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

registry = Registry(prefix="limited.")

STRIPE_PLACES = 3
"""Calls that the payment provider takes at once, from all types of jobs."""
BOOKINGS = 8
CUSTOMERS = ("acme", "bits", "corp")


@contextmanager
def seen(folder: str, group: str, most: int) -> Iterator[None]:
    """Count who is inside at once, in all processes; the job fails for good if they're more than may be."""
    inside = Path(folder) / group
    inside.mkdir(exist_ok=True)
    mine = inside / str(uuid4())
    mine.touch()
    try:
        number = len(list(inside.iterdir()))
        if number > most:
            raise Fail(f"{number} run at {group}, and {most} may")
        yield
    finally:
        mine.unlink()


def note(folder: str, name: str, line: str) -> None:
    """Add a line to a file; whole lines of several processes don't mix."""
    with (Path(folder) / name).open("a") as file:
        file.write(f"{line}\n")


# -- a limit that two types share, and one for each customer --------------------------------------------------------------


@registry.job(limit="stripe")
async def charge(folder: str, order: int) -> None:
    """Call the payment provider."""
    with seen(folder, "stripe", STRIPE_PLACES):
        note(folder, "paid", f"charge {order}")
        await asyncio.sleep(0.01)


@registry.job(limit="stripe")
async def refund(folder: str, order: int) -> None:
    """Call it for something else: the places are the same."""
    with seen(folder, "stripe", STRIPE_PLACES):
        note(folder, "paid", f"refund {order}")
        await asyncio.sleep(0.01)


@registry.job(limit=Limit(1, by="customer"), fairness_by="customer")
async def resize(folder: str, customer: str, picture: int) -> None:
    """One picture of a customer at once, and the customers in turn."""
    with seen(folder, f"customer {customer}", 1):
        note(folder, "resized", f"{customer} {picture}")
        await asyncio.sleep(0.005)


# -- in order ---------------------------------------------------------------------------------------------------------------


@registry.job(sequence_by="account")
async def book(folder: str, account: int, number: int) -> None:
    """Bookings of one account neither overlap nor overtake each other."""
    with seen(folder, f"account {account}", 1):
        note(folder, f"booked {account}", str(number))
        await asyncio.sleep(0.005)


async def main() -> None:
    """Enqueue all of it, let workers in processes of their own run it, and say what they've seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="sqlite:///limits.db")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        client = Client(given.url)
        await client.migrate()
        async with client:
            await client.limits.put("stripe", STRIPE_PLACES)
            pays = [job_type(folder, order) for order in range(10) for job_type in (charge, refund)]
            pictures = [resize(folder, customer, number) for number in range(5) for customer in CUSTOMERS]
            books = [book(folder, account, number) for number in range(BOOKINGS) for account in (1, 2)]
            handles = await client.enqueue_many([*pays, *pictures, *books])
            workers = [await _start_worker(given.url) for _ in range(given.workers)]
            try:
                await asyncio.gather(*(each.result() for each in handles))
            finally:
                for each in workers:
                    each.terminate()
                for each in workers:
                    await each.wait()
            limits = {each.name: each.running for each in await client.limits.list()}
        for account in (1, 2):
            booked = (Path(folder) / f"booked {account}").read_text().split()
            print(f"account {account}:", " ".join(booked))
        paid, resized = (len(set((Path(folder) / name).read_text().splitlines())) for name in ("paid", "resized"))
        print(f"{paid} payments, never more than {STRIPE_PLACES} at once")
        print(f"{resized} pictures, never two of one customer at once")
        print("running now:", ", ".join(f"{name} {number}" for name, number in sorted(limits.items())))


async def _start_worker(url: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "aioqueue", "worker", "examples.limits:registry", "--url", url, "--concurrency", "8")
    return await asyncio.create_subprocess_exec(*command, "--log-level", "warning", env=os.environ)


if __name__ == "__main__":
    asyncio.run(main())
