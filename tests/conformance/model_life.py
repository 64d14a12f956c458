"""What a store must do with phases, progress and old chains: the last part of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.abc import Changed
from aioqueue.vocabulary._job import Claim, JobState, LostReason, StoredState
from aioqueue.vocabulary._phases import PhaseState
from tests.conformance.model import MOVABLE
from tests.conformance.model_waiting import WaitingModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from tests.conformance.model import ModelJob

__all__ = ["LifeModel"]


class LifeModel(WaitingModel):
    """See the module."""

    def _why_not(self, each: PhaseWrite | ProgressWrite) -> LostReason | None:
        lost = self.lost(Claim(each.id, each.claims), each.lease_id)
        return LostReason.TAKEN if lost is None and each.lease_id not in self.leases else lost

    def write_phase(self, each: PhaseWrite) -> LostReason | None:
        lost = self._why_not(each)
        if lost is None:
            phases, done = self.jobs[each.id].phases, self.jobs[each.id].done
            if each.state is PhaseState.COMPLETED:
                done[each.name] = each.claims
            if each.state is PhaseState.COMPLETED or done.get(each.name) != each.claims:
                phases[each.name] = (each.state, each.result)
        return lost

    def write_progress(self, each: ProgressWrite) -> None:
        if self._why_not(each) is None:
            self.jobs[each.id].percent = each.percent

    def shown(self, job: ModelJob) -> dict[str, tuple[PhaseState, bytes | None]]:
        """A job's phases, as a snapshot shows them."""
        return {name: (_shown(state, job.state), result) for name, (state, result) in job.phases.items()}

    def retry_from_start(self, job_id: UUID) -> Changed:
        result, job = self.retry(job_id), self.end(job_id)
        if result is Changed.DONE and job is not None:
            job.phases, job.done, job.percent = {}, {}, None
        return result

    def reschedule(self, job_id: UUID, delay: float) -> Changed:
        job = self.end(job_id)
        if job is None:
            return Changed.NOT_FOUND
        if job.state in MOVABLE:
            job.due = self.now + delay
            return Changed.DONE
        return Changed.RUNNING if job.state is JobState.RUNNING else Changed.WRONG_STATE

    def old(self, ages: Mapping[StoredState, float]) -> set[UUID]:
        """Chains that are old enough: no age that's drawn is anything but 0, and what is kept is kept for no time, or long."""
        ends = [self.end(chain) for chain in {job.chain for job in self.jobs.values()}]
        names = {JobState(state.name.lower()) for state in ages}
        return {
            end.chain
            for end in ends
            if end is not None and end.finished and (end.state in names if end.new.keep is None else not end.new.keep)
        }

    def purge(self, chains: set[UUID]) -> None:
        for job_id in [job.new.id for job in self.jobs.values() if job.chain in chains]:
            del self.jobs[job_id]


def _shown(stored: PhaseState, state: JobState) -> PhaseState:
    if state is JobState.CANCELLED:
        return stored if stored is PhaseState.COMPLETED else PhaseState.CANCELLED
    return PhaseState.FAILED if (state, stored) == (JobState.FAILED, PhaseState.RUNNING) else stored
