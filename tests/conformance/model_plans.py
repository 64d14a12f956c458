"""What a store must do with pauses, schedules and names that only one lease may have: on top of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aioqueue.abc import Due
from aioqueue.errors import DuplicateJob
from aioqueue.store_rules._schedules import ENQUEUED_BEFORE, KEPT_TICKS, OVERLAPPED
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._pauses import PauseTarget
from aioqueue.vocabulary._schedules import Tick, TickOutcome
from tests.conformance.model import PENDING
from tests.conformance.model_life import LifeModel

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._schedules import Generation, NewSchedule
    from tests.conformance.model import ModelJob

__all__ = ["NEVER", "ModelSchedule", "PlansModel", "Said"]

NEVER = "never"
"""In place of a next tick, where there is none for as far as can be seen."""

Said = tuple[TickOutcome, str, "UUID | None"]
"""What became of one tick: the outcome, the reason, the chain."""


@dataclass
class ModelSchedule:
    new: NewSchedule
    version: int = 0
    """Counted from the one that it began with."""
    first: int | None = None
    """That one, which is the store's choice."""
    next: datetime | str | None = None
    last: datetime | None = None
    chain: UUID | None = None
    paused: bool = False
    ticks: dict[datetime, Said] = field(default_factory=dict)


@dataclass
class ModelGeneration:
    digest: str
    release: int | None
    place: int
    live_until: float


class PlansModel(LifeModel):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: dict[tuple[PauseTarget, str, str], float] = {}
        self.schedules: dict[str, ModelSchedule] = {}
        self.generations: list[ModelGeneration] = []
        self.names: dict[int, str] = {}

    # -- pauses ---------------------------------------------------------------------------------------------------

    def paused_until(self, *about: tuple[PauseTarget, str]) -> float:
        """When the last pause of these ends; the past if none is there."""
        ends = [until for (target, value, _), until in self.pauses.items() if (target, value) in about]
        return max([end for end in ends if end > self.now], default=-1.0)

    def type_paused_until(self, name: str) -> float:
        return self.paused_until((PauseTarget.ALL, ""), (PauseTarget.TYPE, name))

    def key_is_paused(self, job: ModelJob) -> bool:
        return job.new.key is not None and self.paused_until((PauseTarget.KEY, job.new.key)) > self.now

    def claimable(self, types: Sequence[str], got: Sequence[UUID]) -> list[ModelJob]:
        """Without what is paused."""
        open_types = [name for name in types if self.type_paused_until(name) <= self.now]
        return [job for job in super().claimable(open_types, got) if not self.key_is_paused(job)]

    def come_to(self, types: Sequence[str]) -> list[ModelJob]:
        """What a claim may park."""
        due = [job for job in self.jobs.values() if self.state(job) is JobState.READY and job.new.type in types]
        return [job for job in due if self.key_is_paused(job) and self.type_paused_until(job.new.type) <= self.now]

    def coming_back(self) -> list[ModelJob]:
        """What is parked, and need not be."""
        return [job for job in self.jobs.values() if job.state is JobState.HELD and not self.key_is_paused(job)]

    def come_back(self) -> None:
        for job in self.coming_back():
            job.state = JobState.READY
            if job.due <= self.now:
                job.due = job.told = self.now

    def moments(self, types: Sequence[str]) -> list[float]:
        """When a worker that claims these types has to look, or may be asked to since a pause ends."""
        return [until for until in self.pauses.values() if self.now < until < math.inf] + self._needed(types)

    def _needed(self, types: Sequence[str]) -> list[float]:
        jobs = [job for job in self.jobs.values() if job.new.type in types and job.state in PENDING]
        ends = [max(job.due, self.type_paused_until(job.new.type)) for job in jobs]
        return [end for end in ends if end < math.inf]

    def next_due(self, types: Sequence[str], own: Collection[int]) -> Due:
        """The time by which it has to look at the latest."""
        first = min(self._needed(types), default=None)
        return replace(super().next_due(types, own), job=None if first is None else max(0.0, first - self.now))

    # -- where jobs come from -------------------------------------------------------------------------------------

    def make_dry(self, claimed: Collection[UUID]) -> None:
        for job_id in claimed:
            new = self.jobs[job_id].new
            self.jobs[job_id].new = replace(new, origin=replace(new.origin or Origin(), dry_run=True))

    # -- names ----------------------------------------------------------------------------------------------------

    def name_holder(self, name: str) -> int | None:
        """The lease that has a name, valid or not."""
        return next((lease_id for lease_id, each in self.names.items() if each == name and lease_id in self.leases), None)

    # -- schedules ------------------------------------------------------------------------------------------------

    def put(self, new: NewSchedule) -> bool:
        stored = self.schedules.get(new.name)
        if stored is None:
            self.schedules[new.name] = ModelSchedule(new)
            return True
        if stored.new == new:
            return False
        if stored.new.timing != new.timing:
            stored.next = None
        stored.new, stored.version = new, stored.version + 1
        return True

    def reconcile(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> tuple[bool, bool]:
        """Whether it's current, and whether it's refused."""
        known = self.generations
        mine = [each for each in known if (each.digest, each.release) == (generation.digest, generation.release)]
        if not mine and generation.release is not None and generation.release in [each.release for each in known]:
            return False, True
        mine = mine or [ModelGeneration(generation.digest, generation.release, len(known) + 1, 0)]
        self.generations = [each for each in known if each not in mine] + mine
        mine[0].live_until = self.now + live
        newest = max((each for each in self.generations if each.live_until > self.now), key=_place)
        if newest is not mine[0]:
            return False, False
        for new in schedules:
            if new.name not in self.schedules or self.schedules[new.name].new.owner == generation.owner:
                self.put(new)
        names = {new.name for new in schedules}
        for each in [each for each in self.schedules.values() if each.new.owner == generation.owner]:
            if each.new.name not in names:
                del self.schedules[each.new.name]
        return True, False

    @property
    def is_code_live(self) -> bool:
        return any(each.live_until > self.now for each in self.generations)

    def tick(self, tick: Tick) -> list[Said] | None:
        """What must become of its jobs and of what it skips; None if it isn't decided."""
        stored = self.schedules.get(tick.name)
        if stored is None or stored.version + (stored.first or 0) != tick.version:
            return None
        if not tick.by_hand:
            if stored.paused or stored.next != tick.expected:
                return None
            stored.next = tick.next_at or NEVER
        said = [self._enqueue(stored, tick, new) for new in tick.jobs]
        said += [(TickOutcome.SKIPPED, each.reason, None) for each in tick.skipped]
        times = [_nominal(new) for new in tick.jobs] + [each.nominal_time for each in tick.skipped]
        for at, each in zip(times, said, strict=True):
            if at not in stored.ticks or stored.ticks[at][0] is TickOutcome.SKIPPED:
                stored.ticks[at] = each
            if not tick.by_hand:
                stored.last = at if stored.last is None else max(stored.last, at)
        stored.ticks = {at: stored.ticks[at] for at in sorted(stored.ticks, reverse=True)[:KEPT_TICKS]}
        return said

    def _enqueue(self, stored: ModelSchedule, tick: Tick, new: NewJob) -> Said:
        at = _nominal(new)
        if at in stored.ticks and stored.ticks[at][0] is not TickOutcome.SKIPPED:
            return TickOutcome.SKIPPED, ENQUEUED_BEFORE, None
        last = None if stored.chain is None else self.end(stored.chain)
        if tick.alone and last is not None and not last.finished:
            return TickOutcome.SKIPPED, OVERLAPPED, None
        try:
            (inserted,) = self.insert([new])
        except DuplicateJob as error:
            stored.chain = error.chain_id
            return TickOutcome.DUPLICATE, "", error.chain_id
        stored.chain = inserted.id
        outcome = TickOutcome.ENQUEUED if inserted.created or inserted.replaced else TickOutcome.DUPLICATE
        return outcome, "", inserted.id


def _place(each: ModelGeneration) -> tuple[bool, int]:
    return each.release is not None, each.place if each.release is None else each.release


def _nominal(new: NewJob) -> datetime:
    assert new.origin is not None
    assert new.origin.nominal_time is not None
    return new.origin.nominal_time
