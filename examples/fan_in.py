"""Jobs that wait for others: one for many, in a diamond, whatever happens, and split by a handler.

    python -m examples.fan_in [--url URL]

`call.output` stands for what a call will return. A job that is given it waits, as `blocked`, until it's there: nothing
waits in a worker meanwhile. If the other one fails, so does the one that waits, unless it takes `call.settled`.
"""

from __future__ import annotations

import argparse
import asyncio

from aioqueue import Call, Client, Completed, Fail, Failed, JobFailed, Registry, Retry, Worker

registry = Registry(prefix="fan_in.")

PAGES = {"/a": "three short words", "/b": "two words", "/c": "one"}


# -- one waits for many -----------------------------------------------------------------------------------------------


@registry.job(retry=Retry(max_attempts=1))
async def count(path: str) -> int:
    """Count the words of a page; there may be no such page."""
    if path not in PAGES:
        raise Fail(f"there is no page {path}")
    return len(PAGES[path].split())


@registry.job
async def add(counts: list[int]) -> int:
    """Gets all counts: it runs when the last of them is there."""
    return sum(counts)


# -- a diamond: two work on what one has found, and one on what both have ---------------------------------------------


@registry.job
async def download(path: str) -> str:
    """Runs once, although two jobs use what it returns."""
    return PAGES[path]


@registry.job
async def first_word(text: str) -> str:
    """One side of the diamond."""
    return text.split()[0]


@registry.job
async def last_word(text: str) -> str:
    """The other."""
    return text.split()[-1]


@registry.job
async def join(*, first: str, last: str) -> str:
    """Its end."""
    return f"{first} … {last}"


# -- whatever happens -------------------------------------------------------------------------------------------------


@registry.job
async def report(counts: dict[str, Completed[int] | Failed]) -> str:
    """Runs when all have ended, well or not."""
    return ", ".join(f"{path}: {each.value if isinstance(each, Completed) else each.state}" for path, each in counts.items())


# -- split by a handler -----------------------------------------------------------------------------------------------


@registry.job
async def count_all(paths: list[str]) -> Call[int]:
    """Goes on when the parts have been counted: what it returns waits for them."""
    return add([count(path).output for path in paths])


# -- the program ------------------------------------------------------------------------------------------------------


async def run(url: str | None) -> None:
    """Enqueue a graph of each kind, and wait for its last job."""
    async with Client(url) as client, Worker(client, registry):
        total = await client.enqueue(add([count(path).output for path in PAGES]))  # stores all that it waits for, too
        print("fan-in: ", await total.result(timeout=30))

        text = download("/a").output
        words = await client.enqueue(join(first=first_word(text).output, last=last_word(text).output))
        print("diamond:", await words.result(timeout=30))

        summary = await client.enqueue(report({path: count(path).settled for path in ("/a", "/d")}))
        print("settled:", await summary.result(timeout=30))

        split = await client.enqueue(count_all(["/a", "/b"]))
        print("split:  ", await split.result(timeout=30))

        broken = await client.enqueue(add([count("/a").output, count("/d").output]))
        try:
            await broken.result(timeout=30)
        except JobFailed:
            failed = await broken.snapshot()  # the reason names what went wrong first
            print("failed: ", failed.last_error.type if failed.last_error else "")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.fan_in", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database; by default AIOQUEUE_URL, else sqlite:///aioqueue.db")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.url))


if __name__ == "__main__":
    main()
