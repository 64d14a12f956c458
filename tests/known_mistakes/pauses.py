"""Stores that make mistakes with pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _claim, _operate, _pauses, _recovery, _rows_pauses, _tend
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_jobs import Row
from aioqueue.testing.memory._rows_pauses import Pauses
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._pauses import PauseTarget
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from aioqueue.vocabulary._pauses import Pause

__all__ = ["PAUSES"]


def _only_types(pauses: Pauses, name: str, now: datetime) -> list[Pause]:
    return [each for each in pauses.valid(now) if each.target is PauseTarget.TYPE and each.value == name]


def _only_all(pauses: Pauses, name: str, now: datetime) -> list[Pause]:
    del name
    return [each for each in pauses.valid(now) if each.target is PauseTarget.ALL]


def _alike(pause: Pause, name: str) -> bool:
    return pause.target is PauseTarget.TYPE and name.startswith(pause.value)


def _one_for_all_people(real: Callable[..., None], pauses: Pauses, pause: Pause) -> None:
    pauses.remove([each for each in pauses.valid(pause.at) if (each.target, each.value) == (pause.target, pause.value)])
    real(pauses, pause)


def _first_counts(real: Callable[..., None], pauses: Pauses, pause: Pause) -> None:
    same = [
        each for each in pauses.valid(pause.at) if (each.target, each.value, each.by) == (pause.target, pause.value, pause.by)
    ]
    if not same:
        real(pauses, pause)


def _whoever_asks(pause: Pause, target: PauseTarget, values: Collection[str], by: str | None) -> bool:
    del by
    return pause.target is target and pause.value in values


def _whatever_kind(pause: Pause, target: PauseTarget, values: Collection[str], by: str | None) -> bool:
    del target
    return pause.value in values and by in (None, pause.by)


def _parked_as_an_attempt(real: Callable[..., None], database: Database, row: Row, held_by: str) -> None:
    real(database, row, held_by)
    row.attempt += 1


def _stops_at_the_first(real: Callable[..., list[Row]], database: Database, rows: Sequence[Row], now: datetime) -> list[Row]:
    """What has a paused key stands before what lies behind it."""
    for place, row in enumerate(rows):
        if row.new.key is not None and database.pauses.of_key(row.new.key, now):
            return list(rows[:place])
    return real(database, rows, now)


def _whoever_else_holds(real: Callable[..., bool], database: Database, row: Row, now: datetime) -> bool:
    key = _rows_pauses.paused_key(row)
    kept = database.pauses.of_key(key, now)
    database.pauses.remove(kept[1:])
    if len(kept) == 1:
        database.pauses.remove(kept)
    try:
        return real(database, row, now)
    finally:
        for each in kept:
            database.pauses.put(each)


def _blocked_ones_too(database: Database, row: Row, now: datetime) -> bool:
    return row.state == StoredState.HELD and not database.pauses.of_key(row.new.key, now) and not row.locked(now)


def _locked_or_not(database: Database, row: Row, now: datetime) -> bool:
    key = _rows_pauses.paused_key(row)
    return row.state == StoredState.HELD and key is not None and not database.pauses.of_key(key, now)


def _due_at_once(real: Callable[..., None], database: Database, row: Row, now: datetime) -> None:
    real(database, row, now)
    row.run_at = now


def _still_held(real: Callable[..., None], database: Database, row: Row, now: datetime) -> None:
    held_by = row.held_by
    real(database, row, now)
    row.held_by = held_by


def _all_pending(database: Database, rows: Sequence[Row], now: datetime) -> list[datetime]:
    del database, now
    return [row.run_at for row in rows if row.state == StoredState.PENDING]


def _never_again(real: Callable[..., list[datetime]], database: Database, rows: Sequence[Row], now: datetime) -> list[datetime]:
    """A pause that ends by itself isn't waited for."""
    return [each for each in real(database, rows, now) if not any(pause.until == each for pause in database.pauses.valid(now))]


def _parked_ones_too(real: Callable[..., list[datetime]], database: Database, rows: Sequence[Row], now: datetime) -> Any:
    return [*real(database, rows, now), *(row.run_at for row in rows if row.held_by is not None)]


def _only_pending(row: Row, now: datetime) -> bool:
    return row.state == StoredState.PENDING and row.run_at <= now


def _only_parked(row: Row, now: datetime) -> bool:
    return row.held_by is not None and row.run_at <= now


def _due_or_not(row: Row, now: datetime) -> bool:
    del now
    return row.state == StoredState.PENDING or row.held_by is not None


def _untold(**told: Any) -> Notification:
    del told
    return Notification()


def _only_what_is_pending(row: Row, now: datetime) -> bool:
    waits = row.state == StoredState.PENDING and row.started_at is None
    return waits and row.expires_at is not None and row.expires_at <= now


PAUSES: dict[str, Mistake] = {
    "a store that claims what is paused": Mistake(
        ((_claim, "type_is_paused", lambda *_: False),),
        cases=(
            "pauses/everything_is_paused",
            "pauses/what_runs_goes_on",
        ),
        breaks=Promise.NOT_PAUSED,
        theme=Theme.PLANS,
    ),
    "a store that claims while all is paused": Mistake(
        ((Pauses, "of_type", _only_types),),
        cases=(
            "pauses/everything_is_paused",
            "pauses/idle_workers_are_not_woken",
        ),
    ),
    "a store that pauses all or nothing": Mistake(
        ((Pauses, "of_type", _only_all),),
        cases=(
            "pauses/it_ends_by_itself",
            "pauses/pauses_outlast_who_made_them",
        ),
    ),
    "a store that pauses types with a like name": Mistake(
        ((_rows_pauses, "is_of_type", _alike),), cases=("pauses/a_paused_type_is_left_alone",)
    ),
    "a store whose pauses never end": Mistake(
        ((_rows_pauses, "is_over", lambda *_: False),),
        cases=(
            "paused_keys/a_pause_that_ends_by_itself",
            "pauses/it_ends_by_itself",
        ),
    ),
    "a store with one pause for all people": Mistake(
        (instead_of(Pauses, "put", _one_for_all_people),),
        cases=(
            "pauses/each_person_pauses",
            "pauses/they_are_listed",
        ),
    ),
    "a store in which the first pause counts": Mistake(
        (instead_of(Pauses, "put", _first_counts),),
        cases=(
            "pauses/idle_workers_are_not_woken",
            "pauses/the_later_counts",
        ),
    ),
    "a store that lifts everybody's pauses": Mistake(
        ((_pauses, "is_meant", _whoever_asks),),
        cases=(
            "paused_keys/two_reasons",
            "pauses/each_person_pauses",
        ),
    ),
    "a store that lifts a key's pause with a type's": Mistake(
        ((_pauses, "is_meant", _whatever_kind),), cases=("pauses/only_what_is_named_is_lifted",)
    ),
    "a store that lifts nothing": Mistake(
        ((_pauses, "is_meant", lambda *_: False),),
        cases=(
            "pauses/listeners_are_told_of_the_end",
            "pauses/only_what_is_named_is_lifted",
        ),
    ),
    "a store that claims what has a paused key": Mistake(
        ((_claim, "park", lambda database, rows, now: rows),),
        cases=(
            "paused_keys/a_dry_run_parks_too",
            "paused_keys/a_locked_one_is_not_waited_for",
        ),
        breaks=Promise.NOT_PAUSED,
        theme=Theme.PLANS,
    ),
    "a store in which a paused key stands before others": Mistake(
        (instead_of(_claim, "park", _stops_at_the_first),),
        cases=(
            "paused_keys/a_dry_run_parks_too",
            "paused_keys/a_locked_one_is_not_waited_for",
        ),
    ),
    "a store in which parking is an attempt": Mistake(
        (instead_of(Database, "park", _parked_as_an_attempt),),
        cases=(
            "paused_keys/it_is_held",
            "paused_keys/what_runs_goes_on",
        ),
    ),
    "a store that brings back all that was parked at once": Mistake(
        ((_pauses, "RESUMED_AT_ONCE", 10**6),), cases=("paused_keys/many_come_back_in_portions",)
    ),
    "a store that brings back none with the pause's end": Mistake(
        ((_pauses, "RESUMED_AT_ONCE", 0),),
        cases=(
            "paused_keys/it_comes_back",
            "paused_keys/many_come_back_in_portions",
        ),
    ),
    "a store whose upkeep brings back none": Mistake(
        ((_tend, "unpark", lambda *_: (0, False)),),
        cases=(
            "paused_keys/a_pause_that_ends_by_itself",
            "paused_keys/what_somebody_has_locked",
        ),
        breaks=Promise.NOT_HELD,
        theme=Theme.PLANS,
    ),
    "a store that brings back what another pause holds": Mistake(
        (instead_of(_pauses, "comes_back", _whoever_else_holds),),
        cases=(
            "paused_keys/a_pause_that_ends_by_itself",
            "paused_keys/it_still_expires",
        ),
    ),
    "a store that brings back what waits for others": Mistake(
        ((_pauses, "comes_back", _blocked_ones_too),), cases=("paused_keys/what_waits_for_others_is_blocked",)
    ),
    "a store that brings back what is locked": Mistake(
        ((_pauses, "comes_back", _locked_or_not),), cases=("paused_keys/what_somebody_has_locked",)
    ),
    "a store in which what comes back is due": Mistake(
        (instead_of(Database, "unpark", _due_at_once),), cases=("paused_keys/it_may_be_due_at_another_time",)
    ),
    "a store in which what comes back is still held": Mistake(
        (instead_of(Database, "unpark", _still_held),),
        cases=(
            "paused_keys/it_comes_back",
            "paused_keys/it_may_be_due_at_another_time",
        ),
    ),
    "a store that wakes workers for what is paused": Mistake(
        ((_recovery, "due_times_with_pauses", _all_pending),),
        cases=(
            "paused_keys/a_pause_that_ends_by_itself",
            "pauses/idle_workers_are_not_woken",
        ),
    ),
    "a store that wakes nobody when a pause ends": Mistake(
        (instead_of(_recovery, "due_times_with_pauses", _never_again),),
        cases=(
            "paused_keys/a_pause_that_ends_by_itself",
            "pauses/idle_workers_are_not_woken",
        ),
    ),
    "a store that wakes workers for what is parked": Mistake(
        (instead_of(_recovery, "due_times_with_pauses", _parked_ones_too),),
        cases=(
            "paused_keys/a_dry_run_parks_too",
            "paused_keys/a_locked_one_is_not_waited_for",
        ),
    ),
    "a store that counts what isn't parked yet": Mistake(
        ((_pauses, "waits_for_a_pause", _only_pending),),
        cases=(
            "paused_keys/many_come_back_in_portions",
            "paused_keys/waiting_ones_are_counted",
        ),
    ),
    "a store that counts what is parked": Mistake(
        ((_pauses, "waits_for_a_pause", _only_parked),),
        cases=(
            "paused_keys/waiting_ones_are_counted",
            "pauses/they_are_listed",
        ),
    ),
    "a store that counts for a pause what isn't due": Mistake(
        ((_pauses, "waits_for_a_pause", _due_or_not),),
        cases=(
            "paused_keys/waiting_ones_are_counted",
            "pauses/they_are_listed",
        ),
    ),
    "a store that tells nobody of a pause's end": Mistake(
        ((_pauses, "Notification", _untold),),
        cases=(
            "paused_keys/it_comes_back",
            "pauses/listeners_are_told_of_the_end",
        ),
    ),
    "a store that doesn't move what is parked": Mistake(
        ((_operate, "paused_key", lambda row: None),), cases=("paused_keys/it_may_be_due_at_another_time",)
    ),
    "a store in which what is parked doesn't expire": Mistake(
        ((_tend, "is_never_started", _only_what_is_pending),), cases=("paused_keys/it_still_expires",)
    ),
}
