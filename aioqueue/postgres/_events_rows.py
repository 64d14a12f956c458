"""Rows of the log into values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from aioqueue.postgres._resolve_ends import error_of
from aioqueue.store_rules._events import error_told
from aioqueue.vocabulary._event_log import EventKind, LoggedEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioqueue.postgres._connections_driver import Row

__all__ = ["LOGGED_COLUMNS", "logged_events"]

LOGGED_COLUMNS = """e.sequence, e.kind, e.at, e.job_id, e.chain_id, e.type, e.attempt, e.claims, e.delay, e.next_id, e.outcome,
    e.error, e.percent, e.phase, e.message, e.status"""

_SAID = {
    EventKind.PROGRESS: ("percent", "message", "phase"),
    EventKind.PHASE_STARTED: ("phase",),
    EventKind.PHASE_COMPLETED: ("phase",),
    EventKind.RETRYING: ("delay", "error"),
    EventKind.RESCHEDULED: ("delay",),
    EventKind.COMPLETED: ("outcome",),
    EventKind.CONTINUED: ("next_id", "outcome"),
    EventKind.FAILED: ("error",),
    EventKind.CANCELLED: ("error",),
    EventKind.DELIVERED: ("status",),
    EventKind.UNDELIVERED: ("status",),
}
_KINDS = {kind.value: kind for kind in EventKind}


def logged_events(rows: Iterable[Row]) -> Iterator[LoggedEvent]:
    """Read rows of `LOGGED_COLUMNS`. Those of kinds that newer code has are left out."""
    for row in rows:
        (
            sequence, kind_text, at, job_id, chain_id, type_name, attempt, claims, delay, next_id, outcome, error, percent,
            phase, message, status,
        ) = row  # fmt: skip
        kind = _KINDS.get(kind_text)
        if kind is None:
            continue
        said: dict[str, Any] = {
            "delay": delay,
            "next_id": next_id,
            "outcome": outcome,
            "error": None if error is None else error_told(error_of(error)),
            "percent": percent,
            "phase": phase,
            "message": message,
            "status": status,
        }
        yield LoggedEvent(
            sequence=sequence,
            kind=kind,
            at=at,
            job_id=job_id,
            chain_id=chain_id,
            job_type=type_name,
            attempt=attempt,
            claims=claims,
            body=orjson.dumps({name: _as_json(said[name]) for name in _SAID.get(kind, ())}),
        )


def _as_json(value: Any) -> Any:
    """Asyncpg's own UUIDs aren't known to orjson."""
    return str(value) if hasattr(value, "hex") and not isinstance(value, float) else value
