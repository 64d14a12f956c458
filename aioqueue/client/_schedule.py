"""A schedule as it's shown: what is stored of it, and when its next tick is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from aioqueue.definitions._due_ticks import work_out
from aioqueue.definitions._zones import LAST_MOMENT
from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._schedule_template import decode_template

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.vocabulary._new_job import NewJob
    from aioqueue.vocabulary._schedules import CatchUp, DecidedTick, Overlap, StoredSchedule

__all__ = ["ListedSchedules", "Schedule", "shown_schedule"]

_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as it is stored: a snapshot.

    Attributes:
        name: By which it's known; of one that code defines, the registry's name and its own.
        owner: The name of the registry whose code defines it; None for one that was put at run time.
        job_type: The full name of the type of its jobs.
        payload: The arguments of its jobs as stored: a JSON object. `arguments` reads it. None if this version can't read it.
        key, tags, priority: Of its jobs.
        cron: When its ticks are, as an expression; None for one with an interval.
        every: Seconds between its ticks; None for one with an expression.
        timezone: The name of the zone of a cron expression.
        catch_up, grace, catch_up_limit, overlap: As it was defined; `grace` in seconds.
        paused: Whether somebody has paused it: it has no ticks then.
        reason, by: Of the pause.
        next_tick: The next one, in UTC; None if it's paused, or can't be worked out here, as the extra `cron` isn't installed.
        last_tick: The newest one that was decided, in UTC; None before the first.
        last_chain: The chain that the newest enqueued tick has made, or found.
        ticks: What became of the newest ones, newest first.
    """

    name: str
    owner: str | None
    job_type: str
    payload: bytes | None
    key: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 2
    cron: str | None
    every: float | None
    timezone: str
    catch_up: CatchUp
    grace: float
    catch_up_limit: int
    overlap: Overlap
    paused: bool = False
    reason: str = ""
    by: str = ""
    next_tick: datetime | None = None
    last_tick: datetime | None = None
    last_chain: UUID | None = None
    ticks: tuple[DecidedTick, ...] = ()

    @property
    def arguments(self) -> Any:
        """The arguments of its jobs as plain JSON values; None if this version can't read them."""
        return None if self.payload is None else orjson.loads(self.payload)


@dataclass(frozen=True, slots=True)
class ListedSchedules:
    """One page of schedules.

    Attributes:
        schedules: By name.
        cursor: Gives the next page; None at the end. Opaque text.
    """

    schedules: tuple[Schedule, ...]
    cursor: str | None


def shown_schedule(stored: StoredSchedule, now: datetime) -> Schedule:
    """Make what is shown of what is stored.

    Arguments:
        stored: It.
        now: The database's clock, in UTC.
    """
    definition, job = stored.definition, _job(stored)
    return Schedule(
        name=stored.name,
        owner=definition.owner,
        job_type=definition.job_type,
        payload=None if job is None else job.payload,
        key=None if job is None else job.key,
        tags=() if job is None else job.tags,
        priority=2 if job is None else job.priority,
        cron=definition.cron,
        every=definition.every,
        timezone=definition.timezone,
        catch_up=definition.catch_up,
        grace=definition.grace,
        catch_up_limit=definition.catch_up_limit,
        overlap=definition.overlap,
        paused=stored.paused,
        reason=stored.reason,
        by=stored.by,
        next_tick=None if stored.paused else _next_tick(stored, now),
        last_tick=stored.last_at,
        last_chain=stored.last_chain,
        ticks=stored.ticks,
    )


def _job(stored: StoredSchedule) -> NewJob | None:
    try:
        return decode_template(stored.definition.template, _NOBODY, None)
    except ValueError:
        return None


def _next_tick(stored: StoredSchedule, now: datetime) -> datetime | None:
    """As it's stored; or as a worker will work it out, if none has yet."""
    if stored.next_at is not None:
        return stored.next_at if stored.next_at < LAST_MOMENT else None
    try:
        return work_out(stored, now).next_at
    except (ConfigurationError, ValueError, OverflowError):  # one that somebody has written by hand hides no other
        return None
