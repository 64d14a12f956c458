"""What a store answers to a renewal, to an idle worker, and to an operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioqueue.vocabulary._job import Claim, LostReason

__all__ = ["Cancellation", "Changed", "Due", "Pruned", "Renewal"]


class Changed(StrEnum):
    """What became of one job of `retry`, `run_now` or `delete`."""

    DONE = "done"
    NOT_FOUND = "not_found"
    RUNNING = "running"
    WRONG_STATE = "wrong_state"
    """Nothing to retry (not failed or cancelled), nothing to bring forward (not pending)."""
    BLOCKS = "blocks"
    """Not deleted: other unfinished jobs wait for its chain."""
    BLOCKER_FAILED = "blocker_failed"
    """Not retried: it failed since a chain that it waited for did, and that one hasn't been retried."""
    KEY_HELD = "key_held"
    """Not retried: another unfinished chain holds its unique key by now."""
    CONTENDED = "contended"
    """Somebody's open transaction holds its row, its unique key, or what would be changed with it: nothing was changed; try
    again."""


class Cancellation(StrEnum):
    """What became of one chain that was asked to end."""

    CANCELLED = "cancelled"
    """It wasn't running: it has ended, and never starts."""
    CANCELLING = "cancelling"
    """It's running, or somebody holds its row: the request is stored, and whoever runs it is told."""
    FINISHED = "finished"
    """It had ended before, in whichever way."""
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one portion of pruning has done.

    Attributes:
        ids: The jobs that it removed.
        cursor: Where the next portion begins; None at the end.
    """

    ids: tuple[UUID, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What an idle worker waits for, by the database's clock.

    Attributes:
        job: Seconds until the first pending job is due, 0 if one is now; None without any. A job whose due time is
            infinite never counts.
        lease: Seconds until the first lease of somebody else runs out, 0 if one has; None without any. 0 too while jobs
            are running without any lease, except where looking for them would be dear, such as with hundreds of leases:
            `take_expired` finds them always.
        tick: Seconds until the next tick of any schedule that isn't paused, 0 if one is due or isn't known yet; None without
            any.
    """

    job: float | None = None
    lease: float | None = None
    tick: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The answer to one renewal of a lease.

    Attributes:
        valid: Whether the lease exists. If not, all that it held is lost, and the worker has to open another.
        lost: Claims that were asked about and are no longer the lease's, with the reasons.
        unheld: Claims that the lease owns but that weren't asked about: taken since, or by a claim whose answer got lost.
        asked_to_stop: Claims that the lease owns and whose chains were asked to end, with the reasons given; whether or not
            they were asked about. They're still the lease's, until they're settled.
    """

    valid: bool
    lost: Mapping[Claim, LostReason] = field(default_factory=dict["Claim", "LostReason"])
    unheld: tuple[Claim, ...] = ()
    asked_to_stop: Mapping[Claim, str] = field(default_factory=dict["Claim", str])
