"""Stores that make mistakes with the log of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _events, _rows
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_events import EventLog
from aioqueue.testing.memory._transaction_draft import Draft
from aioqueue.vocabulary._event_log import EventKind
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioqueue.testing.memory._rows import Row

__all__ = ["EVENTS"]


def _always(*_: Any) -> bool:
    return True


def _of_the_base_too(real: Callable[..., None], database: Database, kind: EventKind, row: Row, *body: bytes) -> None:
    real(database.base if isinstance(database, Draft) else database, kind, row, *body)


def _but_for(kind: EventKind) -> Callable[..., None]:
    def log(real: Callable[..., None], database: Database, found: EventKind, *given: Any) -> None:
        if found is not kind:
            real(database, found, *given)

    return log


def _as_if_it_were_there(database: Database, sequence: int) -> bool:
    return sequence >= database.events.removed


EVENTS: dict[str, Mistake] = {
    "a store that goes on over a time without readers": Mistake(
        ((EventLog, "watched", _always),),
        cases=("events/resuming_after_what_is_not_there",),
    ),
    "a store that logs what isn't committed": Mistake(
        (instead_of(Database, "log", _of_the_base_too),),
        cases=("events/transactions",),
    ),
    "a store that doesn't say whose worker is gone": Mistake(
        (instead_of(Database, "log", _but_for(EventKind.REAPED)),),
        cases=("events/what_lost_workers_leave",),
    ),
    "a store that doesn't say that a claim was given back": Mistake(
        (instead_of(Database, "log", _but_for(EventKind.RESCHEDULED)),),
        cases=("events/what_is_given_back", "events/running_and_retrying_by_hand"),
    ),
    "a store that doesn't say what it deletes": Mistake(
        (instead_of(Database, "log", _but_for(EventKind.DELETED)),),
        cases=("events/removing",),
    ),
    "a store that goes on from any number": Mistake(
        ((_events, "is_kept", _as_if_it_were_there),),
        cases=("events/resuming_after_what_is_not_there",),
    ),
    "a store that lets readers read that have run out": Mistake(
        ((_events, "may_read", _always),),
        cases=("events/a_reader_that_is_over",),
    ),
    "a store that tells nobody of events": Mistake(
        ((_rows.Database, "tell_of_events", lambda _: None),),
        cases=("events/whoever_listens_is_told",),
    ),
}
