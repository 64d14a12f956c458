"""Stores that make mistakes with schedules: what is stored of them, and of whose code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.store_rules._generations import Decision
from aioqueue.testing.memory import _schedules, _store_schedules
from aioqueue.testing.memory._rows_schedules import Schedules
from aioqueue.vocabulary._notification import Notification
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from aioqueue.store_rules._generations import KnownGeneration
    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._schedules import Generation, NewSchedule, SchedulePage, StoredSchedule

__all__ = ["SCHEDULES"]


def _as_it_was(stored: StoredSchedule, now: datetime) -> StoredSchedule:
    del now
    return stored


def _without_its_next(real: Callable[..., StoredSchedule], stored: StoredSchedule, now: datetime) -> StoredSchedule:
    return replace(real(stored, now), next_at=stored.next_at)


def _anew_each_time(
    real: Callable[..., StoredSchedule], stored: StoredSchedule | None, new: NewSchedule, now: datetime
) -> StoredSchedule:
    return _schedules.begun_anew(real(stored, new, now), now)


def _as_if_new(
    real: Callable[..., StoredSchedule], stored: StoredSchedule | None, new: NewSchedule, now: datetime
) -> StoredSchedule:
    made = real(None, new, now)
    return made if stored is None else replace(made, version=stored.version + 1)


def _same_version(
    real: Callable[..., StoredSchedule], stored: StoredSchedule | None, new: NewSchedule, now: datetime
) -> StoredSchedule:
    made = real(stored, new, now)
    return made if stored is None else replace(made, version=stored.version)


def _goes_on_as_before(row: StoredSchedule, now: datetime) -> StoredSchedule:
    del now
    return replace(row, paused=False, reason="", by="", version=row.version + 1)


def _resumed_in_its_version(real: Callable[..., StoredSchedule], row: StoredSchedule, now: datetime) -> StoredSchedule:
    return replace(real(row, now), version=row.version)


def _catches_up_with_the_pause(real: Callable[..., StoredSchedule], row: StoredSchedule, now: datetime) -> StoredSchedule:
    return replace(real(row, now), since=row.since)


def _all_others(database: Database, owner: str, names: Collection[str]) -> tuple[str, ...]:
    del owner
    return tuple(name for name in database.schedules.rows if name not in names)


def _of_run_time_too(database: Database, owner: str, names: Collection[str]) -> tuple[str, ...]:
    rows = database.schedules.rows.values()
    return tuple(row.name for row in rows if row.definition.owner in (owner, None) and row.name not in names)


def _always_current(real: Callable[..., Decision], generation: Generation, known: list[KnownGeneration]) -> Decision:
    """Whoever asks has the last word: a rolling deploy goes to and fro."""
    return replace(real(generation, known), current=True, refused=False)


def _first_come(generation: Generation, known: list[KnownGeneration]) -> Decision:
    """The oldest one counts while a worker has it."""
    seen = next((each.seen for each in known if each.digest == generation.digest), len(known) + 1)
    return Decision(seen=seen, current=not any(each.live and each.seen < seen for each in known))


def _without_numbers(real: Callable[..., Decision], generation: Generation, known: list[KnownGeneration]) -> Decision:
    return real(replace(generation, release=None), [replace(each, release=None) for each in known])


def _never_refused(real: Callable[..., Decision], generation: Generation, known: list[KnownGeneration]) -> Decision:
    decision = real(generation, known)
    return real(replace(generation, release=None), known) if decision.refused else decision


def _alive(alive: bool) -> Callable[..., list[KnownGeneration]]:
    def known(real: Callable[..., list[KnownGeneration]], *arguments: Any) -> list[KnownGeneration]:
        return [replace(each, live=alive) for each in real(*arguments)]

    return known


def _noted_once(real: Callable[..., None], schedules: Schedules, generation: Generation, seen: int, until: datetime) -> None:
    if not any(row.seen == seen for row in schedules.generations.get(generation.owner, [])):
        real(schedules, generation, seen, until)


def _untold(**told: Any) -> Notification:
    del told
    return Notification()


def _in_order_of_time(database: Database, limit: int, cursor: str | None) -> SchedulePage:
    del limit, cursor
    rows = tuple(database.schedules.rows.values())
    return _schedules.SchedulePage(schedules=rows, cursor=None, now=database.now())


def _once_more(real: Callable[..., SchedulePage], database: Database, limit: int, cursor: str | None) -> SchedulePage:
    """A page begins with the one that the page before has ended with."""
    page = real(database, limit, cursor)
    again = () if cursor is None else (database.schedules.rows[cursor],)
    return replace(page, schedules=(*again, *page.schedules))


SCHEDULES: dict[str, Mistake] = {
    "a store that changes schedules which are the same": Mistake(
        ((_schedules, "has_changed", lambda *_: True),),
        cases=(
            "generations/the_same_again_changes_nothing",
            "schedules/the_same_again_changes_nothing",
        ),
    ),
    "a store that changes no schedule that is there": Mistake(
        ((_schedules, "has_changed", lambda *_: False),),
        cases=(
            "generations/removed_code_fires_no_more",
            "schedules/another_definition",
        ),
    ),
    "a store in which another timing goes on as before": Mistake(
        ((_schedules, "begun_anew", _as_it_was),), cases=("schedules/another_timing_begins_anew",)
    ),
    "a store that keeps the next tick of an older timing": Mistake(
        (instead_of(_schedules, "begun_anew", _without_its_next),), cases=("schedules/another_timing_begins_anew",)
    ),
    "a store in which each change begins a schedule anew": Mistake(
        (instead_of(_schedules, "defined", _anew_each_time),),
        cases=(
            "generations/the_code_says_what_there_is",
            "schedules/another_definition",
        ),
    ),
    "a store in which a changed schedule forgets its ticks": Mistake(
        (instead_of(_schedules, "defined", _as_if_new),),
        cases=(
            "generations/it_may_be_paused",
            "schedules/another_definition",
        ),
    ),
    "a store in which a changed schedule has the same version": Mistake(
        (instead_of(_schedules, "defined", _same_version),),
        cases=(
            "generations/removed_code_fires_no_more",
            "schedules/another_definition",
        ),
    ),
    "a store that puts what a registry owns": Mistake(
        ((_schedules, "is_anothers", lambda *_: False),),
        cases=(
            "generations/others_are_left_alone",
            "schedules/all_or_none",
        ),
    ),
    "a store that removes everybody's schedules with a deploy": Mistake(
        ((_schedules, "to_be_removed", _all_others),),
        cases=(
            "generations/others_are_left_alone",
            "schedules/all_or_none",
        ),
    ),
    "a store that removes what was put at run time": Mistake(
        ((_schedules, "to_be_removed", _of_run_time_too),),
        cases=(
            "generations/others_are_left_alone",
            "schedules/all_or_none",
        ),
    ),
    "a store that never removes what isn't in the code any more": Mistake(
        ((_schedules, "to_be_removed", lambda *_: ()),),
        cases=(
            "generations/a_rolling_deploy",
            "generations/one_without_schedules",
        ),
        breaks=Promise.CURRENT_CODE,
        theme=Theme.PLANS,
    ),
    "a store in which whoever asks last is current": Mistake(
        (instead_of(_schedules, "decide", _always_current),),
        cases=(
            "generations/a_rolling_deploy",
            "generations/workers_that_start_together",
        ),
        breaks=Promise.ONE_GENERATION,
        theme=Theme.PLANS,
    ),
    "a store in which the oldest generation is current": Mistake(
        ((_schedules, "decide", _first_come),),
        cases=(
            "generations/a_rolling_deploy",
            "generations/one_without_schedules",
        ),
    ),
    "a store that doesn't look at release numbers": Mistake(
        (instead_of(_schedules, "decide", _without_numbers),),
        cases=(
            "generations/a_number_that_is_taken",
            "generations/release_numbers",
        ),
    ),
    "a store that takes a number for other definitions": Mistake(
        (instead_of(_schedules, "decide", _never_refused),), cases=("generations/a_number_that_is_taken",)
    ),
    "a store in which generations live for ever": Mistake(
        (instead_of(Schedules, "known", _alive(True)),),
        cases=(
            "generations/a_rollback",
            "generations/what_live_code_owns_is_not_deleted",
        ),
    ),
    "a store in which no generation lives": Mistake(
        (instead_of(Schedules, "known", _alive(False)),),
        cases=(
            "generations/a_rolling_deploy",
            "generations/what_live_code_owns_is_not_deleted",
        ),
        breaks=Promise.ONE_GENERATION,
        theme=Theme.PLANS,
    ),
    "a store that notes only once that a generation lives": Mistake(
        (instead_of(Schedules, "keep_alive", _noted_once),), cases=("generations/a_rollback",)
    ),
    "a store that has due ticks worked out again": Mistake(
        ((_schedules, "may_be_forgotten", lambda row, now: row.next_at is not None),),
        cases=("schedules/next_ticks_are_forgotten",),
    ),
    "a store that never has ticks worked out again": Mistake(
        ((_schedules, "may_be_forgotten", lambda *_: False),),
        cases=(
            "schedules/a_newest_tick_in_the_future_is_forgotten",
            "schedules/next_ticks_are_forgotten",
        ),
    ),
    "a store that keeps a newest tick in the future": Mistake(
        ((_schedules, "last_possible", lambda last_at, now: last_at),),
        cases=("schedules/a_newest_tick_in_the_future_is_forgotten",),
    ),
    "a store that forgets the newest tick": Mistake(
        ((_schedules, "last_possible", lambda last_at, now: None),),
        cases=(
            "schedules/a_newest_tick_in_the_future_is_forgotten",
            "schedules/next_ticks_are_forgotten",
        ),
        breaks=Promise.ONCE_A_TICK,
        theme=Theme.PLANS,
    ),
    "a store in which a resumed schedule goes on as before": Mistake(
        ((_schedules, "resumed", _goes_on_as_before),), cases=("schedules/a_resumed_one_goes_on_from_then",)
    ),
    "a store that decides after a pause what was worked out before": Mistake(
        (instead_of(_schedules, "resumed", _resumed_in_its_version),),
        cases=(
            "schedules/a_resumed_one_goes_on_from_then",
            "ticks/what_was_worked_out_before_a_pause",
        ),
    ),
    "a store that catches up with a pause": Mistake(
        (instead_of(_schedules, "resumed", _catches_up_with_the_pause),),
        cases=("schedules/a_resumed_one_goes_on_from_then",),
        breaks=Promise.ONCE_A_TICK,
        theme=Theme.PLANS,
    ),
    "a store that resumes what isn't paused": Mistake(
        ((_schedules, "has_to_be_resumed", lambda row: True),),
        cases=("schedules/a_resumed_one_goes_on_from_then",),
        breaks=Promise.NO_TICK_LOST,
        theme=Theme.PLANS,
    ),
    "a store that resumes nothing": Mistake(
        ((_schedules, "has_to_be_resumed", lambda row: False),),
        cases=(
            "generations/it_may_be_paused",
            "schedules/listeners_are_told",
        ),
    ),
    "a store that deletes what live code owns": Mistake(
        ((_schedules, "is_in_live_code", lambda *_: False),), cases=("generations/what_live_code_owns_is_not_deleted",)
    ),
    "a store that never deletes what code has owned": Mistake(
        ((_schedules, "is_in_live_code", lambda database, row, now: row.definition.owner is not None),),
        cases=("generations/what_live_code_owns_is_not_deleted",),
    ),
    "a store that tells nobody of schedules": Mistake(
        ((_schedules, "Notification", _untold),), cases=("schedules/listeners_are_told",)
    ),
    "a store that lists schedules as they come": Mistake(
        ((_store_schedules, "list_schedules", _in_order_of_time),), cases=("schedules/pages",)
    ),
    "a store that lists a schedule on two pages": Mistake(
        (instead_of(_store_schedules, "list_schedules", _once_more),), cases=("schedules/pages",)
    ),
}
