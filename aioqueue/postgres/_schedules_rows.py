"""Rows of schedules into values and back, strange ones included."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.postgres._connections_source import HOLD_BRIEFLY
from aioqueue.postgres._rows import moment
from aioqueue.store_rules._schedules import KEPT_TICKS
from aioqueue.vocabulary._schedules import DecidedTick, NewSchedule, StoredSchedule, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.postgres._connections_driver import Row

__all__ = [
    "DEFINED",
    "DEFINITION",
    "NEXT_AT",
    "SCHEDULE",
    "TICKS",
    "WAIT_FOR_TICKS",
    "definition",
    "definition_arguments",
    "definitions",
    "stored_schedule",
    "stored_ticks",
]

WAIT_FOR_TICKS = f"{HOLD_BRIEFLY}; SET LOCAL lock_timeout = '1s'"
"""Whoever changes schedules waits until the ticks of them that are being decided are: on a busy server that takes a while."""

DEFINED = "name, owner, job_type, template, cron, every, timezone, catch_up, grace, catch_up_limit, overlap"
"""What is said of a schedule by whoever defines it, as the table's columns."""

_TYPES = ("text", "text", "text", "text", "text", "float8", "text", "text", "float8", "integer", "text")

DEFINITION = ", ".join(f"s.{column}" for column in DEFINED.split(", "))
"""What `definition` reads."""

NEXT_AT = f"CASE WHEN isfinite(s.next_at) THEN {moment('s.next_at')} END"
"""The next tick, as workers read it and send it back: an infinite time is no tick."""

SCHEDULE = f"""{DEFINITION}, s.version, {moment("s.since")}, {moment("s.anchor")}, {NEXT_AT}, {moment("s.last_at")},
    s.last_chain, s.paused, s.reason, s.by"""
"""What `stored_schedule` reads."""

_MOMENTS = {column: moment(f"t.{column}") for column in ("nominal_at", "decided_at")}
TICKS = f"""LATERAL (
    SELECT array_agg({_MOMENTS["nominal_at"]}), array_agg({_MOMENTS["decided_at"]}), array_agg(t.outcome),
           array_agg(t.reason), array_agg(t.chain_id), array_agg(t.count)
    FROM (SELECT * FROM @schema@.schedule_tick k WHERE k.schedule = s.name ORDER BY k.nominal_at DESC LIMIT {KEPT_TICKS}) AS t
) AS ticks(nominal_at, decided_at, outcome, reason, chain_id, count)"""
"""Joined to `s`: what `stored_ticks` reads, newest first."""

_COLUMNS = DEFINITION.count(",") + 10


def definitions(first: int) -> str:
    """The parameters for `definition_arguments`, from this number, as rows with the columns of `DEFINED`."""
    arrays = ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(_TYPES, first))
    return f"unnest({arrays}) AS given({DEFINED})"


def definition_arguments(schedules: Sequence[NewSchedule]) -> list[Any]:
    """One array for each column of `DEFINED`.

    Raises:
        RowRejected: A template isn't UTF-8.
    """
    try:
        templates = [each.template.decode() for each in schedules]
    except UnicodeDecodeError as error:
        raise RowRejected(f"a schedule's template can't be stored: {error}") from None
    return [
        [each.name for each in schedules],
        [each.owner for each in schedules],
        [each.job_type for each in schedules],
        templates,
        [each.cron for each in schedules],
        [each.every for each in schedules],
        [each.timezone for each in schedules],
        [each.catch_up for each in schedules],
        [each.grace for each in schedules],
        [each.catch_up_limit for each in schedules],
        [each.overlap for each in schedules],
    ]


def definition(row: Iterable[Any]) -> NewSchedule:
    """Read the columns of `DEFINED`. What somebody has written there by hand is for whoever works the ticks out."""
    name, owner, job_type, template, cron, every, timezone, catch_up, grace, catch_up_limit, overlap = row
    return NewSchedule(
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


def stored_schedule(row: Row, ticks: tuple[DecidedTick, ...] = ()) -> StoredSchedule:
    """Read the columns of `SCHEDULE`, with which the row begins."""
    *defined, version, since, anchor, next_at, last_at, last_chain, paused, reason, by = row[:_COLUMNS]
    return StoredSchedule(
        definition=definition(defined),
        version=version,
        since=since,
        anchor=anchor,
        next_at=next_at,
        last_at=last_at,
        last_chain=last_chain,
        paused=paused,
        reason=reason,
        by=by,
        ticks=ticks,
    )


def stored_ticks(row: Row) -> tuple[DecidedTick, ...]:
    """Read the columns of `TICKS`, which stand behind those of `SCHEDULE`."""
    columns = row[_COLUMNS : _COLUMNS + 6]
    if columns[0] is None:
        return ()
    return tuple(starmap(_decided, zip(*columns, strict=True)))


def _decided(nominal_at: Any, decided_at: Any, outcome: int, reason: str, chain_id: Any, count: int) -> DecidedTick:
    known = TickOutcome(outcome) if outcome in set(TickOutcome) else TickOutcome.SKIPPED
    return DecidedTick(
        nominal_time=nominal_at, decided_at=decided_at, outcome=known, reason=reason, chain_id=chain_id, count=count
    )
