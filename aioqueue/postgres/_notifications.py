"""What notifications say: JSON of at most 8,000 bytes, never a payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import orjson

from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import NewJob

__all__ = [
    "CATCH_UP",
    "LONGEST_DELAY_SECONDS",
    "decode_note",
    "due_note",
    "everything_note",
    "gates_note",
    "inserted_note",
    "inserted_types",
    "leases_note",
    "merged",
    "notify_statements",
    "schedules_note",
]

LONGEST_DELAY_SECONDS = 3600.0
"""Seconds: what is due later than that is found in time by those who look again, however seldom they do."""

CATCH_UP = Notification(types=None, finished=None, events=True, deliveries=True, schedules=True, gates=True)
"""Anything may have happened."""

_NOTIFY = "SELECT pg_catalog.pg_notify('@channel@', $1::text)::text"
_LONGEST_NOTE_BYTES = 7_500
_MOST_LEASES = 150


def notify_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name: `notify` sends a note."""
    return {"notify": schema.render(_NOTIFY)}


def due_note(types: Iterable[str], delay: float, origin: str) -> str | None:
    """Say that jobs of these types are due in `delay` seconds; None where nobody needs to know."""
    names = sorted(set(types))
    if not names or delay > LONGEST_DELAY_SECONDS:
        return None
    note = orjson.dumps({"o": origin, "t": names, "d": delay})
    if len(note) > _LONGEST_NOTE_BYTES:
        note = orjson.dumps({"o": origin, "t": None, "d": delay})
    return note.decode()


def everything_note(origin: str) -> str:
    """Say that jobs of any type may be due."""
    return orjson.dumps({"o": origin, "t": None, "d": 0}).decode()


def leases_note(leases: Iterable[int], origin: str) -> Iterator[str]:
    """Say that these leases have lost a job: their owners should look."""
    told = sorted(leases)
    for start in range(0, len(told), _MOST_LEASES):
        yield orjson.dumps({"o": origin, "l": told[start : start + _MOST_LEASES]}).decode()


def schedules_note(origin: str) -> str:
    """Say that schedules were stored or changed."""
    return orjson.dumps({"o": origin, "s": True}).decode()


def gates_note(origin: str) -> str:
    """Say that something has left a gate, or that a limit was changed."""
    return orjson.dumps({"o": origin, "g": True}).decode()


def inserted_note(jobs: Iterable[NewJob], origin: str | None) -> str | None:
    """Say that these jobs were inserted; None where nobody needs to know.

    Arguments:
        jobs: What is inserted.
        origin: Who tells; None if nobody is to be told.
    """
    if origin is None:
        return None
    told = inserted_types(jobs)
    return due_note(told.types or (), told.delay, origin)


def inserted_types(jobs: Iterable[NewJob]) -> Notification:
    """What an insert of these jobs is to tell. An absolute time is told as due: this clock isn't the database's."""
    types: set[str] = set()
    delay = float("inf")
    for job in jobs:
        types.add(job.type)
        delay = min(delay, job.delay or 0.0)
    return Notification(types=frozenset(types), delay=0.0 if delay == float("inf") else delay)


def merged(notifications: Collection[Notification]) -> Notification:
    """One that says what these say of jobs and leases by name."""
    return Notification(
        types=frozenset[str]().union(*(each.types or () for each in notifications)),
        delay=min((each.delay for each in notifications if each.types), default=0.0),
        finished=frozenset[UUID]().union(*(each.finished or () for each in notifications)),
        leases=frozenset[int]().union(*(each.leases for each in notifications)),
        deliveries=any(each.deliveries for each in notifications),
        schedules=any(each.schedules for each in notifications),
        gates=any(each.gates for each in notifications),
    )


def decode_note(text: str, own_origin: str) -> Notification | None:
    """Read a note.

    Returns:
        None if it comes from this store, whose listeners have been told directly, or isn't one of ours.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return CATCH_UP
    if not isinstance(value, dict):
        return None
    note = cast("dict[str, Any]", value)
    if note.get("o") == own_origin:
        return None
    try:
        types, delay = note.get("t", ()), note.get("d")
        return Notification(
            types=None if types is None else frozenset(str(each) for each in types),
            delay=float(delay or 0.0),
            finished=frozenset(UUID(each) for each in note.get("f", ())),
            leases=frozenset(int(each) for each in note.get("l", ())),
            events="e" in note,
            deliveries="w" in note,
            schedules="s" in note,
            gates="g" in note,
        )
    except (TypeError, ValueError):
        return CATCH_UP
