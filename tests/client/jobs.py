"""The job types of these tests, and a worker's part in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue.definitions._registry import Registry
from aioqueue.vocabulary._job import AttemptError, Settlement, SettlementKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.abc import Store
    from aioqueue.vocabulary._job import ClaimedJob

registry = Registry(prefix="test.")


@dataclass
class Page:
    url: str
    size: int


@registry.job
async def fetch(url: str, *, depth: int = 1) -> Page:
    return Page(url, depth)


@registry.job
async def add(left: int, right: int) -> int:
    return left + right


@registry.job
async def nothing() -> None: ...


def completed(output: bytes) -> Callable[[ClaimedJob], Settlement]:
    def settle(job: ClaimedJob) -> Settlement:
        return Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=SettlementKind.COMPLETED, output=output)

    return settle


def ended(kind: SettlementKind, message: str) -> Callable[[ClaimedJob], Settlement]:
    def settle(job: ClaimedJob) -> Settlement:
        error = AttemptError(attempt=job.attempt, at=datetime.now(UTC), type="ValueError", message=message)
        return Settlement(id=job.id, claims=job.claims, lease_id=job.lease_id, kind=kind, error=error)

    return settle


async def work(store: Store, settle: Callable[[ClaimedJob], Settlement], *types: str) -> list[ClaimedJob]:
    """Claim all that is due of these types (all of this module's without any), and settle it."""
    lease = await store.open_lease("tests", 600)
    jobs: list[ClaimedJob] = []
    while claimed := await store.claim(lease, types or [each.name for each in (fetch, add, nothing)], 1000):
        results = await store.settle([settle(job) for job in claimed])
        assert all(result.lost is None for result in results)
        jobs += claimed
    await store.release(lease, [], end=True)
    return jobs
