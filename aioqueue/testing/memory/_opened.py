"""What an open store in memory has: whoever listens to it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._listeners import Listeners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioqueue.testing.memory._rows import Database

    Perform = Callable[[str, Callable[[], Any]], Awaitable[Any]]

__all__ = ["Opened"]

_LOGGER = logging.getLogger("aioqueue.testing.memory")


class Opened:
    """Made by a store when it's opened, dropped when it's closed. Made in the store's event loop.

    Arguments:
        database: What the store shares with others.
        perform: What the store does its verbs with.
    """

    def __init__(self, database: Database, perform: Perform) -> None:
        self.database = database
        self.listeners = Listeners(asyncio.get_running_loop(), _LOGGER)
        self._perform = perform

    async def start(self) -> None:
        """Begin to hear of what others do."""
        await self._perform("open", lambda: self.database.listeners.append(self.listeners))

    async def close(self) -> None:
        """Hear of nothing any more; the jobs stay."""
        try:
            await self._perform("close", lambda: None)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Hear of nothing any more."""
        if self.listeners in self.database.listeners:
            self.database.listeners.remove(self.listeners)
