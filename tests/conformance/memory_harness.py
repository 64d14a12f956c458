"""What the conformance cases need to know of the store in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.testing import Capability, Fault
from tests.conformance.memory import MemoryStore
from tests.conformance.memory_database import FOR_EVER, RESOLUTION, Bug, Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Bug", "MemoryHarness"]


class MemoryHarness:
    """Cases on a store in memory, with the given mistakes."""

    capabilities = frozenset(Capability)
    resolution = RESOLUTION

    def __init__(self, *bugs: Bug) -> None:
        self._database = Database(frozenset(bugs))
        self.store = MemoryStore(self._database)
        self._second = MemoryStore(self._database)
        self._second_is_open = False

    async def second_store(self) -> MemoryStore:
        if not self._second_is_open:
            self._second_is_open = True
            await self._second.open()
        return self._second

    def new_store(self) -> MemoryStore:
        return MemoryStore(self._database)

    async def age(self, seconds: float) -> None:
        self._database.skipped += timedelta(seconds=seconds)

    async def spoil(self, job_id: UUID, fault: Fault) -> bool:
        row = self._database.rows[job_id]
        if fault is Fault.PAYLOAD:
            row.new = replace(row.new, payload=b"{broken")
        elif fault is Fault.STATE:
            row.state = 3
        elif fault is Fault.DUE:
            row.run_at = FOR_EVER
        elif fault in (Fault.TIMEOUT, Fault.CREATION, Fault.COUNTERS):
            row.odd = f"an odd {fault}"
        else:
            return False
        return True

    async def delete_lease(self, lease_id: int) -> None:
        self._database.leases.pop(lease_id, None)

    @asynccontextmanager
    async def locked(self, job_id: UUID) -> AsyncIterator[None]:
        self._database.locked.add(job_id)
        yield
        self._database.locked.remove(job_id)

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()
        await self._second.close()
        self._database.users.close()
