"""Watches chains that are asked to end: what isn't running ends at once, and what is running isn't pending again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._answers import Cancellation
from aioqueue.vocabulary._job import Claim, SettlementKind
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Settlement
    from tests.simulation.account import Book, Truth
    from tests.simulation.process import Process

CHOSEN = frozenset({"returned", "failed"})
"""How handlers end that decide what becomes of their job."""


class RequestChecker:
    """See the module.

    Arguments:
        book: The account.

    Attributes:
        wanted: Chains that somebody has begun to ask.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._require = book.require
        self.wanted: set[UUID] = set()
        self._asked: set[UUID] = set()
        self._beside: set[UUID] = set()

    def stored(self, chain: UUID, *, beside: bool) -> None:
        """A request was stored: with a job that is running, or beside one that is locked."""
        self._book.note(f"{self._book.name(chain)} is asked to end{', beside its row' if beside else ''}")
        (self._beside if beside else self._asked).add(chain)
        self._require(Promise.ASKED_FOR, chain in self.wanted, f"{self._book.name(chain)} is asked to end by nobody")

    def forget(self, chain: UUID) -> None:
        """A chain begins anew: nobody has asked that to end."""
        self._asked.discard(chain)
        self._beside.discard(chain)

    def counts(self, truth: Truth) -> bool:
        """Whether the chain of a job that hasn't ended was asked to end."""
        return truth.chain in self._asked or truth.chain in self._beside

    def became(self, truth: Truth, each: Settlement) -> SettlementKind:
        """What a job has to be written as."""
        again = not each.kind.finishes
        gives_way = again or (each.kind is SettlementKind.FAILED and each.yields)
        return SettlementKind.CANCELLED if gives_way and self.counts(truth) else each.kind

    def written(self, truth: Truth, each: Settlement, state: int, what: str, *, orphaned: bool) -> None:
        """An outcome was written, and the job has a state with it."""
        became = self.became(truth, each)
        right = not became.finishes or state == int(became)
        self._require(Promise.ENDS_AS_ASKED, right, f"{what} was written as {state}, and it should be {became.name}")
        run = truth.runs.get((each.lease_id, each.claims))
        chosen = not orphaned and run is not None and (run.how in CHOSEN or run.completing)
        if self.counts(truth) and not truth.refuses:
            right = (became is SettlementKind.CANCELLED) is not chosen
            how = "never ran" if run is None else run.how
            self._require(Promise.ENDS_AS_ASKED, right, f"{what} was written, and {how} after its chain was asked to end")

    def ended(self, row: Row) -> None:
        """A job was ended since that was asked for."""
        name = self._book.name(row.new.id)
        self._require(Promise.ASKED_FOR, row.chain in self.wanted, f"{name} was cancelled, and nobody asked for it")

    def told(self, process: Process, held: Sequence[Claim]) -> None:
        """A worker has got the answer to a renewal, which must have said what was asked to end.

        Arguments:
            process: Whose it is.
            held: The claims that the lease had, and whose chains were asked to end.
        """
        for claim in held:
            for run in self._book.jobs[claim.id].all_runs:
                if run.process is process and run.job.claims == claim.claims and run.asked_at is None:
                    run.asked_at, run.held_up_when_asked = self._book.now(), process.held_up
                    self._book.note(f"{process.name} is told that {self._book.name(claim.id)} is asked to end")

    def held(self, lease_id: int) -> list[Claim]:
        """What a lease has whose chains were asked to end, whatever the store says."""
        jobs = self._book.jobs.items()
        owned = [(job_id, truth) for job_id, truth in jobs if truth.holder is not None and truth.holder[0] == lease_id]
        return [_claim(job_id, truth) for job_id, truth in owned if self.counts(truth)]

    def look(self) -> None:
        """After each change: what was asked to end while it was running has ended, or is running."""
        for job_id, truth in self._book.jobs.items():
            pending = truth.ended is None and truth.holder is None and truth.chain in self._asked
            self._require(
                Promise.ENDS_AS_ASKED, not pending, f"{self._book.name(job_id)} waits, and its chain was asked to end"
            )

    def answered(self, chain: UUID, last: Truth | None, answer: Cancellation) -> None:
        """Whoever has asked is told what became of it."""
        name, ended = self._book.name(chain), None if last is None else last.ended
        self._book.note(f"{name} was asked to end, and is said to be {answer}")
        right = {
            Cancellation.CANCELLED: ended is SettlementKind.CANCELLED,
            Cancellation.CANCELLING: ended is not None or (last is not None and self.counts(last)),
            Cancellation.FINISHED: ended is not None,
            Cancellation.NOT_FOUND: last is not None and last.removed,
        }[answer]
        self._require(Promise.ANSWERED, right, f"{name} was asked to end, said to be {answer}, and is {ended!r}")


def _claim(job_id: UUID, truth: Truth) -> Claim:
    assert truth.holder is not None
    return Claim(job_id, truth.holder[1])
