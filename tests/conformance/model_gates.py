"""Who may run at limits, rates and in sequences: a simple model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._gates_tools import tenant
from aioqueue.vocabulary._job import SettlementKind
from aioqueue.vocabulary._pauses import PauseTarget

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.vocabulary._gates import SequenceMember
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

__all__ = ["GatedJob", "GatesModel"]

_A_MINUTE = 60.0
"""Seconds for which a test may have been running: by so many the store's clock may be ahead of the model's."""


@dataclass(eq=False)
class GatedJob:
    """The last step of a chain.

    Attributes:
        claimed: As it was claimed, while it runs.
        ended: How it has ended; None while it's live.
        asked: Whether somebody has asked it to end while it runs.
        member: Of which sequence, and how; its place is that of its job among all.
    """

    new: NewJob
    due: float
    member: SequenceMember | None
    claimed: ClaimedJob | None = None
    ended: SettlementKind | None = None
    asked: bool = False

    @property
    def gates(self) -> tuple[str, ...]:
        """The limits at which it counts."""
        own = "job:a" + {tenant("x"): '="x"', tenant("y"): '="y"'}.get(self.new.payload, "")
        return {"a": (own,), "b": ("s",), "c": ("job:c", "s")}.get(self.new.type, ())


class GatesModel:
    """See the module.

    Arguments:
        each: Seconds between two starts of the rate, were they evenly spread.
        burst: How many may start at once.
    """

    def __init__(self, *, each: float, burst: int) -> None:
        self.now = 0.0
        self.jobs: list[GatedJob] = []
        self.limits: dict[str, int] = {}
        self.paused: list[tuple[PauseTarget, str]] = []
        self._each = each
        self._burst = burst
        self._arrival = -math.inf

    def running(self) -> list[GatedJob]:
        return [each for each in self.jobs if each.claimed is not None]

    # -- who may run ----------------------------------------------------------------------------------------------

    def _free(self, gate: str) -> float:
        places = self.limits.get(gate.partition("=")[0], math.inf)
        return places - sum(gate in each.gates for each in self.running())

    def _tokens(self) -> float:
        arrival = max(self._arrival, self.now - self._each * self._burst)
        return (self.now + _A_MINUTE - arrival) // self._each

    def _is_paused(self, job: GatedJob) -> bool:
        return (PauseTarget.TYPE, job.new.type) in self.paused or (PauseTarget.KEY, job.new.key) in self.paused

    def _keeps(self, job: GatedJob) -> bool:
        """Whether those behind it in its sequence wait."""
        if job.member is None or job.ended is not None:
            return job.member is not None and job.member.block and job.ended is SettlementKind.FAILED
        return job.member.strict or (job.due <= self.now and not self._is_paused(job))

    def _is_its_turn(self, job: GatedJob) -> bool:
        if job.member is None:
            return True
        of_it = [each for each in self.jobs if each.member is not None and each.member.name == job.member.name]
        before = of_it[: of_it.index(job)]
        return not any(each.claimed for each in of_it) and not any(map(self._keeps, before))

    def may_run(self) -> list[GatedJob]:
        return [each for each in self.jobs if self._may_run(each)]

    def _may_run(self, job: GatedJob) -> bool:
        waits = job.claimed is None and job.ended is None and job.due <= self.now and not self._is_paused(job)
        has_token = job.new.type != "c" or self._tokens() >= 1
        return waits and has_token and all(self._free(gate) > 0 for gate in job.gates) and self._is_its_turn(job)

    def claim(self, claimed: Sequence[ClaimedJob]) -> None:
        """Some were taken: each of them must have been allowed to run, one after the other."""
        by_id: dict[UUID, GatedJob] = {each.new.id: each for each in self.jobs}
        for each in claimed:
            job = by_id[each.id]
            assert self._may_run(job), ("was claimed, and may not run", job)
            job.claimed = each
            if job.new.type == "c":
                self._arrival = max(self._arrival, self.now - self._each * self._burst) + self._each

    # -- what becomes of them -------------------------------------------------------------------------------------

    def insert(self, jobs: Sequence[NewJob]) -> None:
        self.jobs += [GatedJob(each, self.now + (each.delay or 0), each.sequence) for each in jobs]

    def wait(self, job: GatedJob, delay: float) -> None:
        """It waits for its next try, unless somebody has asked it to end while it ran."""
        job.ended = SettlementKind.CANCELLED if job.asked else None
        job.claimed, job.asked, job.due = None, False, self.now + delay

    def settle(self, job: GatedJob, kind: SettlementKind, delay: float, following: NewJob | None) -> None:
        if following is not None:
            job.new = replace(following, key=job.new.key)
        if not kind.finishes or following is not None:
            self.wait(job, delay if following is None else 0)
        else:
            job.claimed, job.asked, job.ended = None, False, kind

    def let_go_on(self, name: str) -> bool:
        """Of a sequence; whether a failed member has kept it."""
        found = [each for each in self.jobs if each.member is not None and each.member.name == name]
        keeping = [each for each in found if each.ended is not None and self._keeps(each)]
        for each in keeping:
            assert each.member is not None
            each.member = replace(each.member, block=False)
        return bool(keeping)

    def cancel(self, job: GatedJob) -> None:
        job.asked = job.claimed is not None
        if job.claimed is None and job.ended is None:
            job.ended = SettlementKind.CANCELLED

    def delete(self, job: GatedJob) -> None:
        self.jobs.remove(job)

    def erase(self, job: GatedJob) -> None:
        self.jobs.remove(job)

    def retry(self, job: GatedJob) -> None:
        if job.ended in (SettlementKind.FAILED, SettlementKind.CANCELLED):
            self.wait(job, 0)

    def run_now(self, job: GatedJob) -> None:
        if job.claimed is None and job.ended is None:
            job.due = min(job.due, self.now)

    def reschedule(self, job: GatedJob) -> None:
        if job.claimed is None and job.ended is None:
            job.due = self.now + 7200.0
