"""Beside the store in memory: its transactions, its lease sessions, and who listens to it."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.abc import Listener, Renewal
from aioqueue.vocabulary._job import Claim, Inserted, LostReason, NewJob, StoredState
from tests.conformance.memory_database import Bug, Database, insert, why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioqueue.store_rules._life import Home

__all__ = ["MemorySession", "MemoryTransaction", "Opened", "subscribed", "tell_inserted"]


def tell_inserted(database: Database, jobs: Sequence[NewJob]) -> None:
    for new in jobs:
        delay = new.delay or 0.0
        if new.run_at is not None:
            delay = max(0.0, (new.run_at - database.now()).total_seconds())
        database.pending({new.type}, delay)


@contextmanager
def subscribed(database: Database, listener: Listener) -> Iterator[None]:
    database.listeners.append(listener)
    try:
        yield
    finally:
        database.listeners.remove(listener)


class Opened:
    """There is nothing to connect to."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def give_up(self) -> None: ...


class MemoryTransaction:
    """Rows of its own until the commit."""

    def __init__(self, database: Database, check_open: Callable[[], object]) -> None:
        self._database = database
        self.check_open = check_open
        self.connection = database.users
        self.rows = dict(database.rows)
        self.inserted: list[NewJob] = []

    async def execute(self, sql: str, *arguments: Any) -> int:
        return self.connection.execute(sql, arguments).rowcount

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        cursor = self.connection.execute(sql, arguments)
        cursor.row_factory = sqlite3.Row
        return cursor.fetchall()

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        self.check_open()
        results = insert(self._database, self.rows, jobs)
        self.inserted += jobs
        if Bug.NOTIFY_BEFORE_COMMIT in self._database.bugs:
            tell_inserted(self._database, jobs)
        return results


class MemorySession:
    """As the lease thread uses it."""

    def __init__(self, database: Database, home: Home) -> None:
        self._database = database
        self._home = home

    def connect(self) -> None:
        self._home.check_from_thread("this lease session")

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        database = self._database
        self._home.check_from_thread("this lease session")
        with database.lock:
            late = Bug.LATE_RENEWAL_REFUSED in database.bugs and not database.valid(lease_id)
            if lease_id not in database.leases or late:
                return Renewal(valid=False)
            database.leases[lease_id] = (database.leases[lease_id][0], database.now() + timedelta(seconds=duration))
            owned = {
                row.claim for row in database.rows.values() if row.state == StoredState.RUNNING and row.lease_id == lease_id
            }
            lost = {claim: self._why(claim) for claim in held if claim not in owned}
            unheld = [] if Bug.UNHELD_UNTOLD in database.bugs else sorted(owned - set(held), key=lambda claim: claim.id)
            return Renewal(valid=True, lost=lost, unheld=tuple(unheld))

    def _why(self, claim: Claim) -> LostReason:
        row = self._database.rows.get(claim.id)
        return LostReason.NOT_FOUND if row is None else why(row)

    def close(self) -> None: ...
