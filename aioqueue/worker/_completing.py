"""How far an attempt is with completing its job in a transaction of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioqueue.vocabulary._job import LostReason
    from aioqueue.worker._outcome import Outcome

__all__ = ["Completing"]


class Completing:
    """What a slot knows of its attempt's completing transactions. One after the other may be tried.

    Attributes:
        entered: Whether a block is open, from before it has the row locked.
        holds: Whether a transaction of the attempt's has the job's row locked, until it's known how that has ended. Nobody else
            can end the job meanwhile: where its claim is said to be lost, that may be the effect of our own commit.
        lost: Why the claim was said to be lost meanwhile.
        given: What `done` was given.
        outcome: What that says of the attempt.
        enqueued: How many jobs the attempt had enqueued before `done`.
        more: Whether not all were told who wait for the end of its chain.
        cancelled: Whether its chain's next job was written as cancelled, since that was asked for.
        unseen: Whether a block in a transaction of the user's was left without an error, and nobody has looked yet whether that
            was committed.
        sealed: The outcome, once it's committed: it stands, whatever comes later.
    """

    __slots__ = ("cancelled", "enqueued", "entered", "given", "holds", "lost", "more", "outcome", "sealed", "unseen")

    def __init__(self) -> None:
        self.entered = self.holds = self.unseen = self.more = self.cancelled = False
        self.lost: LostReason | None = None
        self.given: object = None
        self.outcome: Outcome | None = None
        self.enqueued = 0
        self.sealed: Outcome | None = None

    def hear_lost(self, reason: LostReason) -> bool:
        """Hear that the claim is lost.

        Returns:
            Whether that's to be ignored: the job is completed, or it isn't known yet how the transaction has ended.
        """
        if self.holds:
            self.lost = reason
        return self.holds or self.sealed is not None
