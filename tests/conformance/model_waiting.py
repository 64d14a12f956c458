"""What a store must do with jobs that wait for others: the rest of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.abc import ChainEnd, Changed
from aioqueue.errors import BlockerCycle
from aioqueue.vocabulary._job import Inserted, JobState, NewJob, Settlement, SettlementKind
from tests.conformance.model import FINAL, WAITING, Model, ModelJob

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

__all__ = ["BLOCKER_FAILED", "EXPIRED", "WaitingModel"]

BLOCKER_FAILED = "it waited for"
"""How the message begins of a job that fails through a blocker."""
EXPIRED = "it wasn't started before it expired"

_ENDS = {
    JobState.COMPLETED: ChainEnd.COMPLETED,
    JobState.FAILED: ChainEnd.FAILED,
    JobState.CANCELLED: ChainEnd.CANCELLED,
}


@dataclass
class Edge:
    """One chain that a job waits for.

    Attributes:
        end: How it has ended, once that was counted.
        taken_over: Whether it's the chain from which the job has its key.
    """

    chain: UUID
    settled: bool
    end: ChainEnd | None = None
    taken_over: bool = False


class WaitingModel(Model):
    """See the module. Whoever waits is told at once, down all levels: the machine has the store tend to the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.edges: dict[UUID, list[Edge]] = {}

    # -- looking --------------------------------------------------------------------------------------------------

    def chain_end(self, chain: UUID) -> ChainEnd | None:
        """How a chain has ended; None while it's live. One of which continued steps are left alone is gone."""
        last = self.end(chain)
        if last is None or last.state is JobState.CONTINUED:
            return ChainEnd.DELETED
        return _ENDS.get(last.state)

    def can_be_waited_for(self, job_id: UUID) -> bool:
        """Whether there is something to wait for."""
        return self.chain_end(self.chain_of(job_id)) is not ChainEnd.DELETED

    def open_blockers(self, job_id: UUID) -> int:
        return sum(edge.end is None for edge in self.edges.get(job_id, ()))

    def dependents(self, chain: UUID) -> list[UUID]:
        """Live jobs that wait for a chain, with one entry for each time that they do."""
        return sorted(
            job_id
            for job_id, edges in self.edges.items()
            for edge in edges
            if edge.chain == chain and edge.end is None and job_id in self.jobs and not self.jobs[job_id].finished
        )

    # -- telling --------------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Tell whoever waits, and discard what wasn't started in time."""
        self.tell()
        late = [job for job in self.jobs.values() if self._never_started(job) and job.expires is not None]
        for job in late:
            if job.expires is not None and job.expires <= self.now:
                job.state, job.errors = JobState.CANCELLED, [*job.errors, EXPIRED]
        self.tell()

    def _never_started(self, job: ModelJob) -> bool:
        return job.state in WAITING and not job.attempt + job.reschedules

    def tell(self) -> None:
        told = True
        while told:
            told = False
            for job_id, edges in self.edges.items():
                if job_id in self.jobs and self._tell(self.jobs[job_id], edges):
                    told = True

    def _tell(self, job: ModelJob, edges: Sequence[Edge]) -> bool:
        new = [edge for edge in edges if edge.end is None and self.chain_end(edge.chain) is not None]
        for edge in new:
            edge.end = self.chain_end(edge.chain)
        if job.state is not JobState.BLOCKED or not new:
            return False
        if any(edge.end is not ChainEnd.COMPLETED and not edge.settled for edge in new):
            job.state, job.errors = JobState.FAILED, [*job.errors, BLOCKER_FAILED]
        elif all(edge.end is not None for edge in edges):
            due = max(job.due, self.now)
            job.expires = None if job.expires is None else job.expires + due - job.due
            job.state, job.due, job.told = JobState.READY, due, self.now
        return True

    # -- commands -------------------------------------------------------------------------------------------------

    def insert(self, jobs: Sequence[NewJob], *, repeated: bool = False) -> list[Inserted]:
        results: list[Inserted] = []
        ids: dict[UUID, UUID] = {}
        for new in jobs:
            result = self._insert(new, repeated=repeated)
            results.append(result)
            ids[new.id] = result.id
            if result.created or result.replaced:
                waits = [(self.chain_of(ids.get(each.chain_id, each.chain_id)), each.settled) for each in new.blockers]
                kept = [edge for edge in self.edges.pop(result.id, []) if edge.taken_over]
                edges = [*(Edge(chain, settled) for chain, settled in waits), *kept]
                if edges:
                    self.edges[result.id] = edges
                if any(edge.end is None for edge in edges):
                    self.jobs[result.id].state = JobState.BLOCKED
        if any(result.replaced and self._waits_for_itself(result.id) for result in results):
            raise BlockerCycle("a job would wait for itself")
        return results

    def take_over(self, holder: ModelJob, job_id: UUID) -> None:
        super().take_over(holder, job_id)
        self.edges[job_id] = [Edge(holder.chain, settled=True, taken_over=True)]

    def _waits_for_itself(self, chain: UUID) -> bool:
        seen: set[UUID] = set()
        left = [edge.chain for edge in self.edges.get(chain, [])]
        while left:
            each = left.pop()
            last = self.end(each)
            if each == chain:
                return True
            if each not in seen and last is not None and not last.finished:
                left += [edge.chain for edge in self.edges.get(last.new.id, []) if edge.end is None]
            seen.add(each)
        return False

    def _write(self, job: ModelJob, each: Settlement) -> None:
        super()._write(job, each)
        if each.kind in (SettlementKind.COMPLETED, SettlementKind.CONTINUED):
            self.edges.pop(job.new.id, None)

    def end_outside(self, job_id: UUID, kind: SettlementKind, output: bytes | None, message: str) -> bool:
        """What `Store.end` does."""
        job = self.jobs.get(job_id)
        if job is None or job.finished:
            return False
        job.state, job.output, job.newest, job.asked = FINAL[kind], output, None, None
        if kind is SettlementKind.FAILED:
            job.errors = [*job.errors, message]
        else:
            self.edges.pop(job_id, None)
        return True

    def retry(self, job_id: UUID, *, cascade: bool = False) -> Changed:
        job = self.end(job_id)
        looked = None if job is None else self._look_again(job)
        if job is not None and job.state in (JobState.FAILED, JobState.CANCELLED):
            if self.key_is_held(job):
                return Changed.KEY_HELD
            if looked is None:
                return Changed.BLOCKER_FAILED
        result = super().retry(job_id)
        if job is not None and result is Changed.DONE:
            self._wait_again(job, looked or [])
            if cascade:
                self._revive_those_behind(job)
        return result

    def _look_again(self, job: ModelJob) -> list[ChainEnd | None] | None:
        """How what a job waited for has ended, as far as is known; None if it can't run."""
        edges = self.edges.get(job.new.id, [])
        ends = [self._known_end(edge) for edge in edges]
        wrong = [end not in (None, ChainEnd.COMPLETED) and not edge.settled for end, edge in zip(ends, edges, strict=True)]
        return None if any(wrong) else ends

    def _known_end(self, edge: Edge) -> ChainEnd | None:
        end = self.chain_end(edge.chain)
        return edge.end if end is ChainEnd.DELETED and edge.end is not None else end

    def _wait_again(self, job: ModelJob, ends: Sequence[ChainEnd | None]) -> None:
        for edge, end in zip(self.edges.get(job.new.id, []), ends, strict=True):
            edge.end = end
        if None in ends:
            job.state = JobState.BLOCKED

    def _revive_those_behind(self, job: ModelJob) -> None:
        level = {job.chain}
        while level:
            waited = [
                job_id
                for job_id, edges in self.edges.items()
                if any(edge.chain in level and not edge.settled for edge in edges)
            ]
            level = {self.jobs[job_id].chain for job_id in waited if job_id in self.jobs and self._revive(self.jobs[job_id])}

    def _revive(self, job: ModelJob) -> bool:
        through = job.state is JobState.FAILED and bool(job.errors) and job.errors[-1] == BLOCKER_FAILED
        ends = self._look_again(job)
        if not through or self.key_is_held(job) or ends is None:
            return False
        super().retry(job.new.id)
        self._wait_again(job, ends)
        return True

    def _needs(self, job_id: UUID, chain: UUID) -> bool:
        return any(edge.chain == chain and edge.end is None and not edge.taken_over for edge in self.edges[job_id])

    def delete(self, job_id: UUID, *, cascade: bool = False) -> Changed:
        chain = self.chain_of(job_id)
        waiting = [each for each in self.dependents(chain) if self._needs(each, chain)]
        if waiting and not cascade:
            return Changed.BLOCKS
        result = super().delete(job_id)
        for dependent in waiting:
            if dependent in self.jobs:
                self.delete(dependent, cascade=True)
        return result
