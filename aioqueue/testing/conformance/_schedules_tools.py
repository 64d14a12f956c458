"""What the cases about schedules share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

from aioqueue.testing.conformance._tools import check, equal, job
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._schedule_template import encode_template
from aioqueue.vocabulary._schedules import NewSchedule, Tick

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioqueue.testing.conformance._tools import JobFields
    from aioqueue.vocabulary._abilities import SupportsSchedules
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._schedules import CatchUp, DecidedTick, Overlap, SkippedTicks, StoredSchedule, Ticked

__all__ = [
    "ScheduleFields",
    "as_owned",
    "decide",
    "due_names",
    "expect_schedule",
    "names_of",
    "now_of",
    "put_one",
    "schedule",
    "scheduled_job",
    "tick_of",
    "tick_one",
]


class ScheduleFields(TypedDict, total=False):
    """The fields of `NewSchedule` that a case may give: keyword arguments of `schedule`."""

    owner: str | None
    template: bytes
    cron: str | None
    every: float | None
    timezone: str
    catch_up: CatchUp
    grace: float
    catch_up_limit: int
    overlap: Overlap


def schedule(name: str = "s", **given: Unpack[ScheduleFields]) -> NewSchedule:
    """A schedule of jobs of the type `tick`: every minute, unless it's said."""
    fields: ScheduleFields = {"owner": None, "template": encode_template(job("tick")), "every": 60.0, **given}
    return NewSchedule(name=name, job_type="tick", **fields)


def as_owned(new: NewSchedule, owner: str = "shop") -> NewSchedule:
    """The schedule as a registry's code defines it."""
    return NewSchedule(name=new.name, owner=owner, job_type=new.job_type, template=new.template, every=new.every)


def scheduled_job(name: str, nominal_time: datetime, **fields: Unpack[JobFields]) -> NewJob:
    """The job of a tick."""
    fields["origin"] = Origin(schedule=name, nominal_time=nominal_time)
    return job("tick", **fields)


async def put_one(store: SupportsSchedules, new: NewSchedule) -> StoredSchedule:
    """Store a schedule, which must be new or another one than before."""
    equal(list(await store.put_schedules([new])), [True], f"whether {new.name} was stored or changed")
    return await expect_schedule(store, new.name)


async def expect_schedule(store: SupportsSchedules, name: str) -> StoredSchedule:
    """The schedule, which must exist."""
    (found,) = await store.fetch_schedules([name])
    if found is None:
        raise AssertionError(f"the schedule {name} must exist")
    return found


async def names_of(store: SupportsSchedules) -> list[str]:
    """The names of all schedules, in order."""
    return [each.name for each in (await store.list_schedules(1000)).schedules]


async def due_names(store: SupportsSchedules, limit: int = 1000) -> list[str]:
    """The names of those that are due, the earliest first."""
    return [each.name for each in (await store.due_schedules(limit)).schedules]


async def now_of(store: SupportsSchedules) -> datetime:
    """The database's time."""
    return (await store.due_schedules(1)).now


def tick_of(stored: StoredSchedule, next_at: datetime | None, *jobs: NewJob, alone: bool = False) -> Tick:
    """What a worker has worked out for a schedule as it has read it."""
    return Tick(name=stored.name, version=stored.version, expected=stored.next_at, next_at=next_at, jobs=jobs, alone=alone)


async def tick_one(store: SupportsSchedules, what: Tick) -> Ticked:
    """Decide one, and give what became of it."""
    results = await store.tick([what])
    equal(len(results), 1, "results of one tick")
    return results[0]


async def decide(
    store: SupportsSchedules,
    name: str,
    *,
    next_in: float = 3600.0,
    job: bool | NewJob = False,
    skipped: Sequence[SkippedTicks] = (),
) -> Sequence[DecidedTick]:
    """Decide a tick of a schedule as it is, which must be accepted; returns what became of it.

    Arguments:
        store: Where.
        name: Of which.
        next_in: Seconds from now until its next tick.
        job: Whether a job is enqueued for this very moment, or which one.
        skipped: What is skipped.
    """
    stored, now = await expect_schedule(store, name), await now_of(store)
    jobs = (scheduled_job(name, now),) if job is True else (job,) if job else ()
    what = Tick(
        name=name,
        version=stored.version,
        expected=stored.next_at,
        next_at=now + timedelta(seconds=next_in),
        jobs=jobs,
        skipped=tuple(skipped),
    )
    result = await tick_one(store, what)
    check(result.decided, f"a tick of {name} as it is must be decided")
    equal(len(result.ticks), len(jobs) + len(skipped), "what became of its jobs, and what was skipped")
    return result.ticks
