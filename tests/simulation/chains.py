"""Watches chains: each goes on step by step to one end, which is found by its id, and keeps its key all the while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory import _insert_decisions, _listing
from aioqueue.vocabulary._job import SettlementKind
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._job import ClaimedJob, Settlement
    from tests.simulation.account import Book, Fence, Truth


class ChainChecker:
    """See the module.

    Arguments:
        book: The account.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._require = book.require

    def told(self, job: ClaimedJob) -> None:
        """A worker gets a job, with its place."""
        truth = self._book.jobs[job.id]
        right = (job.chain_id, job.position) == (truth.chain, truth.position)
        said = f"{self._book.name(job.id)} is told that it's at {job.position} of {self._book.name(job.chain_id)}"
        self._require(Promise.IN_ORDER, right, f"{said}, and it's at {truth.position}")

    def may_end(self, truth: Truth, each: Settlement, what: str) -> None:
        """Something is written about a job that may have ended already."""
        if truth.ended is None or SettlementKind.CONTINUED not in {truth.ended, each.kind}:
            return
        promise = Promise.ONE_NEXT if truth.ended is each.kind else Promise.ONE_END
        self._book.violated(promise, f"{what} was written after it was {truth.ended.name}")

    def continued(self, truth: Truth, each: Settlement, fence: Fence, what: str) -> None:
        """A step has ended, and the next one must be there in its place."""
        following = None if each.next is None else self._book.jobs.get(each.next.id)
        self._require(Promise.ONE_NEXT, following is not None, f"{what} was written, and no next step was stored")
        if following is None:
            return
        run = truth.runs.get(fence)
        returned = truth.rewound or (run is not None and run.next == following.new.id)
        self._require(Promise.ONE_NEXT, returned, f"{what} was written, and its handler returned something else")
        first = following.chain == following.new.id and following.position == 0
        self._require(Promise.ONE_NEXT, first, f"{what} was written with a step that another continued with")
        truth.next, following.chain, following.position = following.new.id, truth.chain, truth.position + 1

    def _steps(self, chain: UUID) -> list[Truth]:
        steps = [self._book.jobs[chain]]
        while (following := steps[-1].next) is not None:
            steps.append(self._book.jobs[following])
        return steps

    def look(self, database: Database, job_id: UUID) -> None:
        """Look for the chain of a job as those do who wait for its result, or want its key."""
        chain = self._book.jobs[job_id].chain
        lost = job_id not in database.rows  # which breaks another promise
        if chain is None or lost or self._book.violation is not None:
            return
        steps = self._steps(chain)
        first, last, name = steps[0], steps[-1], self._book.name(chain)
        (found,) = _listing.fetch_ends(database, [chain])
        right = found is not None and found.id == last.new.id and found.state.finished == (last.ended is not None)
        said = "nothing" if found is None else f"{self._book.name(found.id)}, {found.state}"
        self._require(Promise.FOUND, right, f"the end of {name} was looked for, and {said} was found")
        if first.new.unique:
            holder = _insert_decisions.key_holder(database.rows, first.new)
            named = None if holder is None else _insert_decisions.told_of(holder)
            right = named == (chain if last.ended is None else None)
            said = "nobody" if named is None else self._book.name(named)
            self._require(Promise.KEY_HELD, right, f"{said} has the key of {name}")

    def at_end(self, database: Database, enqueued: AbstractSet[UUID]) -> None:
        """Look at what is left.

        Arguments:
            database: With all jobs in it.
            enqueued: Those that somebody enqueued.
        """
        for job_id, truth in self._book.jobs.items():
            name = self._book.name(job_id)
            known = truth.position > 0 or job_id in enqueued
            self._require(Promise.ONE_NEXT, known, f"{name} is stored, and nobody continued with it")
            if truth.position or not known or truth.removed:
                continue
            steps = self._steps(job_id)
            listed = [each.id for each in _listing.list_chain(database, job_id, len(steps) + 1, None).jobs]
            self._require(Promise.FOUND, listed == [each.new.id for each in steps], f"other steps of {name} are listed")
            self.look(database, job_id)
