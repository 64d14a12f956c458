"""Watches jobs that wait for others: none begins early, none is left, and each gets what it has waited for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioqueue.store_rules._cancelling import CANCELLED
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import SettlementKind
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import AttemptError, ClaimedJob, StoredState
    from tests.simulation.account import Book, Fence, Truth
    from tests.simulation.requests import RequestChecker

_ENDS = {
    SettlementKind.COMPLETED: ChainEnd.COMPLETED,
    SettlementKind.FAILED: ChainEnd.FAILED,
    SettlementKind.CANCELLED: ChainEnd.CANCELLED,
}


class WaitingChecker:
    """See the module.

    Arguments:
        book: The account.
        requests: Told of jobs that ended since that was asked for.
        seconds: A time of day, as seconds of the history.

    Attributes:
        children: Jobs that were stored with outcomes.
        answered: Chains that somebody has begun to end from outside.
    """

    def __init__(self, book: Book, requests: RequestChecker, seconds: Callable[[datetime], float]) -> None:
        self._book = book
        self._require = book.require
        self._requests = requests
        self._seconds = seconds
        self.answered: set[UUID] = set()
        self.children: set[UUID] = set()

    def last(self, chain: UUID) -> Truth | None:
        """The live or last step of a chain."""
        truth = self._book.jobs.get(chain)
        while truth is not None and truth.next is not None:
            truth = self._book.jobs.get(truth.next)
        return truth

    def _ended(self, chain: UUID) -> ChainEnd | None:
        last = self.last(chain)
        return None if last is None or last.ended is None else _ENDS.get(last.ended)

    def claimed(self, job: ClaimedJob) -> None:
        """A worker gets a job: what it has waited for must have ended, so that it can run, and it's told how."""
        truth, name = self._book.jobs[job.id], self._book.name(job.id)
        for blocker in truth.new.blockers:
            end = self._ended(blocker.chain_id)
            whom = self._book.name(blocker.chain_id)
            self._require(Promise.NOT_EARLY, end is not None, f"{name} was claimed, and {whom} that it waits for hasn't ended")
            useful = blocker.settled or end is ChainEnd.COMPLETED
            self._require(Promise.NEEDS_OUTPUT, useful, f"{name} was claimed, and {whom} whose output it needs is {end!r}")
        right = [(each.chain_id, self._ended(each.chain_id)) for each in truth.new.blockers]
        said = [(each.chain_id, each.end) for each in job.blockers]
        self._require(Promise.NEEDS_OUTPUT, said == right, f"{name} is told {said}, and it should be {right}")
        for each in job.blockers:
            last, whom = self.last(each.chain_id), self._book.name(each.chain_id)
            its_own = last is not None and each.output == last.output
            self._require(Promise.NEEDS_OUTPUT, its_own, f"{name} is given another output of {whom}")

    def stored_with(self, truth: Truth, fence: Fence, what: str) -> None:
        """An outcome was written: what its run has enqueued must be there, or not."""
        run = truth.runs.get(fence)
        if run is None or truth.rewound:
            return
        stored = truth.ended in {SettlementKind.COMPLETED, SettlementKind.CONTINUED}
        for child in run.children:
            there = child in self._book.jobs
            wrong = f"{what} was written, and {self._book.name(child)} is {'' if there else 'not '}stored"
            self._require(Promise.CHILDREN, there == stored, wrong)
            if stored:
                self.children.add(child)

    def unblocked(self, row: Row) -> None:
        """A job that waited may have nothing to wait for any more."""
        truth = self._book.jobs[row.new.id]
        truth.due = self._seconds(row.run_at)
        truth.expires = None if row.expires_at is None else self._seconds(row.expires_at)

    def ended(self, row: Row, state: StoredState, error: AttemptError | None) -> None:
        """A job was ended without a worker: since what it needs won't be there, or since it wasn't started in time."""
        truth, name = self._book.jobs[row.new.id], self._book.name(row.new.id)
        said = "" if error is None else f"{error.type}: {error.message}"
        self._book.note(f"{name} {state.name}, without a worker: {said}")
        self._require(Promise.NOT_AGAIN, truth.ended is None, f"{name} was ended after its end")
        outside = error is None or error.type not in {"Expired", "BlockerFailed", CANCELLED}
        free = outside or truth.holder is None
        self._require(Promise.ONE_HOLDER, free, f"{name} was ended while {truth.holder} held it")
        if outside:
            self._require(Promise.ASKED_FOR, row.chain in self.answered, f"{name} was ended, and nobody wanted it")
            truth.outside, truth.holder = True, None
        elif error is not None and error.type == CANCELLED:
            self._requests.ended(row)
            truth.outside = True
        elif error is not None and error.type == "Expired":
            late = truth.expires is not None and self._book.now() >= truth.expires and not truth.attempt + truth.reschedules
            self._require(Promise.EXPIRY, late, f"{name} was discarded, and it could still be started")
        else:
            needed = [each.chain_id for each in truth.new.blockers if not each.settled]
            bad = any(self._ended(each) in {ChainEnd.FAILED, ChainEnd.CANCELLED} for each in needed)
            self._require(Promise.NEEDS_OUTPUT, bad, f"{name} has failed, and nothing that it needs has")
        truth.ended, truth.output, truth.ended_at = SettlementKind(int(state)), row.output, self._book.now()

    def told_of_answer(self, chain: UUID, kind: SettlementKind | None) -> None:
        """Whoever ended a chain from outside hears that it's so; or, without a kind, that it had ended before."""
        last, name = self.last(chain), self._book.name(chain)
        ended = None if last is None else last.ended
        self._require(Promise.ANSWERED, ended is not None, f"{name} was said to have ended, and hasn't")
        right = kind is None or (last is not None and last.outside and ended is kind)
        self._require(Promise.ANSWERED, right, f"{name} was said to be {kind and kind.name} from outside, and is {ended!r}")

    def locked_by_transaction(self, held: AbstractSet[UUID], *, free: Mapping[UUID, datetime | None]) -> None:
        """Somebody's open transaction has rows locked, and has let go of others, which someone else may have locked too."""
        now = self._book.now()
        until = dict.fromkeys(held, math.inf)
        until |= {job_id: now if moment is None else max(now, self._seconds(moment)) for job_id, moment in free.items()}
        for job_id in until.keys() & self._book.jobs.keys():
            self._book.jobs[job_id].locked_until = until[job_id]

    def look(self, database: Database) -> None:
        """After each change: who waits for a chain that has ended was told, or there is a note that it's to be."""
        if self._book.violation is not None:
            return
        for edge in database.blockers.unresolved():
            end = database.blockers.ends.get(edge.chain_id)
            ended = edge.chain_id in self._book.jobs and self._ended(edge.chain_id) is not None
            noted = not ended or (end is not None and end.untold)
            whom = self._book.name(edge.chain_id)
            self._require(Promise.TOLD, noted, f"{whom} has ended, and {self._book.name(edge.job_id)} isn't told, nor to be")

    def at_end(self, enqueued: AbstractSet[UUID]) -> None:
        """Whatever is stored, somebody has enqueued, and if an attempt did, its outcome was written."""
        for job_id, truth in self._book.jobs.items():
            known = truth.position > 0 or truth.new.type != "child" or job_id in enqueued | self.children
            self._require(Promise.CHILDREN, known, f"{self._book.name(job_id)} is stored, and its parent's outcome isn't")

    def look_at_those_left(self, left: Iterable[UUID]) -> None:
        """Nobody waits in the end for what has ended."""
        for job_id in left:
            blockers = self._book.jobs[job_id].new.blockers
            waits = any(self._ended(each.chain_id) is None for each in blockers)
            started = self._book.jobs[job_id].claims > 0
            name = self._book.name(job_id)
            self._require(
                Promise.NOT_LEFT, waits or not blockers or started, f"{name} waits, and all has ended that it waits for"
            )
