"""Turns at a file's one write lock, for the connections of this process: who came first is next.

SQLite has no queue for its lock: whoever finds it taken sleeps and looks again. So one that takes it anew at once, as blocks do
that wait for each other, keeps out those that sleep. Other processes are still waited for as SQLite does it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from aioqueue.errors import StoreUnavailable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["NotOurTurn", "Turns", "turns_of"]

_LOOK_SECONDS = 0.1
"""Between two looks whether a turn is still wanted."""


class NotOurTurn(StoreUnavailable):
    """The turn didn't come in time.

    Arguments:
        seconds: How long it was waited for.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no write lock within {seconds:g} s: other transactions of this process have it, or wait for it")


class Turns:
    """Who of this process may take the write lock. For any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._taken = False
        self._holder: weakref.ref[sqlite3.Connection] | None = None
        self._waiting: deque[threading.Event] = deque()
        self._owed: dict[int, tuple[int, Callable[[], None]]] = {}
        """Leases whose renewals had to wait for a transaction of this process, and who hears when it's over."""

    def take(self, connection: sqlite3.Connection, timeout: float, abandoned: Callable[[], bool]) -> bool:
        """Wait for the turn. Returns false, without it, if nobody wants it any more.

        Raises:
            NotOurTurn: It didn't come in time.
        """
        with self._mutex:
            if not self._taken:
                self._hold(connection)
                return True
            mine = threading.Event()
            self._waiting.append(mine)
        deadline = time.monotonic() + timeout
        while not mine.wait(max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic()))):
            late = time.monotonic() >= deadline
            if (late or abandoned()) and self._leave(mine):
                if late:
                    raise NotOurTurn(timeout)
                return False
        with self._mutex:
            self._hold(connection)
        return True

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Let the next one have it, if this connection has it. Those are told whose renewals were put off."""
        owed: dict[int, tuple[int, Callable[[], None]]] = {}
        with self._mutex:
            if self._holder is not None and self._holder() is connection:
                owed = self._pass_on()
        for _, over in owed.values():
            over()

    def put_off(self, lease_id: int, duration: int, over: Callable[[], None]) -> bool:
        """Put off the renewal of a lease until the transaction ends that has the write lock, which may see to it.

        Arguments:
            lease_id: Whose it is.
            duration: Microseconds.
            over: Called when the transaction has ended, however it has, in whatever thread: for a renewal at once.

        Returns:
            False if no connection of this process has the lock any more: others may take the lease.
        """
        with self._mutex:
            holder = None if self._holder is None else self._holder()
            if holder is None or not holder.in_transaction:
                return False
            self._owed[lease_id] = (duration, over)
            return True

    @property
    def owed(self) -> dict[int, int]:
        """The leases whose renewals were put off until now, with their durations in microseconds."""
        with self._mutex:
            return {lease_id: duration for lease_id, (duration, _) in self._owed.items()}

    def _hold(self, connection: sqlite3.Connection) -> None:
        self._taken = True
        self._holder = weakref.ref(connection, self._forgotten)

    def _pass_on(self) -> dict[int, tuple[int, Callable[[], None]]]:
        # To the next one directly: it stays taken, so that nobody comes before that one wakes up.
        self._holder = None
        self._taken = bool(self._waiting)
        if self._waiting:
            self._waiting.popleft().set()
        owed, self._owed = self._owed, {}
        return owed

    def _leave(self, mine: threading.Event) -> bool:
        """Stop waiting; false if the turn came in this moment."""
        with self._mutex:
            if mine.is_set():
                return False
            self._waiting.remove(mine)
            return True

    def _forgotten(self, holder: weakref.ref[sqlite3.Connection]) -> None:
        # A connection that had it is gone without having been closed. The collector may run in the thread that has the mutex.
        if self._holder is holder:
            for _, over in self._pass_on().values():
                over()


class _Files:
    """Whose turn it is at each file that this process uses."""

    def __init__(self) -> None:
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin anew: in a child those who have turns are threads of its parent, one of which may have the mutex too."""
        self._mutex = threading.Lock()
        self._turns: weakref.WeakValueDictionary[str, Turns] = weakref.WeakValueDictionary()

    def turns(self, name: str) -> Turns:
        with self._mutex:
            found = self._turns.get(name)
            if found is None:
                self._turns[name] = found = Turns()
            return found


_FILES = _Files()


def turns_of(path: Path) -> Turns:
    """Those at a file, for all stores of this process that use it."""
    return _FILES.turns(os.path.realpath(path))
