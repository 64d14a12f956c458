"""Chains that are run by a worker in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue import Client, Fixed, Retry, Worker
from aioqueue.testing import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue import Call, Job, JobHandle, Registry
    from aioqueue.vocabulary._job import Settlement, SettleResult

__all__ = ["Settling", "ended", "once", "steps", "twice"]

once = Retry(max_attempts=1)
twice = Retry(max_attempts=2, backoff=Fixed(0))


class Settling(MemoryStore):
    """Notes what is settled, and may answer in the store's place."""

    def __init__(self) -> None:
        super().__init__()
        self.settled: list[Settlement] = []
        self.answers: list[SettleResult] = []

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
        self.settled += settlements
        if self.answers:
            return [self.answers.pop(0) for _ in settlements]
        return await super().settle(settlements, orphaned=orphaned)


async def steps(client: Client, handle: JobHandle[Any]) -> list[Job]:
    return list((await client.store.list_chain(handle.id, 100)).jobs)


async def ended(client: Client, registry: Registry, call: Call[Any]) -> Job:
    """The last step of the chain that a call begins."""
    handle = await client.enqueue(call)
    await Worker(client, registry).run_once()
    return (await steps(client, handle))[-1]
