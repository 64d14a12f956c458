"""What keeps a process from ending: jobs that don't stop, threads, handlers at exit, and modules that take long to import.

The variable `STUBBORN` names what is done at import, `STUBBORN_BEGUN` the file that says that it has begun.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from aioqueue import Registry

registry = Registry(prefix="stubborn.")


def begun() -> None:
    Path(os.environ["STUBBORN_BEGUN"]).touch()


@registry.job
async def swallow() -> None:
    """Swallows its cancellation."""
    begun()
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@registry.job
async def block() -> None:
    """Blocks the event loop."""
    begun()
    time.sleep(3600)


@registry.job
def in_thread() -> None:
    begun()
    time.sleep(3600)


@registry.job
async def in_executor() -> None:
    """In a thread that asyncio, and the interpreter, wait for at the end."""
    begun()
    await asyncio.to_thread(time.sleep, 3600)


@registry.job
async def wait() -> None:
    begun()
    await asyncio.sleep(3600)


def swallow_everything() -> None:
    while True:
        with suppress(BaseException):
            time.sleep(3600)


def at_exit() -> None:
    Path(os.environ["STUBBORN_BEGUN"]).with_suffix(".exit").touch()
    time.sleep(3600)


match os.environ.get("STUBBORN"):
    case "imported slowly":
        begun()
        time.sleep(3600)
    case "imported deafly":
        begun()
        swallow_everything()
    case "at exit":
        atexit.register(at_exit)
    case "thread":
        threading.Thread(target=time.sleep, args=[3600], name="a thread of the user's").start()
