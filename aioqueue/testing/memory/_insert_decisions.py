"""What becomes of the jobs of one insert: which of them are stored, and what else they change. Nothing is written here."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.store_rules._unique_keys import TAKEN_OVER_ORDINAL, duplicate_job, unique_hashes, wrong_type_of_chosen
from aioqueue.testing.memory._insert_blockers import edges_of
from aioqueue.testing.memory._insert_keys import can_be_replaced, key_holder, told_of, window_holder
from aioqueue.testing.memory._insert_rows import due_at, expires_at, first_due, hold_back, make_row, require_storable
from aioqueue.testing.memory._rows_blockers import Edge
from aioqueue.testing.memory._rows_leases import Window
from aioqueue.vocabulary._job import Inserted, StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.errors import AioqueueError
    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import NewJob

__all__ = ["Decisions", "decide"]


def decide(
    database: Database, jobs: Sequence[NewJob], there_before: Collection[UUID], needed: Collection[UUID], now: datetime
) -> Decisions:
    """Decide about all jobs of an insert.

    Arguments:
        database: Where they are to be stored.
        jobs: In their order.
        there_before: Ids of jobs that were stored, though they may be gone.
        needed: Ids of jobs for which somebody else waits who is stored with them.
        now: The time.

    Raises:
        DuplicateJob, WrongJobType: One of them is refused.
        StoreContended: Somebody has locked what one of them would change.
    """
    left_out: set[UUID] = set()
    while True:
        decisions = Decisions(database, jobs, there_before, now)
        for place, new in enumerate(jobs):
            if new.id not in left_out:
                decisions.add(place, new)
        decide_about_left_out(decisions, jobs, needed)
        useless = implied_in_vain(jobs, decisions.stand, needed) - left_out
        if not useless:
            break
        # Those behind them may get the keys that they would have had: from the start again.
        left_out |= useless
    for error in decisions.refused:
        raise error
    return decisions


def decide_about_left_out(decisions: Decisions, jobs: Sequence[NewJob], needed: Collection[UUID]) -> None:
    """Decide at last about those without which the others were decided: one may be needed by what is stored for that reason."""
    for place, new in reversed([*enumerate(jobs)]):
        if place in decisions.results:
            continue
        if new.id in implied_in_vain(jobs, decisions.stand, needed):
            decisions.results[place] = Inserted(new.id, created=False)
        else:
            decisions.add(place, new)


def implied_in_vain(jobs: Sequence[NewJob], stand: Collection[UUID], needed: Collection[UUID]) -> set[UUID]:
    """The implied jobs for which nobody waits, directly or through others, who is stored or takes the place of another.

    Arguments:
        jobs: The batch.
        stand: Those of them that are stored, or take the place of others.
        needed: See `decide`.
    """
    by_id = {new.id: new for new in jobs}
    waited_for: set[UUID] = set(needed)
    left = [*needed, *(new.id for new in jobs if new.id in stand and not new.implied)]
    while left:
        each = by_id.get(left.pop())
        if each is not None and each.id in stand:
            further = {blocker.chain_id for blocker in each.blockers} - waited_for
            waited_for |= further
            left += further
    return {new.id for new in jobs if new.implied and new.id not in waited_for}


class Decisions:
    """What becomes of the jobs, as far as they were looked at.

    Attributes:
        results: The answers, by the jobs' places.
        stand: Ids of those that are stored, or take the place of another.
        fresh: The new rows.
        replaced: Rows that are there already, as they become, by their ids.
        stood_in: Ids of those of both in whose place another stands by now.
        taken: The holders whose keys are taken over, by the ids of the new jobs.
        windows: For how long keys are kept, by their hashes.
        refused: Why some can't be stored.
    """

    def __init__(self, database: Database, jobs: Sequence[NewJob], there_before: Collection[UUID], now: datetime) -> None:
        self._database, self._jobs, self._there_before, self._now = database, jobs, there_before, now
        self.results: dict[int, Inserted] = {}
        self.stand: set[UUID] = set()
        self.fresh: dict[UUID, Row] = {}
        self.replaced: dict[UUID, Row] = {}
        self.stood_in: set[UUID] = set()
        self.taken: dict[UUID, Row] = {}
        self._let_go: dict[UUID, Row] = {}
        self.windows: dict[UUID, Window] = {}
        self.refused: list[AioqueueError] = []

    @property
    def may_close_a_circle(self) -> bool:
        """Whether a job for which others may wait already is to wait itself."""
        return any(self.seen()[job_id].new.blockers for job_id in self.stood_in)

    def wanted(self) -> dict[UUID, list[Edge]]:
        """What each job is to wait for, by the ids that were given; also for the end of the chain whose key it took over."""
        rows = {**self.fresh, **self.replaced}
        edges = {job_id: [*edges_of(job_id, row.new.blockers), *self._taken_over(job_id)] for job_id, row in rows.items()}
        return {job_id: each for job_id, each in edges.items() if each}

    def _taken_over(self, job_id: UUID) -> list[Edge]:
        if job_id in self.taken:
            return [Edge(job_id, TAKEN_OVER_ORDINAL, self.taken[job_id].chain, settled=True, places=b"[]")]
        return [edge for edge in self._database.blockers.of(job_id) if edge.ordinal == TAKEN_OVER_ORDINAL]

    @property
    def in_order(self) -> list[Inserted]:
        """The answers, in the jobs' order."""
        return [self.results[place] for place in range(len(self._jobs))]

    def add(self, place: int, new: NewJob) -> None:
        """Decide about one more."""
        self.results[place] = self._decide(new)

    def _decide(self, new: NewJob) -> Inserted:
        rows = seen_by(self)
        if new.id in self._there_before:
            return Inserted(new.id, created=False)
        if new.id in rows or (new.chosen_id and self._has_steps(new.id)):
            return self._there(new, rows.get(new.id))
        if new.unique is None:
            return self._store(new)
        if (holder := key_holder(rows, new)) is not None:
            return self._held(new, holder)
        if (chain_id := window_holder(self._database, new, self._now)) is not None:
            return self._keep(new, chain_id)
        return self._store(new)

    def seen(self) -> Mapping[UUID, Row]:
        """The rows that there are, as they become."""
        return ChainMap(self.fresh, self._let_go, self.replaced, self._database.rows)

    def _has_steps(self, chain_id: UUID) -> bool:
        return any(row.chain == chain_id for row in self._database.rows.values())

    def _there(self, new: NewJob, row: Row | None) -> Inserted:
        if new.chosen_id and row is not None and is_of_another_type(new, row):
            return self._refuse(new, wrong_type_of_chosen(new))
        return Inserted(new.id, created=False)

    def _held(self, new: NewJob, holder: Row) -> Inserted:
        assert new.unique is not None
        if new.unique.on_conflict != "replace":
            return self._keep(new, told_of(holder))
        if holder.locked(self._now):
            raise StoreContended(f"an open transaction holds the job {holder.new.id}, which has the unique key of {new.id}")
        if can_be_replaced(holder):
            return self._replace(new, holder)
        return self._store(new, takes_over=holder)

    def _keep(self, new: NewJob, chain_id: UUID) -> Inserted:
        assert new.unique is not None
        if new.unique.on_conflict != "raise":
            return Inserted(chain_id, created=False)
        return self._refuse(new, duplicate_job(new, chain_id))

    def _refuse(self, new: NewJob, error: AioqueueError) -> Inserted:
        self.refused.append(error)
        return Inserted(new.id, created=False, refused=error)

    def _store(self, new: NewJob, *, takes_over: Row | None = None) -> Inserted:
        row = make_row(new, self._now)
        if takes_over is not None:
            self.taken[new.id] = takes_over
            self._let_go[takes_over.new.id] = replace(takes_over, unique_hash=None)
            hold_back(row, len(new.blockers) + 1)
        self.fresh[new.id] = row
        self._done(new, new.id)
        return Inserted(new.id, created=True)

    def _replace(self, new: NewJob, holder: Row) -> Inserted:
        row = replacement(holder, new, self._now)
        hold_back(row, len(new.blockers) + sum(not edge.resolved for edge in self._taken_over(holder.new.id)))
        self.stood_in.add(holder.new.id)
        where = self.fresh if holder.new.id in self.fresh else self.replaced
        where[holder.new.id] = row
        self._done(new, holder.new.id)
        return Inserted(holder.new.id, created=False, replaced=True)

    def _done(self, new: NewJob, job_id: UUID) -> None:
        self.stand.add(new.id)
        if new.unique is not None and new.unique.window_seconds is not None:
            until = self._now + timedelta(seconds=new.unique.window_seconds)
            self.windows[unique_hashes(new)[0]] = Window(job_id, until)


def seen_by(decisions: Decisions) -> Mapping[UUID, Row]:
    """Where a job of a batch is looked for, and the holder of its key: what stands before it in the batch counts."""
    return decisions.seen()


def is_of_another_type(new: NewJob, row: Row) -> bool:
    """Whether the job that is there with a chosen id can't be the one that was meant."""
    return row.new.type not in new.unique_names


def replacement(holder: Row, new: NewJob, now: datetime) -> Row:
    """A waiting job as it becomes when another takes its place. `Database.replace` does the rest."""
    require_storable(new)
    run_at = due_when_replaced(holder, new, now)
    return replace(
        holder,
        new=replace(new, id=holder.new.id),
        state=StoredState.PENDING,
        run_at=run_at,
        expires_at=expires_at(new, run_at),
        open_blockers=0,
    )


def due_when_replaced(holder: Row, new: NewJob, now: datetime) -> datetime:
    """When a job is due whose place another has taken: not later than so long after it was made, if that's given."""
    wanted = first_due(new, now)
    if new.max_delay is None:
        return wanted
    return max(now, min(wanted, due_at(holder.created_at, None, new.max_delay)))
