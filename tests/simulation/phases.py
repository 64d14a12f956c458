"""Watches phases and progress: what was completed isn't run again, and who writes about them holds the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._phases import PhaseState
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from tests.simulation.account import Book

__all__ = ["PHASES", "PhaseChecker"]

PHASES = ("download", "process", "upload")


class PhaseChecker:
    """See the module.

    Arguments:
        book: The account.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._require = book.require
        self._given: dict[tuple[UUID, str], str] = {}
        self._said: dict[tuple[UUID, int], float] = {}
        self.in_order = True
        """Whether what is written of progress comes in the order in which it's said: unless requests may be late."""

    # -- what handlers see --------------------------------------------------------------------------------------------

    def began(self, job: ClaimedJob, name: str) -> None:
        """The function of a phase is called. Who has lost the job meanwhile, and hasn't heard of that, may do so once more."""
        what = f"{name} of {self._book.name(job.id)}"
        self._book.note(f"{what} begins, claim {job.claims}")
        truth = self._book.jobs.get(job.id)
        newest = truth is not None and truth.claims == job.claims
        given = self._given.get((job.id, name)) if newest else None
        self._require(Promise.PHASE_ONCE, given is None, f"{what} runs by claim {job.claims}, and its result was {given}")

    def gave(self, job: ClaimedJob, name: str, result: str) -> None:
        """A phase has given its result to a handler: what its function has returned, or what is stored of it."""
        given = self._given.setdefault((job.id, name), result)
        what = f"{name} of {self._book.name(job.id)}"
        self._require(Promise.PHASE_RESULT, given == result, f"{what} gave {given} before, and gives {result}")

    # -- what the database sees ---------------------------------------------------------------------------------------

    def phase_written(self, write: PhaseWrite) -> None:
        """Where a phase stands was stored."""
        what = f"{write.name} of {self._book.name(write.id)}"
        self._book.note(f"{what} is {write.state}, claim {write.claims}")
        self._by_the_holder(write, what)
        if write.state is not PhaseState.COMPLETED:
            ended = self._given.get((write.id, write.name))
            self._require(Promise.PHASE_ONCE, ended is None, f"{what} is stored as {write.state}, and its result was {ended}")

    def progress_written(self, write: ProgressWrite) -> None:
        """How far a job has come was stored."""
        what = f"the progress of {self._book.name(write.id)}"
        self._by_the_holder(write, what)
        before = self._said.get((write.id, write.claims), 0.0)
        self._said[write.id, write.claims] = write.percent
        forward = write.percent >= before or not self.in_order
        self._require(Promise.PROGRESS_FORWARD, forward, f"{what} was {before}, and is {write.percent} in claim {write.claims}")

    def _by_the_holder(self, write: PhaseWrite | ProgressWrite, what: str) -> None:
        truth, fence = self._book.jobs.get(write.id), (write.lease_id, write.claims)
        held = truth is not None and truth.holder == fence
        self._require(Promise.BY_THE_HOLDER, held, f"{what} was written by claim {write.claims}, which doesn't hold it")
