"""Where and while a store may be used: `aioqueue.abc.Store` has the table, and this is the one check that every store makes."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aioqueue.errors import ClientClosed, ConfigurationError
from aioqueue.runtime._home import Home, is_inherited

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Openable", "StoreLife"]


class Openable(Protocol):
    """What a store has while it is open: its connections, and what works over them."""

    async def start(self) -> None:
        """Connect, and check the schema. What fails or is cancelled leaves nothing open."""
        ...

    async def close(self) -> None:
        """Disconnect; bounded in time. Called in the event loop in which it was started."""
        ...

    def give_up(self) -> None:
        """Let go of all connections without waiting; its event loop may be closed."""
        ...


OpenableT = TypeVar("OpenableT", bound=Openable)

_inherited: list[object] = []
"""What a fork has of its parent's stores. It's kept, since collecting a connection might speak to the parent's database."""


class StoreLife(Generic[OpenableT]):
    """Opens and closes a store, and says to each verb whether it may be used here.

    Arguments:
        description: The store's, for errors.
    """

    def __init__(self, description: str) -> None:
        self._description = description
        self._opened: OpenableT | None = None
        self._home: Home | None = None
        self._opening: Home | None = None
        self._finalizer: weakref.finalize[..., StoreLife[OpenableT]] | None = None
        # Copies of what `_home` says, for `here`.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    @property
    def opened(self) -> OpenableT | None:
        """What the store has while it's open, for those who only look at it from anywhere in its process; else None."""
        return self._opened if self._home is not None and not self._home.inherited else None

    @property
    def home(self) -> Home:
        """Where the store is open; for parts that have threads of their own, and must not hold the store.

        Raises:
            ClientClosed: As `here`.
        """
        self.here()
        assert self._home is not None
        return self._home

    def here(self) -> OpenableT:
        """What the store has while it's open; every verb begins with this.

        Raises:
            ClientClosed: It isn't open, or was opened in another process, event loop or thread.
        """
        try:
            if self._loop is asyncio.get_running_loop() and not is_inherited(self._process) and self._opened is not None:
                return self._opened
        except RuntimeError:  # a thread without an event loop
            pass
        raise self._refusal()

    def _refusal(self) -> ClientClosed:
        if self._home is None:
            return ClientClosed(f"{self._description} isn't open, or was closed")
        try:
            self._home.check(self._description)
        except ClientClosed as error:
            return error
        raise AssertionError("the store may be used here")

    async def open(self, make: Callable[[], OpenableT]) -> None:
        """Open the store in this event loop.

        What an earlier opening has left in an event loop that is closed by now, or in the process from which this one was
        forked, is given up first.

        Arguments:
            make: Makes what the store has while it's open, not started yet.

        Raises:
            ConfigurationError: The store is open, or being opened.
            ClientClosed: It was closed meanwhile.
            StoreError: As `start`.
        """
        for home in (self._home, self._opening):
            if home is not None and not home.gone:
                raise ConfigurationError(f"{self._description} is open already: close it first, or make another")
        self._forget(closed=False)
        home = self._opening = Home()
        try:
            opened = make()
            await opened.start()
        except BaseException:
            if self._opening is home:
                self._opening = None
            raise
        if self._opening is not home:
            await opened.close()
            raise ClientClosed(f"{self._description} was closed while it was being opened")
        self._opening = None
        self._opened, self._home, self._loop, self._process = opened, home, home.loop, home.process
        self._finalizer = weakref.finalize(self, _give_up, opened, home, self._description)

    async def close(self) -> None:
        """Close the store; once more does nothing. In a fork the parent's connections are left alone.

        Raises:
            ClientClosed: It was opened in another event loop, which isn't closed. Nothing is done.
        """
        for home in (self._home, self._opening):
            if home is not None and not home.gone:
                home.check(self._description)
        if self._home is None or self._home.gone:
            self._forget(closed=True)
        elif (opened := self._leave()) is not None:
            await opened.close()

    def _forget(self, *, closed: bool) -> None:
        """Let go of what an earlier opening has left where it can't be closed any more."""
        home, opened = self._home, self._leave()
        if home is not None and opened is not None:
            _give_up(opened, home, None if closed else self._description)

    def _leave(self) -> OpenableT | None:
        opened = self._opened
        if self._home is not None:
            self._home.closed = True
        self._opened = self._home = self._loop = self._opening = None
        if self._finalizer is not None:
            self._finalizer.detach()
        return opened


def _give_up(opened: Openable, home: Home, never_closed: str | None) -> None:
    """Let go of what nobody can close.

    Arguments:
        opened: What the store had.
        home: Where it was opened.
        never_closed: The store's description, if somebody has forgotten to close it.
    """
    if home.inherited:
        _inherited.append(opened)
        return
    try:
        if never_closed is not None:
            # The store itself may be gone. The home was made where it was opened, which is what tracemalloc then names.
            warnings.warn(f"{never_closed} was never closed", ResourceWarning, stacklevel=2, source=home)
    finally:
        opened.give_up()
