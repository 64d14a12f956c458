"""The jobs of the fault tests. Each writes into the ledger; what they do besides is in their names."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import anyio

from aioqueue import Call, Fixed, Registry, Reschedule, Retry, current_attempt, done
from tests.faults.clock import install
from tests.processes import Ledger, die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

registry = Registry()

SOON = Retry(max_attempts=50, backoff=Fixed(0.05))


class Told(TypedDict):
    """Every job's output: who it was that completed it."""

    attempt: int
    pid: int


if "FAULTS_LEDGER" in os.environ:
    die_with_parent()
if "FAULTS_CLOCK" in os.environ:
    install(Path(os.environ["FAULTS_CLOCK"]))


def write(event: str, note: str = "") -> None:
    attempt = current_attempt()
    Ledger(os.environ["FAULTS_LEDGER"]).write(event, str(attempt.job.id), attempt.number, attempt.worker_id, note)


def told() -> Told:
    write("end")
    return Told(attempt=current_attempt().number, pid=os.getpid())


@registry.job(retry=SOON)
async def nap(seconds: float) -> Told:
    write("start")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        write("cancelled")
        raise
    return told()


@registry.job(retry=SOON)
async def walk(steps: int, seconds: float) -> Call[Told]:
    """A chain of so many steps."""
    write("start")
    await anyio.sleep(seconds)
    end = told()
    return walk(steps - 1, seconds) if steps > 1 else done(end)


@registry.job(retry=SOON)
async def gather(ends: list[Told]) -> Told:
    """Is given the outputs of others."""
    assert all(isinstance(end["pid"], int) for end in ends), ends
    write("start", str(len(ends)))
    return told()


@registry.job(retry=SOON)
async def book(seconds: float) -> Told:
    """Writes a row in the transaction that completes it, and enqueues another job with that."""
    write("start")
    attempt = current_attempt()
    mark = "?" if attempt.client.store.description.startswith("sqlite") else "$1"
    async with attempt.completion() as tx:
        await tx.execute(f"insert into booking values ({mark})", str(attempt.job.id))
        attempt.enqueue(nap(0).options(key=str(attempt.job.id)))
        await anyio.sleep(seconds)
        return tx.done(told())


@registry.job(retry=SOON)
async def until_exists(path: str) -> Told:
    """Runs until a file exists."""
    write("start")
    try:
        while not Path(path).exists():
            await anyio.sleep(0.02)
    except anyio.get_cancelled_exc_class():
        write("cancelled")
        raise
    return told()


@registry.job(retry=SOON)
async def hold_transaction(path: str) -> Told:
    """Holds an open transaction, and asks for statistics in it, until a file exists."""
    client = current_attempt().client
    async with client.transaction() as tx:
        await tx.execute("select 1")
        write("start")
        while not Path(path).exists():
            await client.stats()
            await anyio.sleep(0.02)
    return told()


@registry.job(retry=SOON)
def thread_until_exists(path: str) -> Told:
    """The same, in a thread."""
    write("start")
    while not Path(path).exists():
        time.sleep(0.02)
    return told()


@registry.job(retry=SOON)
async def raise_when_exists(path: str) -> Told:
    """Runs until a file exists, and fails in its first attempt."""
    write("start")
    while not Path(path).exists():
        await anyio.sleep(0.02)
    if current_attempt().number == 1:
        write("failed")
        raise RuntimeError("the first attempt fails")
    return told()


@registry.job(retry=SOON)
async def reschedule_when_exists(path: str) -> Told:
    """The same, but the first attempt asks to be run again later."""
    write("start")
    while not Path(path).exists():
        await anyio.sleep(0.02)
    if current_attempt().number == 1:
        write("rescheduled")
        raise Reschedule(delay=3600)
    return told()


@registry.job(retry=SOON)
async def swallow_until_exists(path: str) -> Told:
    """The same as `until_exists`, but nothing cancels it."""
    write("start")
    while not Path(path).exists():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.02)
    return told()


@registry.job(retry=SOON)
async def fail_twice() -> Told:
    write("start")
    if current_attempt().number < 3:
        write("failed")
        raise RuntimeError("one of the first two attempts")
    return told()


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0.05)))
async def die() -> Told:
    """Kills its own process, every time."""
    write("start")
    os.kill(os.getpid(), signal.SIGKILL)
    await anyio.sleep_forever()
    return told()


@registry.job(retry=SOON)
async def block_loop(seconds: float) -> Told:
    """Blocks the event loop."""
    write("start")
    time.sleep(seconds)
    return told()


class Unprintable(Exception):
    """Can't even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ODD: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("one"), ExceptionGroup("more", [TypeError("two")])]),
    "CancelledError": asyncio.CancelledError,
    "Unprintable": Unprintable,
    "MemoryError": MemoryError,
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("one")]),
    "NUL": lambda: ValueError("a\0b \ud800"),
    "huge": lambda: ValueError("x" * 5_000_000),
}


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0.05)))
async def raise_odd(kind: str) -> Told:
    write("start")
    await anyio.sleep(0)
    write("failed")
    error = ODD[kind]()
    raise error


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0.05)))
def raise_odd_in_thread(kind: str) -> Told:
    write("start")
    write("failed")
    error = ODD[kind]()
    raise error


@registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0.05)))
async def raise_odd_in_tasks(kind: str) -> Told:
    """As a click command does, or an argument parser: asyncio ends the loop with it."""

    async def part() -> None:
        error = ODD[kind]()
        raise error

    write("start")
    try:
        await asyncio.gather(asyncio.gather(part()), anyio.sleep_forever())
    finally:
        write("failed")
    raise AssertionError


@registry.job(retry=Retry(max_attempts=1))
async def leave(code: int) -> Told:
    """Ends its process without a word."""
    write("start")
    os._exit(code)


@registry.job(retry=SOON)
async def fork() -> Told:
    """Its child returns into the worker's code, as one does that forgets to leave."""
    write("start")
    if os.fork() == 0:
        return Told(attempt=current_attempt().number, pid=os.getpid())
    return told()


@registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0.05)))
async def close_descriptors() -> Told:
    """Closes all the process's files, sockets and databases in its first attempt."""
    write("start")
    if current_attempt().number == 1:
        os.closerange(3, 1024)
        await anyio.sleep_forever()
    return told()


@registry.job(retry=SOON)
async def allocate(size: int) -> Told:
    """Uses that many bytes of memory for a moment."""
    write("start")
    used = bytearray(size)
    for position in range(0, size, 4096):
        used[position] = 1
        if position % (64 << 20) == 0:
            await anyio.sleep(0)
    del used
    return told()
