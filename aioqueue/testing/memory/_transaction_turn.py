"""Whose turn it is to have a transaction open."""

from __future__ import annotations

import asyncio
import threading

__all__ = ["Turn"]


class Turn:
    """Had by one transaction at a time, of any store of the same jobs: `async with turn`.

    Other than an `asyncio.Lock` it belongs to no event loop: the jobs stay while stores are closed, and opened in another one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._had_in: asyncio.AbstractEventLoop | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    async def __aenter__(self) -> None:
        while (waiting := self._take_or_wait()) is not None:
            await waiting

    async def __aexit__(self, *_: object) -> None:
        with self._lock:
            self._had_in, waiting, self._waiting = None, self._waiting, []
        # All of them, since any may have been cancelled; the first in its loop gets it.
        for each in waiting:
            loop = each.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, each)

    def _take_or_wait(self) -> asyncio.Future[None] | None:
        loop = asyncio.get_running_loop()
        with self._lock:
            # Whoever had it in a loop that is closed by now won't give it back.
            if self._had_in is None or self._had_in.is_closed():
                self._had_in = loop
                return None
            waiting = loop.create_future()
            self._waiting.append(waiting)
            return waiting


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
