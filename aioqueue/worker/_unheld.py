"""Finds claims that the database counts as ours and that we don't hold, such as those of a claim whose answer was lost."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioqueue.runtime._log import event
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from aioqueue.vocabulary._job import Claim
    from aioqueue.worker._holdings import Holdings
    from aioqueue.worker._writer import Writer

__all__ = ["Unheld"]

logger = logging.getLogger("aioqueue.worker")


class Unheld:
    """Compares what renewals say with what is held, and gives back what nobody answers for.

    One renewal isn't enough: what it calls ours may be on its way to us, or have ended since it was sent. A claim is given
    back when two renewals in a row say so, and no claim of jobs that was under way at the first of them still is. Claims of
    jobs are numbered for that: a busy worker always has one under way.

    Arguments:
        name: The worker's.
        holdings: What is held.
        writer: Gives back.
    """

    def __init__(self, name: str, holdings: Holdings, writer: Writer) -> None:
        self._name = one_line(name)
        self._holdings = holdings
        self._writer = writer
        self._newest = 0
        self._under_way: set[int] = set()
        self._suspects: dict[int, dict[Claim, int]] = {}
        self._let_go: dict[int, set[Claim]] = {}

    @contextmanager
    def claiming(self) -> Generator[None]:
        """Within the block a claim of jobs is under way: what the database knows as ours may be on its way to us."""
        self._newest += 1
        number = self._newest
        self._under_way.add(number)
        try:
            yield
        finally:
            self._under_way.discard(number)

    def let_go(self, lease_id: int, claims: Iterable[Claim]) -> None:
        """Note claims that were cancelled because their lease was over. They're given back once it's renewed after all."""
        self._let_go.setdefault(lease_id, set()).update(claims)

    def seen(self, lease_id: int, unheld: Iterable[Claim]) -> None:
        """Look at what a renewal of a lease calls ours, and wasn't held when it was sent."""
        holdings = self._holdings
        before, let_go = self._suspects.get(lease_id, {}), self._let_go.get(lease_id, set())
        suspects: dict[Claim, int] = {}
        for claim in unheld:
            if claim in holdings.held or claim in holdings.returning:
                continue
            if claim in holdings.running:
                continue  # nobody else may begin another body beside the one that still runs
            newest_then = before.get(claim)
            if claim in let_go:
                let_go.discard(claim)
                why = "it was cancelled when its lease was over, and nobody has taken it"
            elif newest_then is not None and all(number > newest_then for number in self._under_way):
                why = "the answer to its claim was lost"
            else:
                suspects[claim] = self._newest if newest_then is None else newest_then
                continue
            logger.warning(
                "worker %s: job %s is given back: %s",
                self._name,
                claim.id,
                why,
                extra=event("lease.claim_returned", worker=self._name, job_id=str(claim.id)),
            )
            self._writer.give_back(lease_id, claim)
        if suspects:
            self._suspects[lease_id] = suspects
        elif before:
            del self._suspects[lease_id]

    def forget(self, lease_id: int) -> None:
        """Forget what is known of a lease that is lost: nothing of it can be given back."""
        self._suspects.pop(lease_id, None)
        self._let_go.pop(lease_id, None)
