"""Events out of the log: a class for each kind, and rows that are odd."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from aioqueue import events
from aioqueue.definitions._logged_events import from_log
from aioqueue.events import JobContinued, JobEvent, JobFailed, JobProgress, JobRetrying
from aioqueue.vocabulary._event_log import EventKind, LoggedEvent
from aioqueue.web._frames import kind_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "events.md"
NEXT = UUID("0190a5b4-0000-7000-8000-000000000000")
ODD = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b'{"error": 1, "delay": "x", "percent": null, "phase": 3, "next_id": "no", "status": "x"}',
]


def logged(kind: EventKind, body: bytes = b"{}") -> LoggedEvent:
    return LoggedEvent(
        sequence=7,
        kind=kind,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        job_id=uuid4(),
        chain_id=NEXT,
        job_type="a",
        attempt=1,
        claims=2,
        body=body,
    )


@pytest.mark.parametrize("kind", EventKind)
def test_each_kind_has_a_class_whatever_its_body_has(kind: EventKind) -> None:
    whole = [from_log(logged(kind, body)) for body in (b"{}", *ODD)]
    assert {type(each) for each in whole} == {type(whole[0])}
    for each in whole:
        assert (each.sequence, each.chain_id, each.job_type, each.attempt, each.claims) == (7, NEXT, "a", 1, 2)
    names = {EventKind.DELIVERED: "webhook_delivered", EventKind.UNDELIVERED: "webhook_undelivered"}
    assert kind_of(whole[0]) == names.get(kind, kind.value)


@pytest.mark.parametrize(
    ("kind", "body", "made", "fields"),
    [
        (EventKind.RETRYING, b'{"delay": 2, "error": {"type": "E", "message": "m"}}', JobRetrying, (2.0, "E", "m")),
        (EventKind.FAILED, b'{"error": {"type": "E"}}', JobFailed, ("E", None)),
        (EventKind.PROGRESS, b'{"percent": 17, "message": "m", "phase": "p"}', JobProgress, (17.0, "m", "p")),
        (EventKind.CONTINUED, b'{"next_id": "%s", "outcome": "o"}' % str(NEXT).encode(), JobContinued, (NEXT, "o")),
    ],
)
def test_what_a_body_has_is_in_the_event(
    kind: EventKind, body: bytes, made: type[JobEvent], fields: tuple[object, ...]
) -> None:
    event = from_log(logged(kind, body))
    assert isinstance(event, made)
    own = [name for name in made.__dataclass_fields__ if name not in JobEvent.__dataclass_fields__]
    assert tuple(getattr(event, name) for name in own) == fields


def test_the_page_has_each_class_and_its_fields() -> None:
    rows = {row.split("|")[1]: row for row in PAGE.read_text().splitlines() if row.startswith("| `")}
    for name in set(events.__all__) - {"Event", "JobEvent", "WorkerEvent", "Reset"}:
        (row,) = [row for first, row in rows.items() if f"`{name}`" in first]
        made = getattr(events, name)
        base = JobEvent if issubclass(made, JobEvent) else events.Event
        assert [
            each for each in made.__dataclass_fields__.keys() - base.__dataclass_fields__.keys() if f"`{each}`" not in row
        ] == []
