"""Jobs that don't stop."""

from __future__ import annotations

import asyncio

from aioqueue import Fixed, Registry, Retry, current_attempt

SOON = Retry(max_attempts=5, backoff=Fixed(0))


class Stubborn:
    """A job that swallows every cancellation until it's let go, and one whose child does."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.release = asyncio.Event()
        self.starts: asyncio.Queue[int] = asyncio.Queue()
        self.swallowed = 0

        @self.registry.job(retry=SOON)
        async def stubborn() -> int:
            self.starts.put_nowait(current_attempt().number)
            await self.hold_on()
            return current_attempt().number

        @self.registry.job(retry=SOON)
        async def parent() -> None:
            self.starts.put_nowait(current_attempt().number)
            await asyncio.gather(self.hold_on(), self.hold_on())

        self.stubborn, self.parent = stubborn, parent

    async def hold_on(self) -> None:
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.swallowed += 1

    async def started(self) -> int:
        async with asyncio.timeout(60):
            return await self.starts.get()
