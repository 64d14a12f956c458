"""Between schedules and their rows. The checks of the tables keep out values of other kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import microseconds, moment
from aioqueue.vocabulary._schedules import DecidedTick, NewSchedule, StoredSchedule, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aioqueue.sqlite._connections_statements import Statements

__all__ = ["COLUMNS", "NEVER", "definition_values", "schedule_of", "stored_time", "with_ticks"]

NEVER = 253_402_300_799_999_999
"""The next tick of a schedule that has none: the last microsecond of the year 9999."""

COLUMNS = """name, owner, job_type, template, cron, every, timezone, catch_up, grace, catch_up_limit, overlap,
    version, since, anchor, next_at, last_at, last_chain, paused, reason, by"""

_TICKS = """
SELECT schedule, nominal_at, decided_at, outcome, reason, chain_id, count
FROM json_each(:names) AS asked CROSS JOIN schedule_tick ON schedule = asked.value ORDER BY schedule, nominal_at DESC
"""


def schedule_of(row: Sequence[Any]) -> StoredSchedule:
    """Read the columns of `COLUMNS`, without ticks."""
    (name, owner, job_type, template, cron, every, timezone, catch_up, grace, catch_up_limit, overlap) = row[:11]
    (version, since, anchor, next_at, last_at, last_chain, paused, reason, by) = row[11:20]
    definition = NewSchedule(
        name=name,
        owner=owner,
        job_type=job_type,
        template=template.encode(),
        cron=cron,
        every=every,
        timezone=timezone,
        catch_up=catch_up,
        grace=grace,
        catch_up_limit=catch_up_limit,
        overlap=overlap,
    )
    return StoredSchedule(
        definition=definition,
        version=version,
        since=moment(since),
        anchor=moment(anchor),
        next_at=None if next_at in (None, NEVER) else moment(next_at),
        last_at=None if last_at is None else moment(last_at),
        last_chain=None if last_chain is None else id_of(last_chain),
        paused=bool(paused),
        reason=reason,
        by=by,
    )


def definition_values(schedule: NewSchedule) -> dict[str, Any]:
    """What writing a definition takes, by the columns' names."""
    return {
        "name": schedule.name,
        "owner": schedule.owner,
        "job_type": schedule.job_type,
        "template": schedule.template.decode(),
        "cron": schedule.cron,
        "every": schedule.every,
        "timezone": schedule.timezone,
        "catch_up": schedule.catch_up,
        "grace": schedule.grace,
        "catch_up_limit": schedule.catch_up_limit,
        "overlap": schedule.overlap,
    }


def stored_time(time: datetime | None, instead: int | None = None) -> int | None:
    """A point in time as it's stored; something else for None."""
    return instead if time is None else microseconds(time)


def _ticks_of(connection: Statements, names: Sequence[str]) -> dict[str, list[DecidedTick]]:
    """What became of the newest ticks of these schedules, newest first."""
    found: dict[str, list[DecidedTick]] = {}
    for name, *row in connection.execute(_TICKS, {"names": dump(names)}).fetchall():
        found.setdefault(name, []).append(_tick(*row))
    return found


def _tick(nominal_at: int, decided_at: int, outcome: int, reason: str, chain_id: str | None, count: int) -> DecidedTick:
    return DecidedTick(
        nominal_time=moment(nominal_at),
        decided_at=moment(decided_at),
        outcome=TickOutcome(outcome),
        reason=reason,
        chain_id=None if chain_id is None else id_of(chain_id),
        count=count,
    )


def with_ticks(connection: Statements, schedules: Sequence[StoredSchedule]) -> list[StoredSchedule]:
    """Add what became of their newest ticks."""
    ticks = _ticks_of(connection, [each.name for each in schedules])
    return [replace(each, ticks=tuple(ticks.get(each.name, ()))) for each in schedules]
