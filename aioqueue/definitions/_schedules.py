"""Reads what is said of schedules, in code or at run time: all is checked here, and what a store keeps comes out.

For a registry's workers: `registry.schedules` are its schedules as they're stored, and `generation_of(registry.name,
registry.schedules, release)` is the state of its code that they make up. For schedules that are put at run time:
`read_schedule(call, name, cron=..., ...)`. A preview of its ticks: `_timing.upcoming(timing_of(schedule, now), now, 10)`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, get_args

import orjson

from aioqueue.definitions._call import Call
from aioqueue.definitions._continuation import Done
from aioqueue.definitions._names import check_prefix
from aioqueue.definitions._timing import timing_of
from aioqueue.errors import CallError, ConfigurationError, ConflictingOptions, RegistrationError
from aioqueue.vocabulary._safe_text import safe_repr, storable, visible
from aioqueue.vocabulary._schedule_template import encode_template
from aioqueue.vocabulary._schedules import CatchUp, Generation, NewSchedule, Overlap
from aioqueue.vocabulary._sets import sets_in_order
from aioqueue.vocabulary._time import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta
    from typing import Unpack

    from aioqueue.definitions._timing import Timing

__all__ = ["ScheduleOptions", "generation_of", "read_registry_name", "read_schedule", "read_schedule_name", "read_timing"]

_SHORTEST_INTERVAL_SECONDS = 1.0
_LONGEST_NAME_CHARACTERS = 200
_LONGEST_REGISTRY_NAME_CHARACTERS = 100
_MOST_CAUGHT_UP = 1000


class ScheduleOptions(TypedDict, total=False):
    """What is said of a schedule, beside its name and its call."""

    cron: str | None
    every: float | timedelta | None
    timezone: str
    catch_up: CatchUp
    grace: float | timedelta
    catch_up_limit: int
    overlap: Overlap


def read_registry_name(name: object, prefix: str) -> str | None:
    """Check a registry's name; without one it's what the prefix says.

    Raises:
        RegistrationError: It isn't one.
    """
    if name is None:
        return prefix.rstrip(".:/-_") or None
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_REGISTRY_NAME_CHARACTERS or check_prefix(name) != name:
        raise RegistrationError(
            f'the name of a registry is a text of 1 to {_LONGEST_REGISTRY_NAME_CHARACTERS} characters, such as "shop", not '
            f"{safe_repr(name, 60)}"
        )
    return name


def read_schedule_name(name: object) -> str:
    """Check a schedule's name.

    Raises:
        ConfigurationError: It isn't one.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME_CHARACTERS or not name.strip():
        raise ConfigurationError(
            f"the name of a schedule is a text of 1 to {_LONGEST_NAME_CHARACTERS} characters, not {safe_repr(name, 60)}"
        )
    if visible(name) != name or not storable(name):
        raise ConfigurationError(f"the name of a schedule has no characters that can't be seen, as {safe_repr(name)} has")
    return name


def read_schedule(call: Call[Any], name: str | None = None, **options: Unpack[ScheduleOptions]) -> NewSchedule:
    """Read a schedule. It belongs to nobody yet.

    Arguments:
        call: Of which each tick enqueues a job. It isn't enqueued itself.
        name: By which it's known; by default the name of the call's job type.
        options: When its ticks are, and what becomes of those that were missed: see `Registry.schedule`.

    Raises:
        TypeError: It isn't a call, or there is no such option.
        CallError: The call can't be enqueued again and again; ConflictingOptions with the option at fault.
        ConfigurationError: Something is out of its range, can't be read, or would never fire.
    """
    if unknown := options.keys() - ScheduleOptions.__annotations__.keys():
        raise TypeError(f"a schedule has no {', '.join(sorted(unknown))}")
    template = _read_call(call)
    shown = call.job_type.name if name is None else read_schedule_name(name)
    try:
        schedule = NewSchedule(name=shown, owner=None, job_type=call.job_type.name, template=template, **_read_options(options))
        _refuse_silent(schedule)
    except ConflictingOptions as error:
        raise ConflictingOptions(f"the schedule {shown}: {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"the schedule {shown}: {error}") from None
    return schedule


def read_timing(anchor: datetime, **options: Unpack[ScheduleOptions]) -> Timing:
    """Read when the ticks of a schedule would be, before there is one.

    Arguments:
        anchor: From which an interval counts; timezone-aware.
        options: As of `read_schedule`.

    Raises:
        ConfigurationError: Something is out of its range, can't be read, or would never fire.
    """
    nothing = NewSchedule(name="", owner=None, job_type="", template=b"", **_read_options(options))
    _refuse_silent(nothing)
    return timing_of(nothing, anchor)


def generation_of(name: str, schedules: Iterable[NewSchedule], release: int | None = None) -> Generation:
    """Make the generation of a registry's schedules: the same for the same definitions, in whichever process.

    Arguments:
        name: The registry's.
        schedules: All of them (`registry.schedules`).
        release: A number that is given for this state of the code; the highest one counts.
    """
    said = [{**asdict(each), "template": each.template.decode()} for each in sorted(schedules, key=lambda each: each.name)]
    return Generation(owner=name, digest=hashlib.sha256(orjson.dumps(said)).hexdigest(), release=release)


# -- its call -------------------------------------------------------------------------------------------------------------


def _read_call(call: object) -> bytes:
    if not isinstance(call, Call):
        raise TypeError(f"a schedule takes a call, such as job_type(...), not {safe_repr(call)}")
    if isinstance(call, Done):
        raise CallError(f"{call!r} is a finished value, and no job that could be enqueued")
    call.mark_used()
    job = call.to_new_job()
    if call.waits:
        raise ConflictingOptions(
            f"{call!r} waits for other jobs, which would be the same ones at each tick: schedule a job that enqueues them "
            "together (current_attempt().enqueue), or that continues with them"
        )
    if job.run_at is not None:
        raise ConflictingOptions(f"{call!r} has a time, and its schedule says when its jobs are due: leave out at=")
    if job.chosen_id:
        raise ConflictingOptions(f"{call!r} has a chosen id, and each tick makes a job of its own: leave out id=")
    # Each process has to come to the same, or one after another would take it for changed.
    payload = sets_in_order(job.payload, call.arguments, call.job_type.converters)
    job = replace(job, payload=payload, sequence=call.sequence_with(payload, job.metadata))
    # Nobody is to be told: that stays said, whatever URL whoever enqueues it has for all jobs.
    return encode_template(replace(job, webhook="") if call.tells_nobody else job)


# -- its options ----------------------------------------------------------------------------------------------------------


def _read_options(given: ScheduleOptions) -> dict[str, Any]:
    cron, every, timezone = given.get("cron"), given.get("every"), given.get("timezone", "UTC")
    if (cron is None) == (every is None):
        wrong = "it has both cron= and every=: leave out one" if cron else "it has neither cron= nor every=: give one"
        raise ConflictingOptions(f'{wrong}, such as cron="0 9 * * *" or every=timedelta(minutes=5)')
    if every is not None and timezone != "UTC":
        raise ConflictingOptions("an interval is elapsed time, whatever clocks show: leave out timezone=, or give cron=")
    limit: object = given.get("catch_up_limit", 100)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 0 < limit <= _MOST_CAUGHT_UP:
        raise ConfigurationError(f"catch_up_limit must be a number from 1 to {_MOST_CAUGHT_UP:,}, not {safe_repr(limit)}")
    grace = seconds(given.get("grace", 3600.0), "grace")
    if grace < 1:
        raise ConfigurationError(
            f"grace must be at least 1 second, not {grace:g}, or each tick would be too late; "
            'catch_up="none" leaves out what was missed'
        )
    return {
        "cron": None if cron is None else " ".join(cron.split()) if isinstance(cron, str) else cron,
        "every": None if every is None else _read_every(every),
        "timezone": timezone,
        "catch_up": _read_choice(given.get("catch_up", "latest"), CatchUp, "catch_up"),
        "grace": grace,
        "catch_up_limit": limit,
        "overlap": _read_choice(given.get("overlap", "allow"), Overlap, "overlap"),
    }


def _read_every(value: float | timedelta) -> float:
    every = round(seconds(value, "every"), 6)
    if every < _SHORTEST_INTERVAL_SECONDS:
        raise ConfigurationError(
            f"every must be at least {_SHORTEST_INTERVAL_SECONDS:g} second, not {every:g}: for more, have one job do it "
            "repeatedly, or enqueue several at each tick"
        )
    return every


def _read_choice(value: object, choices: Any, name: str) -> Any:
    known: tuple[str, ...] = get_args(choices)
    if value not in known:
        raise ConfigurationError(f"{name} must be {' or '.join(map(repr, known))}, not {safe_repr(value)}")
    return value


def _refuse_silent(schedule: NewSchedule) -> None:
    """Look for its first tick, as a worker will."""
    now = datetime.now(UTC)
    if timing_of(schedule, now).after(now) is None:
        raise ConfigurationError(
            f"cron={safe_repr(schedule.cron, 100)} would never fire: there is no such time in the next 50 years"
            + ("" if schedule.timezone == "UTC" else f" in {schedule.timezone}")
        )
