"""Stores that make mistakes when jobs are made due at another time, or removed since they're old enough."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _operate, _retention, _settle_next, _store
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_jobs import FOR_EVER, Row, later
from aioqueue.testing.memory._rows_leases import Duties
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._answers import Changed
    from aioqueue.vocabulary._listing import IdPage

    Ages = Mapping[StoredState, float]

__all__ = ["RETENTION"]


def _by_age_only(row: Row, ages: Ages) -> datetime | None:
    age = None if row.live else ages.get(StoredState(row.state))
    return None if age is None or row.finished_at is None else later(row.finished_at, age)


def _by_keep_only(row: Row, ages: Ages) -> datetime | None:
    del ages
    return row.purge_at


def _any_state(real: Callable[..., datetime | None], row: Row, ages: Ages) -> datetime | None:
    return real(row, {**dict.fromkeys(StoredState, 0.0), **ages})


def _one_age(real: Callable[..., datetime | None], row: Row, ages: Ages) -> datetime | None:
    return real(row, dict.fromkeys(StoredState, min(ages.values())) if ages else ages)


def _whichever_is_later(real: Callable[..., datetime | None], row: Row, ages: Ages) -> datetime | None:
    times = [each for each in (real(row, ages), _by_age_only(row, ages)) if each is not None]
    return max(times, default=None)


def _also_of_live_ones(row: Row, ages: Ages) -> datetime | None:
    age = ages.get(StoredState(row.state), 0.0) if row.new.keep is None else row.new.keep
    return later(row.finished_at or row.created_at, age)


def _each_step(real: Callable[..., IdPage], database: Database, *rest: Any) -> IdPage:
    """A chain comes once for each of its steps that are old enough."""
    page = real(database, *rest)
    return replace(page, ids=tuple(row.chain for chain in page.ids for row in database.rows.values() if row.chain == chain))


def _all_at_once(real: Callable[..., IdPage], database: Database, ages: Ages, limit: int, cursor: str | None) -> IdPage:
    return real(database, ages, 1000, cursor)


def _nothing_behind_it(real: Callable[..., IdPage], *arguments: Any) -> IdPage:
    return replace(real(*arguments), cursor=None)


def _without_ends(real: Callable[..., list[UUID]], database: Database, chain_ids: Sequence[UUID], ages: Ages) -> list[UUID]:
    removed = real(database, chain_ids, ages)
    for chain_id in removed:
        database.blockers.ends.pop(chain_id, None)
    return removed


def _taken_by_anybody(duties: Duties, name: str, holder: str, duration: float, now: datetime) -> bool:
    del duties, name, holder, now
    return duration > 0


def _taken_once(real: Callable[..., bool], duties: Duties, name: str, holder: str, duration: float, now: datetime) -> bool:
    return real(duties, name, f"{holder} {now}" if duration > 0 else holder, duration, now)


def _taken_for_good(real: Callable[..., bool], duties: Duties, name: str, holder: str, duration: float, now: datetime) -> bool:
    return real(duties, name, holder, 10 * 3600.0 if duration > 0 else duration, now)


def _given_up_by_anybody(real: Callable[..., bool], duties: Duties, name: str, holder: str, *rest: Any) -> bool:
    if rest[0] <= 0:
        real(duties, name, holder, 0.0, FOR_EVER)  # when all are over
    return real(duties, name, holder, *rest)


def _one_duty(real: Callable[..., bool], duties: Duties, name: str, *rest: Any) -> bool:
    del name
    return real(duties, "duty", *rest)


def _earlier_only(real: Callable[..., None], database: Database, row: Row, run_at: datetime) -> None:
    real(database, row, min(row.run_at, run_at))


def _with_its_time_to_expire(real: Callable[..., None], database: Database, row: Row, run_at: datetime) -> None:
    moved = run_at - row.run_at
    real(database, row, run_at)
    row.expires_at = None if row.expires_at is None else row.expires_at + moved


def _once_more(real: Callable[..., None], database: Database, row: Row, run_at: datetime) -> None:
    real(database, row, run_at)
    row.reschedules += 1


def _a_second_off(real: Callable[..., None], database: Database, row: Row, run_at: datetime) -> None:
    real(database, row, run_at + timedelta(seconds=1))


def _whatever_it_does(real: Callable[..., Changed | None], row: Row, now: datetime) -> Changed | None:
    return None if row.state == StoredState.HELD else real(row, now)


RETENTION: dict[str, Mistake] = {
    "a store in which age counts, whatever keep says": Mistake(
        ((_retention, "removable_at", _by_age_only),),
        cases=("retention/keep_says_more_than_age", "retention/the_next_step_takes_it_over"),
    ),
    "a store in which keep counts alone": Mistake(
        ((_retention, "removable_at", _by_keep_only),),
        cases=("retention/by_state_and_age", "retention/keep_says_more_than_age"),
    ),
    "a store in which keep is a minimum": Mistake(
        (instead_of(_retention, "removable_at", _whichever_is_later),),
        cases=("retention/keep_says_more_than_age",),
    ),
    "a store that removes states without an age": Mistake(
        (instead_of(_retention, "removable_at", _any_state),),
        cases=("retention/by_state_and_age", "retention/keep_says_more_than_age", "retention/steps_whose_end_is_gone"),
    ),
    "a store with one age for all states": Mistake(
        (instead_of(_retention, "removable_at", _one_age),),
        cases=("retention/by_state_and_age", "retention/steps_whose_end_is_gone"),
    ),
    "a store that removes what is live": Mistake(
        ((_retention, "removable_at", _also_of_live_ones),),
        cases=("retention/by_state_and_age", "retention/a_chain_goes_whole_or_not_at_all", "retention/what_lives_again_stays"),
        breaks=Promise.NOT_REMOVED,
        theme=Theme.PHASES,
    ),
    "a store in which a chain is as old as its first step": Mistake(
        ((_retention, "what_counts", lambda steps: steps[0] if steps else None),),
        cases=("retention/a_chain_goes_whole_or_not_at_all", "retention/the_next_step_takes_it_over"),
        breaks=Promise.NOT_REMOVED,
        theme=Theme.PHASES,
    ),
    "a store that removes what it has found, whatever it is now": Mistake(
        ((_retention, "may_be_removed", lambda *_: True),),
        cases=("retention/by_state_and_age", "retention/what_lives_again_stays", "retention/keep_says_more_than_age"),
    ),
    "a store that removes the first steps of chains": Mistake(
        ((_retention, "purged", lambda steps: steps[:-1] or steps),),
        cases=("retention/a_chain_goes_whole_or_not_at_all",),
    ),
    "a store that removes what is locked": Mistake(
        ((_retention, "is_held", lambda *_: False),),
        cases=("retention/what_is_locked_stops_no_other",),
    ),
    "a store that removes chains in secret": Mistake(
        ((_retention, "gone", lambda _: Notification()),),
        cases=("retention/whoever_waits_is_told",),
    ),
    "a store that removes what dependents need": Mistake(
        (instead_of(_store, "purge", _without_ends),),
        cases=("retention/what_dependents_need_stays",),
    ),
    "a store that finds a chain by each of its steps": Mistake(
        (instead_of(_store, "find_old", _each_step),),
        cases=("retention/a_chain_goes_whole_or_not_at_all",),
    ),
    "a store that finds all that is old at once": Mistake(
        (instead_of(_store, "find_old", _all_at_once),),
        cases=("retention/portions_are_bounded",),
    ),
    "a store that finds one portion only": Mistake(
        (instead_of(_store, "find_old", _nothing_behind_it),),
        cases=("retention/portions_are_bounded",),
    ),
    "a store in which the next step isn't kept as long": Mistake(
        ((_settle_next, "inherited_keep", lambda _, following: following.keep),),
        cases=("retention/the_next_step_takes_it_over",),
    ),
    "a store in which the next step is kept as long, whatever it says": Mistake(
        ((_settle_next, "inherited_keep", lambda row, _: row.new.keep),),
        cases=("retention/the_next_step_takes_it_over",),
    ),
    "a store that gives a duty to anybody": Mistake(
        ((Duties, "take", _taken_by_anybody),),
        cases=("duties/one_has_it", "duties/it_is_given_up", "duties/it_runs_out"),
    ),
    "a store that gives a duty once": Mistake((instead_of(Duties, "take", _taken_once),), cases=("duties/one_has_it",)),
    "a store in which duties never end": Mistake((instead_of(Duties, "take", _taken_for_good),), cases=("duties/it_runs_out",)),
    "a store in which anybody gives up a duty": Mistake(
        (instead_of(Duties, "take", _given_up_by_anybody),),
        cases=("duties/it_is_given_up",),
    ),
    "a store with one duty": Mistake((instead_of(Duties, "take", _one_duty),), cases=("duties/one_has_it",)),
    "a store that reschedules to earlier times only": Mistake(
        (instead_of(Database, "reschedule", _earlier_only),),
        cases=("reschedule/in_every_state", "reschedule/at_a_time"),
    ),
    "a store that reschedules the time to expire": Mistake(
        (instead_of(Database, "reschedule", _with_its_time_to_expire),),
        cases=("reschedule/nothing_else_changes",),
    ),
    "a store that counts rescheduling by hand": Mistake(
        (instead_of(Database, "reschedule", _once_more),),
        cases=("reschedule/nothing_else_changes",),
    ),
    "a store that reschedules to about the time": Mistake(
        (instead_of(Database, "reschedule", _a_second_off),),
        cases=("reschedule/at_a_time",),
    ),
    "a store that reschedules what is blocked": Mistake(
        (instead_of(_operate, "_not_movable", _whatever_it_does),),
        cases=("reschedule/in_every_state",),
    ),
}
"""By name."""
