"""Pauses: what people have said isn't to be started for now. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["HELD_BY_PAUSE", "NewPause", "Pause", "PauseTarget"]

HELD_BY_PAUSE = "pause:"
"""Before a paused key, in `Job.held_by` of a job that is parked since its key is paused."""


class PauseTarget(StrEnum):
    """What is paused."""

    ALL = "all"
    TYPE = "type"
    KEY = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPause:
    """One pause to be stored. Another one of the same target and value by somebody else stands beside it.

    Attributes:
        target: What kind of jobs.
        value: The name of the type, or the key; empty for all.
        by: Who asks, for people; one pause of this target and value by each.
        reason: Why, for people.
        until: When it ends by itself, in UTC; None if it doesn't.
    """

    target: PauseTarget
    value: str = ""
    by: str = ""
    reason: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One pause as it is stored.

    Attributes:
        target, value, by, reason, until: As of `NewPause`.
        at: Since when, in UTC.
        waiting: How many jobs wait for its end though they're due, counted up to 10,000; also those that wait for others too.
    """

    target: PauseTarget
    value: str
    by: str
    reason: str
    until: datetime | None
    at: datetime
    waiting: int = 0
