"""What is written of a job that ends without having run: why, so that people find the first cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import AttemptError

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = ["BLOCKER_FAILED", "WAITED_FOR", "blocker_failed", "cause_of", "expired", "how_it_ended", "waited_for"]

BLOCKER_FAILED = "BlockerFailed"
"""The type of the entry in the history of a job that failed since a chain that it waited for didn't complete."""

WAITED_FOR = "it waited for "
"""What that entry's message begins with; the first cause follows."""

_WORDS = {ChainEnd.FAILED: "failed", ChainEnd.CANCELLED: "cancelled", ChainEnd.DELETED: "deleted"}

_LONGEST = 1_000
"""Characters of a cause."""


def cause_of(end: ChainEnd, job_type: str | None, chain_id: UUID, last_error: AttemptError | None = None) -> str:
    """The first cause of what happens to those that waited for a chain: `site.fetch 0190…: failed: ValueError: boom`.

    A chain that ended for the sake of another passes that one's cause on, unchanged.

    Arguments:
        end: How it ended; empty is the cause of a chain that has completed.
        job_type: Of its last step; None if nothing is known of it.
        chain_id: Its id.
        last_error: The newest entry in the history of its last step.
    """
    if end is ChainEnd.COMPLETED:
        return ""
    if last_error is not None and last_error.type == BLOCKER_FAILED:
        return last_error.message.removeprefix(WAITED_FOR)
    return f"{'a job' if job_type is None else job_type} {chain_id}: {how_it_ended(end, last_error)}"


def how_it_ended(end: ChainEnd, last_error: AttemptError | None = None) -> str:
    """The part of a cause behind the job: `failed: ValueError: boom`. Bounded, and without what a text column can't hold."""
    text = _WORDS[end] if last_error is None or end is ChainEnd.DELETED else f"{_WORDS[end]}: {last_error}"
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def waited_for(cause: str) -> str:
    """The message of the entry that says `BLOCKER_FAILED`."""
    return WAITED_FOR + cause


def blocker_failed(cause: str, now: datetime) -> AttemptError:
    """The entry of a job that fails since a chain that it waited for didn't complete."""
    return AttemptError(attempt=0, at=now, type=BLOCKER_FAILED, message=waited_for(cause))


def expired(now: datetime) -> AttemptError:
    """The entry of a job that is discarded, since it hasn't been started in time."""
    return AttemptError(attempt=0, at=now, type="Expired", message="it wasn't started before it expired")
