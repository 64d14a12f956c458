"""What the command line's tests run."""

from __future__ import annotations

from pathlib import Path

import anyio

from aioqueue import Fail, Fixed, Registry, Retry

registry = Registry(prefix="jobs.")


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
async def greet(name: str, *, shout: bool = False) -> str:
    return name.upper() if shout else name


@registry.job
async def fail(reason: str) -> None:
    raise Fail(reason)


@registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0)))
async def fail_twice(path: str) -> int:
    """Each attempt adds a character to the file."""
    with Path(path).open("a") as file:
        file.write("x")
        count = file.tell()
    if count < 3:
        raise LookupError("not yet\nforged line \x1b[31m")
    return count


@registry.job
async def until_exists(started: str, path: str) -> None:
    Path(started).touch()
    while not Path(path).exists():
        await anyio.sleep(0.02)
