"""A `Recovery` over a store that dead workers have left jobs in, in time that is made up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aioqueue import Registry
from aioqueue.definitions._settings import WorkerSettings
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import ClaimedJob, LostReason, Settlement, SettleResult
from aioqueue.worker import _recovery, _waiting_orphans
from aioqueue.worker._policy import Policies
from aioqueue.worker._recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    import pytest


class FakeTime:
    """Two clocks: one that can be set, and one that can't."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set_by = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.set_by


class Dead:
    """A store with jobs that a dead worker left.

    Attributes:
        left: What the next looks give; what isn't written of them goes on being given with `stays`.
        taken, limits: How often it was looked, and for how many jobs.
        batches, written: What was to be written, call by call; and what was.
        lost: What becomes of each.
        results: What becomes of some, whatever is written.
        errors: What a call raises that is to write about some.
    """

    def __init__(self) -> None:
        self.left: list[list[ClaimedJob]] = []
        self.stays: list[ClaimedJob] = []
        self.taken = 0
        self.limits: list[int] = []
        self.batches: list[list[Settlement]] = []
        self.written: list[Settlement] = []
        self.lost: LostReason | None = None
        self.results: dict[UUID, SettleResult] = {}
        self.errors: dict[UUID, Exception] = {}

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        self.taken += 1
        self.limits.append(limit)
        if self.stays:
            done = {each.id for each in self.written}
            return [job for job in self.stays if job.id not in done][:limit]
        return self.left.pop(0) if self.left else []

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Sequence[SettleResult]:
        assert orphaned
        self.batches.append(list(settlements))
        for each in settlements:
            if each.id in self.errors:
                raise self.errors[each.id]
        self.written += [each for each in settlements if each.id not in self.results]
        return [self.results.get(each.id, SettleResult(self.lost)) for each in settlements]


class Bench:
    """See the module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dead: Dead | None = None) -> None:
        self.clock = FakeTime()
        for module in (_recovery, _waiting_orphans):
            monkeypatch.setattr(module, "time", self.clock)
        self.store = Dead() if dead is None else dead
        store: Any = self.store
        self.registry, settings = Registry(), WorkerSettings.resolve(lease=60, environment={})
        self.recovery = Recovery(store, Policies(self.registry, settings), settings, "survivor\nERROR x")

    async def looked(self) -> bool:
        """Whether a look at the leases of others is made now."""
        before = self.store.taken
        await self.recovery.reap(())
        return self.store.taken > before

    async def quiet_for(self, seconds: float) -> None:
        """Time passes, with a renewal every now and then."""
        while seconds > 0:
            step = min(seconds, 10)
            self.clock.now += step
            seconds -= step
            self.recovery.in_contact()


def orphan(**changes: Any) -> ClaimedJob:
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "id": new_id(), "type": "a", "payload": b"{}", "priority": 2, "attempt": 1, "claims": 1, "lease_id": 3,
        "created_at": now, "run_at": now, "started_at": now, "max_attempts": 10, **changes,
    }  # fmt: skip
    return ClaimedJob(**{"chain_id": values["id"], **values})
