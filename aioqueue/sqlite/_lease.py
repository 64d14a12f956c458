"""What the lease thread uses: a blocking connection of its own."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from aioqueue._job import Claim
from aioqueue.abc import Renewal
from aioqueue.errors import ConfigurationError, StoreError
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite import _writes
from aioqueue.sqlite._clock import clock_and_boot
from aioqueue.sqlite._connection import Connection, connect, in_transaction
from aioqueue.sqlite._rows import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.sqlite._url import Settings

__all__ = ["SQLiteLeaseSession"]

T = TypeVar("T")


class SQLiteLeaseSession:
    """Renews leases from a thread of its own.

    A renewal needs the file's one write lock. While a long transaction keeps it nobody can take the lease away either,
    and the first renewal afterwards is granted as any late one.

    Arguments:
        settings: The file.
        timeout: Seconds that each call may take.
    """

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings = settings
        self._timeout = timeout
        self._connection: Connection | None = None
        self._pid = os.getpid()

    def connect(self) -> None:
        """Open the connection if none is open."""
        self._open(time.monotonic() + self._timeout)

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """Move the lease's end to now + `duration` seconds, unless its row is gone, and compare what it holds."""

        def body(connection: sqlite3.Connection) -> Renewal:
            clock, boot = clock_and_boot()
            parameters = {"lease": lease_id, "duration": round(duration * 1e6), "clock": clock, "boot": boot}
            valid = connection.execute(sql.LEASE_RENEW, parameters).rowcount == 1
            owned: set[Claim] = set()
            if valid:
                rows = connection.execute(sql.LEASE_HOLDS, {"lease": lease_id}).fetchone()[0]
                owned = {Claim(UUID(entry[0]), entry[1]) for entry in load(rows)}
            lost = _writes.lost_reasons(connection, [each for each in held if each not in owned])
            return Renewal(valid=valid, lost=lost, unheld=tuple(owned - set(held)))

        return self._run(body)

    def close(self) -> None:
        """Close the connection. May be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None and os.getpid() == self._pid:
            connection.close()

    def _open(self, deadline: float) -> Connection:
        if os.getpid() != self._pid:
            raise ConfigurationError(f"this lease session was made by process {self._pid}, before a fork")
        if self._connection is None:
            self._connection = connect(self._settings, timeout=self._left(deadline))
        return self._connection

    def _left(self, deadline: float) -> float:
        return min(self._settings.busy_timeout, max(0.0, deadline - time.monotonic()))

    def _run(self, body: Callable[[sqlite3.Connection], T]) -> T:
        deadline = time.monotonic() + self._timeout
        connection = self._open(deadline)
        try:
            return in_transaction(connection, self._left(deadline), body)
        except (StoreError, sqlite3.Error):
            self.close()
            raise
