"""Stores that make mistakes with ticks of schedules, and with where jobs come from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.testing.memory import _claim, _listing, _recovery, _rows, _schedules_ticks, _settle_next, _store, _store_schedules
from aioqueue.testing.memory._rows import Database
from aioqueue.testing.memory._rows_jobs import FOR_EVER, Row
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._schedules import TickOutcome
from tests.known_mistakes.mistake import Mistake, instead_of
from tests.simulation.plan import Theme
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob, Inserted, NewJob
    from aioqueue.vocabulary._schedules import DecidedTick, DueSchedules, StoredSchedule, Tick, Ticked

__all__ = ["TICKS"]


def _whatever_is_next(row: StoredSchedule, each: Tick) -> bool:
    return row.version == each.version and (each.by_hand or not row.paused)


def _of_any_version(row: StoredSchedule, each: Tick) -> bool:
    return each.by_hand or (row.next_at == each.expected and not row.paused)


def _paused_or_not(row: StoredSchedule, each: Tick) -> bool:
    return row.version == each.version and (each.by_hand or row.next_at == each.expected)


def _by_hand_as_others(row: StoredSchedule, each: Tick) -> bool:
    return row.version == each.version and row.next_at == each.expected and not row.paused


def _only_its_first_job(database: Database, chain_id: UUID) -> bool:
    row = database.rows.get(chain_id)
    return row is not None and row.live


def _only_what_runs(database: Database, chain_id: UUID) -> bool:
    return any(row.chain == chain_id and row.state == StoredState.RUNNING for row in database.rows.values())


def _but_not_what_waits(real: Callable[..., bool], database: Database, chain_id: UUID) -> bool:
    row = database.rows.get(chain_id)
    return real(database, chain_id) and row is not None and row.state != StoredState.HELD


def _only_its_own(real: Callable[..., StoredSchedule], row: StoredSchedule, became: DecidedTick) -> StoredSchedule:
    return real(row, became) if became.outcome is TickOutcome.ENQUEUED else row


def _as_its_own(real: Callable[..., StoredSchedule], row: StoredSchedule, each: Tick, decided: Sequence[DecidedTick]) -> Any:
    return real(row, replace(each, by_hand=False, next_at=each.next_at or row.next_at), decided)


def _last_of_them(real: Callable[..., StoredSchedule], row: StoredSchedule, each: Tick, decided: Sequence[DecidedTick]) -> Any:
    return replace(real(row, each, decided), last_at=decided[-1].nominal_time if decided else row.last_at)


def _unknown_when_there_is_none(
    real: Callable[..., StoredSchedule], row: StoredSchedule, each: Tick, decided: Sequence[DecidedTick]
) -> StoredSchedule:
    moved = real(row, each, decided)
    return replace(moved, next_at=None) if moved.next_at == FOR_EVER else moved


def _stays_due(real: Callable[..., StoredSchedule], row: StoredSchedule, each: Tick, decided: Sequence[DecidedTick]) -> Any:
    return replace(real(row, each, decided), next_at=row.next_at)


def _keeps_none(stored: StoredSchedule, decided: Sequence[DecidedTick]) -> StoredSchedule:
    del decided
    return stored


def _keeps_all(stored: StoredSchedule, decided: Sequence[DecidedTick]) -> StoredSchedule:
    ticks = {each.nominal_time: each for each in (*decided, *stored.ticks)}
    return replace(stored, ticks=tuple(sorted(ticks.values(), key=lambda each: each.nominal_time, reverse=True)))


def _keeps_what_was_said_last(stored: StoredSchedule, decided: Sequence[DecidedTick]) -> StoredSchedule:
    ticks = {each.nominal_time: each for each in (*stored.ticks, *decided)}
    newest = sorted(ticks.values(), key=lambda each: each.nominal_time, reverse=True)
    return replace(stored, ticks=tuple(newest[:20]))


def _without_origin(real: Callable[..., list[Inserted]], database: Database, jobs: Sequence[NewJob], **named: bool) -> Any:
    return real(database, [replace(new, origin=None) for new in jobs], **named)


def _all_or_no_tick(real: Callable[..., list[Ticked]], database: Database, ticks: Sequence[Tick]) -> list[Ticked]:
    """One that came too late stops the others."""
    rows = database.schedules.rows
    as_read = [each.name in rows and _schedules_ticks.may_decide(rows[each.name], each) for each in ticks]
    if all(as_read):
        return real(database, ticks)
    return [_schedules_ticks.Ticked(decided=False) for _ in ticks]


def _only_known(row: StoredSchedule, now: datetime) -> bool:
    return row.next_at is not None and row.next_at <= now


def _latest_first(real: Callable[..., DueSchedules], *arguments: Any, **named: Any) -> DueSchedules:
    found = real(*arguments, **named)
    return replace(found, schedules=found.schedules[::-1])


def _all_that_are_due(real: Callable[..., DueSchedules], database: Database, limit: int, **named: Any) -> DueSchedules:
    del limit
    return real(database, 1000, **named)


def _with_expressions(real: Callable[..., DueSchedules], database: Database, limit: int, **named: Any) -> DueSchedules:
    return real(database, limit, **{**named, "cron": True})


def _with_all(real: Callable[..., DueSchedules], database: Database, limit: int, **named: Any) -> DueSchedules:
    return real(database, limit, **{**named, "without": ()})


def _forgets_the_tick(new: NewJob) -> NewJob:
    return replace(new, origin=Origin(dry_run=True))


def _told_only(real: Callable[..., ClaimedJob], database: Database, row: Row, *rest: Any) -> ClaimedJob:
    """Whoever claims a dry run is told, and nothing of it is stored."""
    claimed = real(database, row, *rest)
    origin = row.new.origin
    if origin is not None and origin.dry_run:
        plain = replace(origin, dry_run=False)
        row.new = replace(row.new, origin=None if plain == Origin() else plain)
    return claimed


def _only_its_tick(row: Row, following: NewJob) -> Origin | None:
    del following
    origin = row.new.origin
    return None if origin is None else replace(origin, dry_run=False)


def _recovered_from_nowhere(real: Callable[..., list[ClaimedJob]], *arguments: Any) -> list[ClaimedJob]:
    return [replace(each, origin=None) for each in real(*arguments)]


def _all_dry(real: Callable[..., list[Row]], database: Database, rows: list[Row], now: datetime) -> list[Row]:
    sound = real(database, rows, now)
    for row in sound:
        database.make_dry(row)
    return sound


TICKS: dict[str, Mistake] = {
    "a store that decides a tick as often as it's asked to": Mistake(
        ((_schedules_ticks, "may_decide", _whatever_is_next),),
        cases=(
            "ticks/each_is_decided_once",
            "ticks/they_stand_for_themselves",
        ),
        breaks=Promise.ONCE_A_TICK,
        theme=Theme.PLANS,
    ),
    "a store that decides ticks of older definitions": Mistake(
        ((_schedules_ticks, "may_decide", _of_any_version),),
        cases=(
            "generations/removed_code_fires_no_more",
            "ticks/what_was_worked_out_before_a_pause",
        ),
    ),
    "a store that decides ticks of what is paused": Mistake(
        ((_schedules_ticks, "may_decide", _paused_or_not),),
        cases=(
            "ticks/only_as_it_was_read",
            "ticks/they_stand_for_themselves",
        ),
        breaks=Promise.NOT_PAUSED,
        theme=Theme.PLANS,
    ),
    "a store in which what is run by hand has to be due": Mistake(
        ((_schedules_ticks, "may_decide", _by_hand_as_others),), cases=("ticks/by_hand",)
    ),
    "a store that enqueues a tick again": Mistake(
        ((_schedules_ticks, "was_enqueued", lambda *_: False),),
        cases=(
            "ticks/by_hand",
            "ticks/one_was_enqueued_before",
        ),
    ),
    "a store in which ticks never overlap": Mistake(
        ((_schedules_ticks, "goes_on", lambda *_: False),),
        cases=(
            "ticks/several_of_one_call",
            "ticks/what_was_run_by_hand_counts",
        ),
        breaks=Promise.OVERLAP,
        theme=Theme.PLANS,
    ),
    "a store in which a tick overlaps only with a first job": Mistake(
        ((_schedules_ticks, "goes_on", _only_its_first_job),), cases=("ticks/the_one_before_goes_on",)
    ),
    "a store in which a tick overlaps only with what runs": Mistake(
        ((_schedules_ticks, "goes_on", _only_what_runs),),
        cases=(
            "ticks/several_of_one_call",
            "ticks/what_was_run_by_hand_counts",
        ),
    ),
    "a store in which a tick doesn't overlap with what waits": Mistake(
        (instead_of(_schedules_ticks, "goes_on", _but_not_what_waits),), cases=("ticks/one_that_waits_goes_on",)
    ),
    "a store in which a duplicate isn't the last chain": Mistake(
        (instead_of(_schedules_ticks, "with_chain", _only_its_own),), cases=("ticks/a_unique_key_that_is_held",)
    ),
    "a store that forgets the last chain": Mistake(
        ((_schedules_ticks, "with_chain", lambda row, became: row),),
        cases=(
            "ticks/several_jobs_and_skipped_ones",
            "ticks/skipping_alone",
        ),
    ),
    "a store that moves a schedule on for what is run by hand": Mistake(
        (instead_of(_schedules_ticks, "moved", _as_its_own),), cases=("ticks/by_hand",)
    ),
    "a store in which the last tick counts as the newest": Mistake(
        (instead_of(_schedules_ticks, "moved", _last_of_them),),
        cases=(
            "ticks/by_hand",
            "ticks/several_jobs_and_skipped_ones",
        ),
    ),
    "a store in which no further tick means an unknown one": Mistake(
        (instead_of(_schedules_ticks, "moved", _unknown_when_there_is_none),), cases=("ticks/nothing_is_waited_for",)
    ),
    "a store that leaves a decided tick due": Mistake(
        (instead_of(_schedules_ticks, "moved", _stays_due),),
        cases=(
            "ticks/a_new_schedule_is_due",
            "ticks/each_is_decided_once",
        ),
    ),
    "a store that keeps nothing of ticks": Mistake(
        ((_schedules_ticks, "with_ticks", _keeps_none),),
        cases=(
            "ticks/skipping_alone",
            "ticks/the_newest_are_kept",
        ),
    ),
    "a store that keeps all of every tick": Mistake(
        ((_schedules_ticks, "with_ticks", _keeps_all),), cases=("ticks/the_newest_are_kept",)
    ),
    "a store that forgets that a tick was enqueued": Mistake(
        ((_schedules_ticks, "with_ticks", _keeps_what_was_said_last),), cases=("ticks/one_was_enqueued_before",)
    ),
    "a store whose ticks make jobs that come from nowhere": Mistake(
        (instead_of(_schedules_ticks, "insert", _without_origin),),
        cases=(
            "ticks/times_are_exact",
            "ticks/who_takes_a_place",
        ),
    ),
    "a store in which one late tick stops the others": Mistake(
        (instead_of(_store_schedules, "tick", _all_or_no_tick),),
        cases=(
            "ticks/they_stand_for_themselves",
            "ticks/who_comes_together",
        ),
    ),
    "a store in which an unknown tick isn't due": Mistake(
        ((_schedules_ticks, "is_due", _only_known),),
        cases=(
            "schedules/a_paused_one_has_no_ticks",
            "schedules/each_field_lasts",
        ),
        breaks=Promise.TICKS_IN_TIME,
        theme=Theme.PLANS,
    ),
    "a store in which what is paused is due": Mistake(
        ((_schedules_ticks, "ticking", lambda database: list(database.schedules.rows.values())),),
        cases=(
            "schedules/a_paused_one_has_no_ticks",
            "ticks/nothing_is_waited_for",
        ),
    ),
    "a store that shows the latest schedules first": Mistake(
        (instead_of(_store_schedules, "due_schedules", _latest_first),), cases=("ticks/what_is_due_comes_in_order",)
    ),
    "a store that shows all that is due": Mistake(
        (instead_of(_store_schedules, "due_schedules", _all_that_are_due),), cases=("ticks/what_is_due_comes_in_order",)
    ),
    "a store that shows expressions to whoever can't read them": Mistake(
        (instead_of(_store_schedules, "due_schedules", _with_expressions),), cases=("ticks/what_is_due_comes_in_order",)
    ),
    "a store that shows schedules that don't count": Mistake(
        (instead_of(_store_schedules, "due_schedules", _with_all),), cases=("ticks/what_is_due_comes_in_order",)
    ),
    "a store that doesn't tell idle workers of ticks": Mistake(
        ((_recovery, "next_tick", lambda database: None),), cases=("ticks/a_new_schedule_is_due",)
    ),
    "a store in which the next step comes from nowhere": Mistake(
        ((_settle_next, "inherited_origin", lambda *_: None),),
        cases=(
            "dry_run/whoever_goes_on",
            "origin/a_chain_keeps_it",
        ),
    ),
    "a store in which the next step of a dry run isn't one": Mistake(
        ((_settle_next, "inherited_origin", _only_its_tick),), cases=("dry_run/whoever_goes_on",)
    ),
    "a store that doesn't show where jobs come from": Mistake(
        ((_listing, "stored_origin", lambda origin: None),),
        cases=(
            "origin/a_transaction_stores_it",
            "origin/who_takes_a_place_brings_its_own",
        ),
    ),
    "a store that shows nominal times as they were given": Mistake(
        ((_listing, "stored_origin", lambda origin: origin),), cases=("origin/its_time_is_shown_in_utc",)
    ),
    "a store in which recovered jobs come from nowhere": Mistake(
        (instead_of(_store, "take_expired", _recovered_from_nowhere),),
        cases=(
            "dry_run/whoever_goes_on",
            "origin/it_lasts",
        ),
    ),
    "a store that makes no dry runs": Mistake(
        ((Database, "make_dry", lambda *_: None),),
        cases=(
            "dry_run/a_claim_makes_it_one",
            "dry_run/it_is_still_one_after_its_end",
        ),
    ),
    "a store in which a dry run forgets its tick": Mistake(
        ((_rows, "as_dry_run", _forgets_the_tick),), cases=("dry_run/a_tick_stays_one",)
    ),
    "a store that forgets what was a dry run": Mistake(
        (instead_of(Database, "take", _told_only),),
        cases=(
            "dry_run/a_claim_makes_it_one",
            "dry_run/it_is_still_one_after_its_end",
        ),
    ),
    "a store in which every claim is a dry run": Mistake(
        (instead_of(_claim, "readable", _all_dry),),
        cases=(
            "origin/a_plain_chain_has_none",
            "origin/most_have_none",
        ),
    ),
}
