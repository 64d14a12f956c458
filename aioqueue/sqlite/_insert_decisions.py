"""Which jobs of a batch are stored, and what becomes of the others, where unique keys, chosen ids or implied jobs have a say.

All of it is decided before anything is written: nobody else can write meanwhile, as the transaction holds the write lock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aioqueue.sqlite._insert_holders import Holder, look
from aioqueue.store_rules._unique_keys import duplicate_job, wrong_type_of_chosen
from aioqueue.vocabulary._job import Inserted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._insert_holders import Found
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Decisions", "Target", "decide", "needs_decisions"]


def needs_decisions(jobs: Sequence[NewJob]) -> bool:
    """Whether some of them is more than a plain job, or one with a unique key that gives way to its holder."""
    return any(
        job.implied
        or job.chosen_id
        or (
            job.unique is not None
            and (job.unique.on_conflict != "return" or job.unique.window is not None or job.unique.until == "started")
        )
        for job in jobs
    )


@dataclass(slots=True)
class Target:
    """A row that is inserted, or that is there and gets what was given for another job.

    Attributes:
        job: What it gets. Of a row that is there already, the id is of no concern.
        row_id: Its id, as it's stored.
        chain: Its chain's id, as it's stored.
        unique: The hash under which it has its unique key.
        there: Whether it's there already.
        latest: After which it mustn't be due, in microseconds, whatever the job says.
        taken_over: The chain from which it has taken its key over, as it's stored.
        replaced: Whether it has got what was given for another job than its own.
    """

    job: NewJob
    row_id: str
    chain: str
    unique: str | None
    there: bool = False
    latest: int | None = None
    taken_over: str | None = None
    replaced: bool = False


class Decisions:
    """What becomes of the jobs of one batch.

    Arguments:
        jobs: Those.
        found: What is there already.
    """

    def __init__(self, jobs: Sequence[NewJob], found: Found) -> None:
        self._jobs = jobs
        self._found = found
        self._holders = dict(found.holders)
        self._own: dict[UUID, NewJob] = {}
        self._results: dict[int, Inserted] = {}
        self.targets: dict[str, Target] = {}
        """By their rows' ids."""
        self.freed: list[Holder] = []
        """Rows from which keys are taken."""
        self.kept: dict[str, tuple[str, NewJob]] = {}
        """Windows that begin: by their keys, for which chain, and the job that says until when."""

    @property
    def now(self) -> int:
        """The database's time."""
        return self._found.now

    @property
    def results(self) -> list[Inserted]:
        """One for each job, once all are decided."""
        return [self._results[place] for place in range(len(self._jobs))]

    def decided(self, place: int) -> bool:
        """Whether this job has been decided."""
        return place in self._results

    def writes(self, place: int) -> bool:
        """Whether this job is stored, or replaces another: then what it waits for is needed."""
        result = self._results.get(place)
        return result is not None and (result.created or result.replaced)

    def leave_out(self, place: int) -> None:
        """Don't store this job."""
        self._results[place] = Inserted(self._jobs[place].id, created=False)

    def decide(self, place: int) -> None:
        """Decide this job."""
        self._results[place] = self._decide(place, self._jobs[place])

    def _decide(self, place: int, job: NewJob) -> Inserted:
        fits = self._found.present.get(place)
        if fits is None and job.id in self._own:
            own = self._own[job.id]
            fits = own.type in job.unique_names or job.type in own.unique_names
        if fits is not None:
            refused = wrong_type_of_chosen(job) if job.chosen_id and not fits else None
            return Inserted(job.id, created=False, refused=refused)
        holder = self._holder(place, job)
        if holder is None:
            return self._create(place, job)
        assert job.unique is not None
        if job.unique.on_conflict == "raise":
            return Inserted(job.id, created=False, refused=duplicate_job(job, holder.chain_id))
        if job.unique.on_conflict == "return" or holder.finished:
            return Inserted(holder.chain_id, created=False)
        if holder.waits:
            return self._replace(place, job, holder)
        self.freed.append(holder)
        return self._create(place, job, holder)

    def _holder(self, place: int, job: NewJob) -> Holder | None:
        keys = self._found.keys.get(place, ())
        holder = next((self._holders[key] for key in keys if key in self._holders), None)
        if holder is None and job.unique is not None and job.unique.window is not None:
            holder = next((self._found.windows[key] for key in keys if key in self._found.windows), None)
        return holder

    def _create(self, place: int, job: NewJob, before: Holder | None = None) -> Inserted:
        unique = next(iter(self._found.keys.get(place, ())), None)
        row_id = str(job.id)
        taken_over = None if before is None else before.chain
        self.targets[row_id] = Target(job, row_id, row_id, unique, taken_over=taken_over)
        self._own[job.id] = job
        if unique is not None:
            self._hold(unique, Holder(unique, job.id, row_id, row_id, waits=True, created_at=self.now), before)
            self._keep_window(unique, row_id, job)
        return Inserted(job.id, created=True)

    def _replace(self, place: int, job: NewJob, holder: Holder) -> Inserted:
        keys = self._found.keys[place]
        latest = None
        if job.max_delay is not None:
            latest = min(holder.created_at + round(job.max_delay * 1_000_000), _FARTHEST)
        target = self.targets.get(holder.row_id)
        if target is None:
            target = Target(job, holder.row_id, holder.chain, keys[0], there=True)
            self.targets[holder.row_id] = target
        else:
            target.job = replace(job, id=target.job.id)
        target.unique, target.latest, target.replaced = keys[0], latest, True
        self._hold(keys[0], holder, holder)
        if holder.claimed and job.unique is not None and job.unique.until == "started":
            del self._holders[keys[0]]
        self._keep_window(keys[0], holder.chain, job)
        return Inserted(holder.chain_id, created=False, replaced=True)

    def _hold(self, key: str, holder: Holder, before: Holder | None) -> None:
        """Note who holds a key now, and that another, if there was one, holds none."""
        if before is not None:
            self._holders.pop(before.key, None)
        self._holders[key] = holder if holder.key == key else replace(holder, key=key)

    def _keep_window(self, key: str, chain: str, job: NewJob) -> None:
        if job.unique is not None and job.unique.window is not None:
            self.kept[key] = (chain, job)


_FARTHEST = 2**62
"""Microseconds: beyond all times."""


def decide(
    connection: Statements,
    jobs: Sequence[NewJob],
    *,
    repeated: bool = False,
    apart: bool = False,
    waited_for: Collection[UUID] = (),
) -> Decisions:
    """Decide what becomes of each job of a batch, in its order; of implied ones, once it's known what waits for them.

    Arguments:
        connection: In a write transaction.
        jobs, repeated, apart: As of `aioqueue.abc.Store.insert`.
        waited_for: Jobs of the batch for which others wait.

    Raises:
        DuplicateJob, WrongJobType: A job is refused, unless each stands for itself.
        RowRejected: A key can't be hashed.
    """
    found = look(connection, jobs, repeated=repeated)
    needless: set[int] = set()
    while True:
        decisions = Decisions(jobs, found)
        again = _decide_all(decisions, jobs, needless, waited_for)
        if not again:
            break
        # They may have kept keys from others.
        needless |= again
    if not apart:
        refused = next((each.refused for each in decisions.results if each.refused is not None), None)
        if refused is not None:
            raise refused
    return decisions


def _decide_all(
    decisions: Decisions, jobs: Sequence[NewJob], needless: Collection[int], waited_for: Collection[UUID]
) -> set[int]:
    """Decide all; gives the implied jobs with unique keys for which nobody waits, though they'd be stored."""
    for place, job in enumerate(jobs):
        if not job.implied or (job.unique is not None and place not in needless):
            decisions.decide(place)
    needed = set(waited_for)
    again: set[int] = set()
    for place in reversed(range(len(jobs))):
        job = jobs[place]
        if job.implied and job.id not in needed:
            if decisions.writes(place):
                again.add(place)
            else:
                decisions.leave_out(place)
            continue
        if not decisions.decided(place):
            decisions.decide(place)
        if decisions.writes(place):
            needed |= {each.chain_id for each in job.blockers}
    return again
