"""Chains in four shapes: one step after the other, one of several, the same again and again, and back to an earlier one.

    python -m examples.chains [--url URL]

A handler that is annotated `-> Call[R]` returns the call with which its chain goes on, or `done(value)`, which ends it. Each
step is a job of its own, with attempts of its own: if the process is killed, the chain goes on from the step that it was at.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from datetime import timedelta

from aioqueue import Call, Client, JobHandle, Registry, Worker, done

registry = Registry(prefix="chains.")

PAGES = {"/a": "three short words", "/b": ""}


# -- one step after the other, and one of several -------------------------------------------------------------------------


@dataclass
class Report:
    """What became of a page: the result of the whole chain, whichever way it took."""

    path: str
    words: int
    note: str = ""


@registry.job
async def download(path: str) -> Call[Report]:
    """The first step: it goes on with the next, which gets what this one has found."""
    return measure(path, PAGES[path])


@registry.job
async def measure(path: str, text: str) -> Call[Report]:
    """The second: it decides which step is the last."""
    if text:
        return publish(path, len(text.split()))
    return reject(path, "there is nothing on it")


@registry.job
async def publish(path: str, words: int) -> Report:
    """A last step may simply return the result: it doesn't continue the chain."""
    return Report(path, words)


@registry.job
async def reject(path: str, why: str) -> Report:
    """The other last step."""
    return Report(path, 0, why)


# -- the same again and again: nothing waits in a worker meanwhile --------------------------------------------------------


@registry.job
async def poll(ticket: int, tries: int = 1) -> Call[int]:
    """Ask again after a while, until there is an answer: how often it took."""
    if tries < ticket:
        return poll(ticket, tries + 1).options(delay=timedelta(milliseconds=50))
    return done(tries)


# -- back to an earlier step ----------------------------------------------------------------------------------------------


@registry.job
async def write(subject: str, draft: int = 1) -> Call[str]:
    """Write a draft, and have it reviewed."""
    return review(subject, draft)


@registry.job
async def review(subject: str, draft: int) -> Call[str]:
    """Send it back to `write`, or accept it."""
    if draft < 3:
        return write(subject, draft + 1)
    return done(f"{subject}, draft {draft}")


# -- the program ----------------------------------------------------------------------------------------------------------


async def run(url: str | None) -> None:
    """Enqueue a chain of each shape, and wait for their results."""
    async with Client(url) as client, Worker(client, registry):
        good = await client.enqueue(download("/a"))  # JobHandle[Report], through all steps
        bad = await client.enqueue(download("/b"))
        asked = await client.enqueue(poll(4).options(key="ticket 4", unique=True))  # one at a time, through all steps
        text = await client.enqueue(write("cats"))
        print("linear:  ", await good.result(timeout=30), await steps(client, good))
        print("branched:", await bad.result(timeout=30), await steps(client, bad))
        print("looped:  ", await asked.result(timeout=30), await steps(client, asked))
        print("go-to:   ", await text.result(timeout=30), await steps(client, text))


async def steps(client: Client, chain: JobHandle[object]) -> str:
    """The types of a chain's steps, in order."""
    page = await client.chain_jobs(chain)
    return " > ".join(job.type.removeprefix("chains.") for job in page.jobs)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.chains", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default AIOQUEUE_URL, else sqlite:///aioqueue.db")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.url))


if __name__ == "__main__":
    main()
