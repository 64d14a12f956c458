"""Owns a client's connection to its store: opens it, closes it, and refuses its use from anywhere else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioqueue.client._opened import Opened
from aioqueue.definitions._observers import Observers
from aioqueue.errors import ClientClosed, ConfigurationError
from aioqueue.runtime._shield import finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.abc import Store
    from aioqueue.client._opened import ClientSettings

__all__ = ["Session"]


class Session:
    """A client's hold on its store, over all its openings.

    The client, its transactions and its handles have it in common: whatever they do begins with `opened()`. So a handle
    that was made before the client was opened, or opened again, works all the same.

    Arguments:
        make_store: Gives the store, new for each opening unless the user gave one.
        settings: The client's.

    Attributes:
        store: The newest opening's; before the first one, the one that it will open.
        tracing: Makes the client's spans.
        observers: Who observes the client and its workers.
        webhook: The URL that is told of ends, where calls name none.
    """

    def __init__(self, make_store: Callable[[], Store], settings: ClientSettings) -> None:
        self.store = make_store()
        self._make_store = make_store
        self._settings = settings
        self.tracing = settings.tracing
        self.observers = Observers()
        self.webhook = settings.webhook
        self._store_was_opened = False
        self._opened: Opened | None = None
        self._opening = False
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, in this event loop. Raises as `Client.open`."""
        if self._opening or self.is_open:
            raise ConfigurationError("the client is open already: close it first, or make another")
        self._opening = True
        try:
            self._opened = None
            if self._store_was_opened:
                self.store = self._make_store()
            self._store_was_opened = True
            opened = Opened(self.store, self._settings, self.observers)
            await opened.open()
            self._opened = opened
        finally:
            self._opening = False

    async def close(self) -> None:
        """Finish what is in flight, and disconnect. Raises as `Client.close`."""
        opened = self._opened
        if opened is not None and not opened.home.gone:
            opened.home.check("the client")
            self._opened = None
            self._closing = opened.begin_to_close()
        self._opened = None
        if (closing := self._closing) is not None and closing.get_loop() is asyncio.get_running_loop():
            await finish(closing, again=None if opened is None else opened.begin_to_close)
            self._closing = None

    @property
    def is_open(self) -> bool:
        """Whether the client is open, here or elsewhere."""
        return self._opened is not None and not self._opened.home.gone

    def opened(self) -> Opened:
        """Give what is there while the client is open.

        Raises:
            ClientClosed: It isn't open, or not in this process and event loop.
        """
        opened = self._opened
        if opened is None:
            raise ClientClosed("the client isn't open: use it inside `async with Client(...) as client:`")
        opened.home.check("the client")
        return opened

    def __repr__(self) -> str:
        return f"<Client {self.store.description} {'closed' if self._opened is None else 'open'}>"
