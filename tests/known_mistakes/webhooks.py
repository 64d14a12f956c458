"""Stores that make mistakes with the deliveries of webhooks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _rows, _settle_next, _store, _tend, _webhooks
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._transaction_draft import Draft
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._notification import Notification
from tests.known_mistakes.mistake import Mistake, instead_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryTry

__all__ = ["WEBHOOKS"]


def _without_deliveries(**given: Any) -> Notification:
    return Notification(**{**given, "deliveries": False})


def _before_the_commit(real: Callable[..., None], database: Database, row: Row) -> None:
    real(database.base if isinstance(database, Draft) else database, row)


def _once_for_each_job(real: Callable[..., None], database: Database, row: Row) -> None:
    if all(each.job_id != row.new.id for each in database.deliveries.values()):
        real(database, row)


def _only_by_attempts(real: Callable[..., None], database: Database, row: Row, *given: Any, **named: Any) -> None:
    with_url, row.new = row.new, replace(row.new, webhook=None)
    real(database, row, *given, **named)
    row.new = with_url


def _another_message(real: Callable[..., list[Delivery]], database: Database, *given: Any) -> list[Delivery]:
    taken = [replace(each, body=each.body + b" ") for each in real(database, *given)]
    database.deliveries |= {each.id: each for each in taken}
    return taken


def _not_counted(real: Callable[..., list[Delivery]], database: Database, *given: Any) -> list[Delivery]:
    taken = [replace(each, tries=1) for each in real(database, *given)]
    database.deliveries |= {each.id: each for each in taken}
    return taken


def _for_ever(
    real: Callable[..., list[Delivery]], database: Database, limit: int, duration: float, *rest: Any
) -> list[Delivery]:
    return real(database, limit, duration * 1000, *rest)


def _for_no_time(
    real: Callable[..., list[Delivery]], database: Database, limit: int, duration: float, *rest: Any
) -> list[Delivery]:
    return real(database, limit, duration * 0, *rest)


def _of_any_host(
    real: Callable[..., list[Delivery]], database: Database, limit: int, duration: float, without: Sequence[str]
) -> list[Delivery]:
    del without
    return real(database, limit, duration, ())


def _at_once(real: Callable[..., Delivery], stored: Delivery, what: DeliveryTry, now: datetime) -> Delivery:
    return real(stored, replace(what, delay=0.0), now)


def _by_another_name(real: Callable[..., list[bool]], database: Database, ids: Sequence[UUID]) -> list[bool]:
    answers = real(database, ids)
    for each in [database.deliveries.pop(each) for each in ids if each in database.deliveries]:
        renamed = replace(each, id=new_id())
        database.deliveries[renamed.id] = renamed
    return answers


def _with_its_chain(real: Callable[..., None], database: Database, row: Row) -> None:
    real(database, row)
    for each in [each for each in database.deliveries.values() if each.job_id == row.new.id]:
        del database.deliveries[each.id]


WEBHOOKS: dict[str, Mistake] = {
    "a store that writes deliveries before the commit": Mistake(
        (instead_of(Database, "note_delivery", _before_the_commit),),
        cases=("webhooks/only_with_the_end_itself",),
    ),
    "a store that tells of a job once only": Mistake(
        (instead_of(Database, "note_delivery", _once_for_each_job),),
        cases=("webhooks/a_retried_job_tells_again",),
    ),
    "a store that tells only of what attempts have ended": Mistake(
        (instead_of(Database, "end", _only_by_attempts),),
        cases=("webhooks/whoever_ends_it", "webhooks/only_with_the_end_itself"),
    ),
    "a store whose chains forget whom to tell": Mistake(
        ((_settle_next, "inherited_webhook", lambda _, following: following.webhook),),
        cases=("webhooks/what_goes_on_has_no_delivery",),
    ),
    "a store that tells nobody of deliveries": Mistake(
        ((_rows, "Notification", _without_deliveries),),
        cases=("webhooks/listeners_are_told",),
    ),
    "a store that sends another message at each try": Mistake(
        (instead_of(_store, "take_deliveries", _another_message),),
        cases=("sending/taking_is_for_a_time", "sending/sent_once_more"),
    ),
    "a store that doesn't count tries": Mistake(
        (instead_of(_store, "take_deliveries", _not_counted),),
        cases=("sending/taking_is_for_a_time", "sending/what_became_of_a_try"),
    ),
    "a store whose deliveries are taken for ever": Mistake(
        (instead_of(_store, "take_deliveries", _for_ever),),
        cases=("sending/taking_is_for_a_time",),
    ),
    "a store that gives a delivery to two at once": Mistake(
        (instead_of(_store, "take_deliveries", _for_no_time),),
        cases=("sending/taking_is_for_a_time",),
    ),
    "a store that takes deliveries of hosts that are left out": Mistake(
        (instead_of(_store, "take_deliveries", _of_any_host),),
        cases=("sending/hosts_can_be_left_out",),
    ),
    "a store that believes who was too slow": Mistake(
        ((_webhooks, "is_of_newest_take", lambda *_: True),),
        cases=("sending/who_was_too_slow_changes_nothing",),
    ),
    "a store that tries again at once": Mistake(
        (instead_of(_webhooks, "tried", _at_once),),
        cases=("sending/what_became_of_a_try",),
    ),
    "a store that sends a message once more under another id": Mistake(
        (instead_of(_store, "replay_deliveries", _by_another_name),),
        cases=("sending/sent_once_more",),
    ),
    "a store that sends nothing of chains that are gone": Mistake(
        (instead_of(Database, "remove", _with_its_chain),),
        cases=("sending/kept_as_long_as_its_chain",),
    ),
    "a store that keeps deliveries for ever": Mistake(
        ((_tend, "forget_deliveries", lambda *_: None),),
        cases=("sending/the_oldest_are_forgotten",),
    ),
}
