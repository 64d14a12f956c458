"""The jobs of the fault tests with those that wait at gates."""

from __future__ import annotations

import anyio

from aioqueue import Limit
from tests.faults.app import SOON, Told, registry, told, write

__all__ = ["LIMIT", "few", "in_turn", "registry"]

LIMIT = 3


@registry.job(limit=Limit(LIMIT), retry=SOON)
async def few(seconds: float) -> Told:
    """At most three of these run at once."""
    write("start")
    await anyio.sleep(seconds)
    return told()


@registry.job(sequence_by="line", limit=Limit(1, by="line"), retry=SOON)
async def in_turn(line: str, number: int) -> Told:
    """One of a line after the other."""
    write("start", f"{line} {number}")
    await anyio.sleep(0)
    return told()
