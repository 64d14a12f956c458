"""What the conformance cases need to know of the store in memory."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.testing import Capability, Fault, MemoryStore
from aioqueue.testing.memory._rows_jobs import FOR_EVER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

__all__ = ["MemoryHarness"]

_UNKNOWN_STATE = 3


class MemoryHarness:
    """Two stores of the same jobs in memory."""

    capabilities = frozenset(Capability)
    resolution = timedelta(microseconds=1)

    def __init__(self) -> None:
        self._sql = sqlite3.connect(":memory:", isolation_level=None)
        self._sql.row_factory = sqlite3.Row
        self.store = MemoryStore(sql=self._sql)
        self._second = self.store.another()

    async def open(self) -> None:
        await self.store.open()
        await self._second.open()

    async def second_store(self) -> MemoryStore:
        return self._second

    def new_store(self) -> MemoryStore:
        return self.store.another()

    async def age(self, seconds: float) -> None:
        self.store.advance(seconds)

    async def spoil(self, job_id: UUID, fault: Fault) -> bool:
        row = self.store.database.rows[job_id]
        if fault is Fault.PAYLOAD:
            row.new = replace(row.new, payload=b"{broken")
        elif fault is Fault.STATE:
            row.state = _UNKNOWN_STATE
        elif fault is Fault.DUE:
            row.run_at = FOR_EVER
        elif fault in (Fault.TIMEOUT, Fault.CREATION, Fault.COUNTERS):
            row.unreadable = f"an odd {fault}"
        else:
            return False
        return True

    async def delete_lease(self, lease_id: int) -> None:
        self.store.database.end_lease(lease_id)

    async def erase(self, job_id: UUID) -> None:
        del self.store.database.rows[job_id]

    @asynccontextmanager
    async def locked(self, job_id: UUID) -> AsyncIterator[None]:
        row = self.store.database.rows[job_id]
        row.locked_until = FOR_EVER
        yield
        row.locked_until = None

    async def close(self) -> None:
        await self._second.close()
        await self.store.close()
        self._sql.close()
