"""What is to be decided of a schedule's ticks now: a pure function of what is stored and the database's clock.

Whoever decides ticks does this with each schedule that `due_schedules` gives:

    due = work_out(schedule, now)                             # which ticks are enqueued, which aren't, and which is the next
    jobs = [job_of(schedule, nominal_time) for nominal_time in due.nominal_times]
    tick = tick_of(schedule, due, jobs)                       # for the store's `tick`

`work_out` raises a `ConfigurationError` for one that this process can't work out, and `job_of` a `ValueError` for one whose job
it can't read: others may. A tick by hand is `tick_by_hand(schedule, job_of(schedule, now))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.definitions._timing import timing_of
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._schedule_template import decode_template
from aioqueue.vocabulary._schedules import SkippedTicks, Tick
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioqueue.definitions._timing import NewestTicks
    from aioqueue.vocabulary._new_job import NewJob
    from aioqueue.vocabulary._schedules import NewSchedule, StoredSchedule

__all__ = ["GRACE_OF_NONE", "DueTicks", "job_of", "tick_by_hand", "tick_of", "work_out"]

GRACE_OF_NONE = 60.0
"""Seconds by which a tick may be late with `catch_up="none"`: for a worker that was busy, or starts just then."""

_NEXT_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DueTicks:
    """What is to be decided of one schedule.

    Attributes:
        next_at: Its next tick from then on; None if there is none within 50 years.
        nominal_times: The ticks that are to be enqueued, oldest first.
        skipped: Those that aren't, and why.
    """

    next_at: datetime | None
    nominal_times: tuple[datetime, ...] = ()
    skipped: tuple[SkippedTicks, ...] = ()


def work_out(schedule: StoredSchedule, now: datetime) -> DueTicks:
    """Work out what is to be decided. If nothing is due yet, only the next tick.

    Arguments:
        schedule: As it's stored.
        now: The database's clock, in UTC.

    Raises:
        ConfigurationError: It can't be worked out here: its time zone isn't known, its expression can't be read, or the extra
            `cron` isn't installed.
    """
    definition = schedule.definition
    timing = timing_of(definition, schedule.anchor)
    next_at = timing.after(now)
    if schedule.next_at is not None and schedule.next_at > now:
        return DueTicks(next_at)
    counted_from = schedule.since
    if schedule.next_at is None and schedule.last_at is not None:
        counted_from = max(counted_from, schedule.last_at)
    # A clock that had jumped ahead may have left later times: ticks count again from now on, at the latest.
    start = min(counted_from, now) + _NEXT_MOMENT
    if schedule.next_at is not None:
        start = max(start, schedule.next_at)
    most = definition.catch_up_limit if definition.catch_up == "all" else 1
    return _caught_up(definition, timing.newest(start, now, most), now, next_at)


def _caught_up(definition: NewSchedule, newest: NewestTicks, now: datetime, next_at: datetime | None) -> DueTicks:
    if not newest.ticks:
        return DueTicks(next_at)
    if definition.catch_up == "all":
        reason = f"missed: of those, the newest {definition.catch_up_limit} are caught up on"
        return DueTicks(next_at, newest.ticks, _skipped(newest.last_earlier, newest.earlier, reason))
    grace = GRACE_OF_NONE if definition.catch_up == "none" else definition.grace
    (tick,) = newest.ticks
    if (now - tick).total_seconds() > grace:
        reason = f"missed: it couldn't be decided within {duration_text(grace)}"
        return DueTicks(next_at, (), _skipped(tick, newest.earlier + 1, reason))
    return DueTicks(next_at, newest.ticks, _skipped(newest.last_earlier, newest.earlier, "missed: a later one was due by then"))


def _skipped(newest: datetime | None, count: int, reason: str) -> tuple[SkippedTicks, ...]:
    return () if newest is None else (SkippedTicks(nominal_time=newest, count=count, reason=reason),)


def job_of(schedule: StoredSchedule, nominal_time: datetime) -> NewJob:
    """Make the job of one tick, with a new id. `Client.decide_tick` adds what the enqueueing client adds: its webhook (an empty
    one stands for nobody who is told), its trace context, and what its middlewares do.

    Arguments:
        schedule: As it's stored.
        nominal_time: The tick's, in UTC.

    Raises:
        ValueError: The stored job can't be read: newer code may have written it.
    """
    return decode_template(schedule.definition.template, new_id(), Origin(schedule=schedule.name, nominal_time=nominal_time))


def tick_of(schedule: StoredSchedule, due: DueTicks, jobs: Sequence[NewJob]) -> Tick:
    """Make what a store decides at once.

    Arguments:
        schedule: As it was worked out.
        due: What is to be decided.
        jobs: One for each nominal time, in order.
    """
    return Tick(
        name=schedule.name,
        version=schedule.version,
        expected=schedule.next_at,
        next_at=due.next_at,
        jobs=tuple(jobs),
        skipped=due.skipped,
        alone=schedule.definition.overlap == "skip",
    )


def tick_by_hand(schedule: StoredSchedule, job: NewJob) -> Tick:
    """Make an operator's tick, beside the schedule's own."""
    return Tick(name=schedule.name, version=schedule.version, expected=None, next_at=None, jobs=(job,), by_hand=True)
