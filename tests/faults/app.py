"""The jobs of the fault tests. Each writes into the ledger; what they do besides is in their names."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TypedDict

import anyio

from aioqueue import Fixed, Registry, Retry, current_attempt
from tests.processes import Ledger, die_with_parent

registry = Registry()

SOON = Retry(max_attempts=50, backoff=Fixed(0.05))


class Told(TypedDict):
    """Every job's output: who it was that completed it."""

    attempt: int
    pid: int


if "FAULTS_LEDGER" in os.environ:
    die_with_parent()


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
async def fail_twice() -> Told:
    write("start")
    if current_attempt().number < 3:
        write("failed")
        raise RuntimeError("one of the first two attempts")
    return told()


@registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0.05)))
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
