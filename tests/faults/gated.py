"""The jobs of the fault tests with those that wait at gates."""

from __future__ import annotations

from pathlib import Path

import anyio

from aioqueue import Call, Fail, Fixed, InSequence, Limit, Rate, Retry, done
from tests.faults.app import SOON, Told, registry, told, write

__all__ = [
    *("BURST", "LIMIT", "SETTINGS", "STARTS"),
    *("alone", "few", "in_turn", "mixed", "rated", "registry", "strictly", "strictly_waiting"),
]

SETTINGS = {"lease": "1500ms", "renew_every": "500ms", "poll_interval": "30s"}
"""Of workers that are soon found to be dead, and that wait for being told."""

LIMIT = 3
STARTS, BURST = 40, 5


@registry.job(limit=Limit(LIMIT), retry=SOON)
async def few(seconds: float) -> Told:
    """At most three of these run at once."""
    write("start")
    await anyio.sleep(seconds)
    return told()


@registry.job(limit=Limit(1), retry=SOON)
async def alone(path: str) -> Told:
    """Runs until a file exists."""
    write("start", path)
    try:
        while not Path(path).exists():
            await anyio.sleep(0.005)
    except anyio.get_cancelled_exc_class():
        write("cancelled")
        raise
    return told()


@registry.job(sequence_by="line", limit=Limit(1, by="line"), retry=SOON)
async def in_turn(line: str, number: int) -> Told:
    """One of a line after the other."""
    write("start", f"{line} {number}")
    await anyio.sleep(0)
    return told()


@registry.job(sequence_by=InSequence("line", strict=True), retry=SOON)
async def strictly(line: str, number: int, step: int) -> Call[Told]:
    """One of a line after the other, with all that it goes on with."""
    write("start", f"{line} {number} {step}")
    await anyio.sleep(0)
    end = told()
    return strictly(line, number, step + 1) if step < 2 else done(end)


@registry.job(sequence_by=InSequence("line", strict=True), retry=Retry(max_attempts=50, backoff=Fixed(0.7)))
async def strictly_waiting(line: str, number: int, step: int, waits_in: int, path: str) -> Call[Told]:
    """The same, in two steps, one of which runs until a file exists. Each waits for a moment until it's tried again."""
    write("start", f"{line} {number} {step}")
    while step == waits_in and not Path(path).exists():
        await anyio.sleep(0.005)
    end = told()
    return done(end) if step else strictly_waiting(line, number, 1, waits_in, path)


@registry.job(rate=Rate(STARTS, per=1, burst=BURST), retry=SOON)
async def rated() -> Told:
    """So many of these start in a second."""
    write("start")
    return told()


@registry.job(limit=(Limit(2, by="tenant"), "shared"), rate=Rate(100, per=1, by="tenant"), fairness_by="tenant", retry=SOON)
async def mixed(tenant: str, line: str, seconds: float, fails: bool) -> Told:
    """All kinds of gates at once; whoever calls it says which sequence."""
    write("start", line)
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        write("cancelled")
        raise
    if fails:
        write("failed")
        raise Fail("as it was told to")
    return told()
