"""What becomes of new jobs whose ids or keys may be taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.postgres._resolve import Resolved
from aioqueue.store_rules._unique_keys import duplicate_job
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.errors import AioqueueError
    from aioqueue.postgres._insert_replace import Holder
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Stored"]


@dataclass(slots=True)
class Stored:
    """What has become of jobs, before it's stored what they wait for.

    Attributes:
        created: Those that were stored.
        chains: What stands for the others, by their ids.
        replacing: Those of the others that have taken the place of what stands for them.
        become: What jobs have become by those, by their own ids.
        taken_over: The chains from which some have taken their keys, by the jobs that hold them now.
        let_go: The jobs that had those keys.
        joined: The chains that have come into a sequence by those, by the ids of the jobs that they have become.
        refused: Why some can't be stored.
        told: What is told of those that have become others.
    """

    created: set[UUID] = field(default_factory=set[UUID])
    chains: dict[UUID, UUID] = field(default_factory=dict[UUID, UUID])
    replacing: set[UUID] = field(default_factory=set[UUID])
    become: dict[UUID, NewJob] = field(default_factory=dict[UUID, "NewJob"])
    taken_over: dict[UUID, UUID] = field(default_factory=dict[UUID, UUID])
    let_go: set[UUID] = field(default_factory=set[UUID])
    joined: dict[UUID, UUID] = field(default_factory=dict[UUID, UUID])
    refused: dict[UUID, AioqueueError] = field(default_factory=dict[UUID, "AioqueueError"])
    told: Resolved = field(default_factory=Resolved)

    @classmethod
    def of(cls, jobs: Sequence[NewJob], results: Sequence[Inserted]) -> Stored:
        """The same, of a plain insert's results."""
        stored = cls()
        for job, result in zip(jobs, results, strict=True):
            if result.created:
                stored.created.add(job.id)
            elif job.id not in stored.created:
                stored.chains[job.id] = result.id
        return stored

    def keep(self, job: NewJob, chain_id: UUID) -> None:
        """Note that a job's key is a chain's, and stays it."""
        if job.unique is not None and job.unique.on_conflict == "raise":
            self.refused[job.id] = duplicate_job(job, chain_id)
        else:
            self.chains[job.id] = chain_id

    def replace(self, job: NewJob, holder: Holder) -> None:
        """Note that a job takes the place of one that waits."""
        self.chains[job.id] = holder.job_id
        self.replacing.add(job.id)
        self.become[holder.job_id] = job

    def take_over(self, job: NewJob, holder: Holder) -> None:
        """Note that a job takes a chain's key over."""
        self.created.add(job.id)
        self.taken_over[job.id] = holder.chain_id
        self.let_go.add(holder.job_id)

    def add(self, other: Stored) -> None:
        """Add what has become of further ones."""
        self.created |= other.created
        self.chains |= other.chains
        self.replacing |= other.replacing
        self.become |= other.become
        self.taken_over |= other.taken_over
        self.joined |= other.joined
        self.refused |= other.refused
        self.told.add(other.told)

    def waiting(self, jobs: Sequence[NewJob]) -> dict[UUID, NewJob]:
        """Those that were stored, or have become others, and wait for something, by the ids of their rows."""
        rows = {job.id: job for job in jobs if job.id in self.created} | self.become
        return {job_id: job for job_id, job in rows.items() if job.blockers or job_id in self.taken_over}

    def results(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """One result each."""
        if len(self.created) == len(jobs):
            return [Inserted(job.id, created=True) for job in jobs]
        results: list[Inserted] = []
        created = set(self.created)
        for job in jobs:
            if job.id not in created and (refused := self.refused.get(job.id)) is not None:
                results.append(Inserted(job.id, created=False, refused=refused))
            else:
                stands = self.chains.get(job.id, job.id)
                results.append(Inserted(stands, job.id in created, replaced=job.id in self.replacing))
            created.discard(job.id)  # the same id a second time in one batch
        return results
