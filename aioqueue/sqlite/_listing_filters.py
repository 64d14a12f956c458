"""What a filter asks of a row, in SQL that no row can break.

A plus before a column keeps SQLite from looking for the rows by another index than the one that was chosen for the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_times import microseconds
from aioqueue.vocabulary._job import JobState, StoredState

if TYPE_CHECKING:
    from aioqueue.vocabulary._listing import JobFilter

__all__ = [
    "ERROR_TYPE",
    "archived_conditions",
    "archived_states",
    "filter_parameters",
    "live_conditions",
    "meets_archived",
    "meets_live",
]

ERROR_TYPE = "iif(typeof(errors) = 'text' AND json_valid(errors), json_extract(errors, '$[#-1].type'), NULL)"
"""As the indexes by it have it."""

LIVE_STATES = {
    JobState.BLOCKED: "(+state = 0 AND open_blockers <> 0)",
    JobState.HELD: "(+state = 0 AND open_blockers = 0)",
    JobState.SCHEDULED: "(+state = 1 AND run_at > :now)",
    JobState.READY: "(+state = 1 AND run_at <= :now)",
    JobState.RUNNING: "+state = 2",
}

ARCHIVED_STATES = {
    JobState.COMPLETED: StoredState.COMPLETED,
    JobState.CONTINUED: StoredState.CONTINUED,
    JobState.FAILED: StoredState.FAILED,
    JobState.CANCELLED: StoredState.CANCELLED,
}

_TAGGED = """EXISTS (SELECT 1 FROM json_each(iif(json_valid(tags), tags, '[]')) AS tag WHERE tag.value = :tag)"""


def archived_states(where: JobFilter) -> list[int] | None:
    """The archived states that are meant, as they're stored; None for all."""
    if not where.states:
        return None
    return sorted(int(ARCHIVED_STATES[each]) for each in where.states if each in ARCHIVED_STATES)


def meets_live(where: JobFilter) -> bool:
    """Whether a live job can fit."""
    ended = where.outcome is not None or where.finished_after is not None or where.finished_before is not None
    return not ended and (not where.states or not where.states.isdisjoint(LIVE_STATES))


def meets_archived(where: JobFilter) -> bool:
    """Whether a finished job can fit."""
    return where.worker is None and (not where.states or not where.states.isdisjoint(ARCHIVED_STATES))


def filter_parameters(where: JobFilter, now: int) -> dict[str, Any]:
    """What the conditions want."""
    times = {name: getattr(where, name) for name in ("created_after", "created_before", "finished_after", "finished_before")}
    ids = {name: getattr(where, name) for name in ("chain_id", "first_id", "last_id")}
    return {
        "now": now,
        "types": dump(sorted(where.types)),
        "states": dump(archived_states(where) or []),
        "key": where.key,
        "tag": where.tag,
        "worker": where.worker,
        "outcome": where.outcome,
        "error_type": where.error_type,
        **{name: None if time is None else microseconds(time) for name, time in times.items()},
        **{name: None if value is None else str(value) for name, value in ids.items()},
    }


def _conditions(where: JobFilter) -> dict[str, str]:
    asked = {
        "types": (where.types, "+type IN (SELECT value FROM json_each(:types))"),
        "key": (where.key is not None, "+key = :key"),
        "chain_id": (where.chain_id, "coalesce(chain_id, id) = :chain_id"),
        "first_id": (where.first_id, "+id >= :first_id"),
        "last_id": (where.last_id, "+id <= :last_id"),
        "created_after": (where.created_after, "created_at >= :created_after"),
        "created_before": (where.created_before, "created_at < :created_before"),
        "error_type": (where.error_type is not None, f"+errors <> '[]' AND {ERROR_TYPE} = :error_type"),
        "tag": (where.tag is not None, _TAGGED),
    }
    return {name: condition for name, (is_asked, condition) in asked.items() if is_asked}


def live_conditions(where: JobFilter) -> dict[str, str]:
    """What is asked of live rows, by the filter's fields."""
    conditions = _conditions(where)
    states = [LIVE_STATES[each] for each in sorted(where.states) if each in LIVE_STATES]
    if states:
        conditions["states"] = f"({' OR '.join(states)})"
    if where.worker is not None:
        conditions["worker"] = "+state = 2 AND lease_id IN (SELECT id FROM lease WHERE worker = :worker)"
    return conditions


def archived_conditions(where: JobFilter) -> dict[str, str]:
    """What is asked of archived rows, by the filter's fields."""
    conditions = _conditions(where)
    states = archived_states(where)
    asked = {
        "states": (states is not None, f"+state IN ({', '.join(map(str, states or []))})"),
        "ends": (where.ends, f"+state <> {StoredState.CONTINUED:d}"),
        "outcome": (where.outcome is not None, "+outcome = :outcome"),
        "finished_after": (where.finished_after, "+finished_at >= :finished_after"),
        "finished_before": (where.finished_before, "+finished_at < :finished_before"),
    }
    return conditions | {name: condition for name, (is_asked, condition) in asked.items() if is_asked}
