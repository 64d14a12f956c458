"""Schedules as they're stored, and what becomes of their ticks. A tick is one time at which a schedule's call is due. No
I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._new_job import NewJob

__all__ = [
    "CatchUp",
    "DecidedTick",
    "DueSchedules",
    "Generation",
    "NewSchedule",
    "Overlap",
    "Reconciled",
    "ScheduleChange",
    "SchedulePage",
    "SkippedTicks",
    "StoredSchedule",
    "Tick",
    "TickOutcome",
    "Ticked",
]

CatchUp = Literal["latest", "none", "all"]
"""What becomes of ticks that nobody saw in time: the newest is enqueued, none is, or all are."""

Overlap = Literal["allow", "skip"]
"""Whether a tick is enqueued while the chain of the one before it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """What is said of a schedule by whoever defines it.

    Attributes:
        name: By which it's known; unique in the database.
        owner: The name of the registry whose code defines it; None for one that was put at run time.
        job_type: The full name of the type of its jobs.
        template: Its job, as `encode_template` writes it.
        cron: When its ticks are, as an expression that was checked; None for one with an interval.
        every: Seconds between its ticks, counted from its anchor; None for one with an expression.
        timezone: The name of the zone of a cron expression.
        catch_up: What becomes of missed ticks.
        grace: Seconds by which a missed tick may be late.
        catch_up_limit: How many missed ticks are enqueued at most, the newest ones, with `catch_up="all"`.
        overlap: What becomes of a tick while the chain of the one before it goes on.
    """

    name: str
    owner: str | None
    job_type: str
    template: bytes
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    catch_up: CatchUp = "latest"
    grace: float = 3600.0
    catch_up_limit: int = 100
    overlap: Overlap = "allow"

    @property
    def timing(self) -> tuple[str | None, float | None, str]:
        """What says when its ticks are: where it changes, the schedule begins anew."""
        return self.cron, self.every, self.timezone


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """One schedule as it is stored.

    Attributes:
        definition: What its definer says of it.
        version: One more with each change of the definition, each resumption, and each time that its next tick is forgotten: a
            tick of another version isn't decided. It begins with a number that one of the same name, which was deleted, is
            most unlikely to have had.
        since: Ticks at or before this time don't count: when it was defined, its timing changed, or it was resumed last.
        anchor: From which an interval counts: when it was defined, or its timing changed.
        next_at: Its next tick; None until a worker has worked that out, and where it has found that there is none.
        last_at: The newest tick that was decided; None before the first.
        last_chain: The chain that the newest enqueued tick has made, or found.
        paused: Whether an operator has paused it.
        reason, by: Of the pause.
        ticks: The newest ticks, newest first; where only schedules were asked for, none.
    """

    definition: NewSchedule
    version: int
    since: datetime
    anchor: datetime
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_chain: UUID | None = None
    paused: bool = False
    reason: str = ""
    by: str = ""
    ticks: tuple[DecidedTick, ...] = ()

    @property
    def name(self) -> str:
        """By which it's known."""
        return self.definition.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSchedules:
    """What there is to decide.

    Attributes:
        now: The database's clock, in UTC.
        schedules: Those whose next tick is due or isn't known yet, the earliest first, without paused ones.
        next_in: Seconds until the next tick that isn't due yet; None without any.
    """

    now: datetime
    schedules: tuple[StoredSchedule, ...]
    next_in: float | None = None


class TickOutcome(IntEnum):
    """What became of a tick."""

    ENQUEUED = 1
    SKIPPED = 2
    DUPLICATE = 3
    """Another job has its unique key: that one counts as this tick's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTick:
    """What became of a tick, or of several that were skipped together.

    Attributes:
        nominal_time: The tick's; of several, the newest one's. UTC.
        decided_at: When, in UTC.
        outcome: What.
        reason: Why it was skipped, for people.
        chain_id: The chain that it has made, or found.
        count: How many ticks it stands for.
    """

    nominal_time: datetime
    decided_at: datetime
    outcome: TickOutcome
    reason: str = ""
    chain_id: UUID | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTicks:
    """Ticks that aren't enqueued: the newest of them, how many they are, and why."""

    nominal_time: datetime
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What a worker has worked out for one schedule, to be decided at once.

    Attributes:
        name, version: The schedule.
        expected: Its next tick as it was read: if it's another one by now, somebody else was quicker.
        next_at: Its next tick from then on; None if there is none for as far as can be seen.
        jobs: One for each tick that is to be enqueued, oldest first; `origin` says which.
        skipped: Those that aren't.
        alone: Whether a tick is skipped while the chain of the one before it is there (`overlap="skip"`).
        by_hand: Whether it's an operator's, beside the schedule's own ticks: `expected` and `next_at` don't count, and it may
            be paused.
    """

    name: str
    version: int
    expected: datetime | None
    next_at: datetime | None
    jobs: tuple[NewJob, ...] = ()
    skipped: tuple[SkippedTicks, ...] = ()
    alone: bool = False
    by_hand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What became of one `Tick`.

    Attributes:
        decided: Whether it was decided by this; otherwise somebody else was quicker, or the schedule isn't as it was.
        ticks: What became of its jobs, in order, and of what it skipped.
    """

    decided: bool
    ticks: tuple[DecidedTick, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The schedules of one state of a registry's code.

    Attributes:
        owner: The registry's name.
        digest: Of all its definitions: the same for the same ones.
        release: The number that was given for it; None without one.
    """

    owner: str
    digest: str
    release: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What became of one generation's schedules.

    Attributes:
        current: Whether they're the ones that tick; otherwise those of a newer generation do.
        refused: Whether another one with the same release number and other definitions is there: give a higher number.
        changed: Names of those that were stored, or changed, by this.
        removed: Names of those that were removed by this.
        taken: Names of those that aren't stored, as a schedule of somebody else has the name.
    """

    current: bool
    refused: bool = False
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


class ScheduleChange(IntEnum):
    """What became of one schedule that was to be changed."""

    DONE = 1
    NOT_FOUND = 2
    OWNED = 3
    """It's defined in the code of live workers, which would bring it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """One page of schedules, by their names; `cursor` is None at the end, and `now` the database's clock."""

    schedules: tuple[StoredSchedule, ...]
    cursor: str | None
    now: datetime
