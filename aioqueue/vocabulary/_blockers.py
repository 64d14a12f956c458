"""Blockers: chains whose ends other jobs wait for. What is stored of them, and what a store tells of them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.vocabulary._states import JobState

__all__ = ["Blocker", "ChainEnd", "EndedBlocker", "NewBlocker", "Tended"]


class ChainEnd(IntEnum):
    """How a chain has ended, as those that waited for it are told. The numbers are `StoredState`'s, and one more."""

    COMPLETED = 4
    FAILED = 6
    CANCELLED = 7
    DELETED = 8


@dataclass(frozen=True, slots=True)
class NewBlocker:
    """One chain for whose end a new job waits.

    Attributes:
        chain_id: Any step's id of a chain that is stored, or the id of a job that is stored with it, before it in the batch.
        settled: Whether the job runs however the chain ends; otherwise it fails if the chain doesn't complete.
        places: Where in the job's payload the end stands, as JSON: `[["output", "pages", 0], ["settled", "report"]]`. The first
            of each is what stands there, the others are the way to it: names of objects, numbers of arrays. The payload has
            null at these places.
    """

    chain_id: UUID
    settled: bool = False
    places: bytes = b"[]"


@dataclass(frozen=True, slots=True)
class EndedBlocker:
    """A chain that a claimed job has waited for, as it ended.

    Attributes:
        chain_id: Its id.
        end: How it ended.
        output: Its output as JSON, if it has completed.
        cause: If it hasn't: what became of the first job that didn't complete, as text.
        places: As in `NewBlocker`.
    """

    chain_id: UUID
    end: ChainEnd
    output: bytes | None = None
    cause: str = ""
    places: bytes = b"[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One chain that a job waits for, or has waited for, or one job that waits for a chain: for people.

    Attributes:
        job_id: The job that waits.
        ordinal: The place of the chain among those that the job waits for, from 0.
        chain_id: The chain that it waits for.
        settled: Whether the job runs however the chain ends.
        resolved: Whether the chain's end has been counted.
        type: The type of the chain's live or last step; None if it's gone.
        state: That step's state; None if it's gone.
    """

    job_id: UUID
    ordinal: int
    chain_id: UUID
    settled: bool
    resolved: bool
    type: str | None = None
    state: JobState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tended:
    """What one portion of `Store.tend` has done.

    Attributes:
        resolved: Ends of chains that were told to a job that waited for them.
        failed: Jobs that have failed with it, since a chain that they waited for didn't complete.
        expired: Jobs that were discarded, since they hadn't been started in time.
        resumed: Jobs that were held and are pending again, since their key isn't paused any more.
        more: Whether there is more to do at once.
    """

    resolved: int = 0
    failed: int = 0
    expired: int = 0
    resumed: int = 0
    more: bool = False
