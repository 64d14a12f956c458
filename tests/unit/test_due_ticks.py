"""What is to be decided of a schedule's ticks, as its row and the database's clock say: no store is there."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aioqueue import ConfigurationError, Registry
from aioqueue.definitions._due_ticks import DueTicks, job_of, tick_by_hand, tick_of, work_out
from aioqueue.vocabulary._schedules import SkippedTicks, StoredSchedule

NOW = datetime(2025, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
LATER_DUE = "missed: a later one was due by then"

registry = Registry("site.")


@registry.job(tags=("nightly",))
async def report(day: int, *, webhook: bool = True) -> None: ...


def at(hour: int, minute: int = 0, second: int = 0, day: int = 1) -> datetime:
    return datetime(2025, 1, day, hour, minute, second, tzinfo=UTC)


NINE = at(9)


def stored(since: datetime = NINE, next_at: datetime | None = None, **options: Any) -> StoredSchedule:
    row = {name: options.pop(name) for name in ("last_at", "anchor", "version") if name in options}
    owner = Registry(name="shop")
    owner.schedule(report(1), **({"cron": "*/5 * * * *"} | options))
    (definition,) = owner.schedules
    return StoredSchedule(
        **({"definition": definition, "version": 1, "since": since, "anchor": since, "next_at": next_at} | row)
    )


def skipped(nominal_time: datetime, count: int, reason: str = LATER_DUE) -> tuple[SkippedTicks, ...]:
    return (SkippedTicks(nominal_time=nominal_time, count=count, reason=reason),)


# -- the next tick -----------------------------------------------------------------------------------------------------------


def test_a_new_schedule_is_only_given_its_next_tick() -> None:
    assert work_out(stored(since=NOW), NOW) == DueTicks(at(12, 5))
    assert work_out(stored(since=NOW, cron=None, every=90), NOW) == DueTicks(NOW + timedelta(seconds=90))


def test_a_tick_that_isnt_due_yet_is_only_worked_out_again() -> None:
    assert work_out(stored(next_at=at(12, 5)), NOW) == DueTicks(at(12, 5))
    assert work_out(stored(next_at=at(12, 17)), NOW) == DueTicks(at(12, 5))


def test_a_due_tick_is_enqueued() -> None:
    assert work_out(stored(next_at=at(12)), NOW) == DueTicks(at(12, 5), (at(12),))
    assert work_out(stored(next_at=at(12)), at(12)) == DueTicks(at(12, 5), (at(12),))


def test_a_tick_that_was_due_before_a_worker_worked_it_out_is_enqueued() -> None:
    assert work_out(stored(since=at(11, 59)), NOW) == DueTicks(at(12, 5), (at(12),))
    assert work_out(stored(since=at(11, 49)), NOW) == DueTicks(at(12, 5), (at(12),), skipped(at(11, 55), 2))


def test_ticks_at_or_before_the_begin_dont_count() -> None:
    assert work_out(stored(since=at(12)), NOW) == DueTicks(at(12, 5))
    # Resumed after it was read: the version has changed too, and a store refuses; but it isn't enqueued here, either.
    assert work_out(stored(since=at(12), next_at=at(11, 50)), NOW) == DueTicks(at(12, 5))


def test_what_is_worked_out_again_goes_on_behind_the_newest_tick() -> None:
    assert work_out(stored(last_at=at(12)), NOW) == DueTicks(at(12, 5))
    assert work_out(stored(last_at=at(11, 50)), NOW) == DueTicks(at(12, 5), (at(12),), skipped(at(11, 55), 1))


def test_a_clock_that_had_jumped_ahead_silences_nothing() -> None:
    tomorrow = NOW + timedelta(days=1)
    assert work_out(stored(last_at=tomorrow), NOW) == DueTicks(at(12, 5))
    assert work_out(stored(since=tomorrow), NOW) == DueTicks(at(12, 5))
    assert work_out(stored(since=tomorrow, cron=None, every=60), NOW) == DueTicks(NOW + timedelta(seconds=60))
    assert work_out(stored(since=tomorrow, next_at=at(12)), NOW) == DueTicks(at(12, 5))


def test_an_interval_counts_from_its_anchor_whatever_was_missed() -> None:
    row = stored(since=at(9, 0, 7), cron=None, every=timedelta(hours=1), last_at=at(9, 0, 7), next_at=at(10, 0, 7))
    assert work_out(row, NOW) == DueTicks(at(12, 0, 7), (at(11, 0, 7),), skipped(at(10, 0, 7), 1))
    resumed = replace(row, since=at(11, 30), next_at=None)
    assert work_out(resumed, NOW) == DueTicks(at(12, 0, 7))


def test_the_end_of_the_calendar_is_no_error() -> None:
    assert work_out(stored(since=at(12), cron=None, every=timedelta(days=365 * 900)), NOW).next_at is not None
    far = datetime(9990, 1, 1, tzinfo=UTC)
    assert work_out(stored(since=far), far) == DueTicks(None)
    assert work_out(stored(since=far, cron=None, every=timedelta(days=365 * 20)), far) == DueTicks(None)


def test_a_stored_time_that_the_zone_has_no_more_is_nothing() -> None:
    """Where another version of the time zones had another opinion."""
    row = stored(cron="0 9 * * *", timezone="Europe/Berlin", next_at=at(9))
    assert work_out(row, at(9, 0, 1)) == DueTicks(at(8, day=2))


# -- missed ticks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, DueTicks(at(12, 5), (at(12),), skipped(at(11, 55), 11))),
        ({"catch_up": "none"}, DueTicks(at(12, 5), (at(12),), skipped(at(11, 55), 11))),
        (
            {"catch_up": "all", "catch_up_limit": 3},
            DueTicks(
                at(12, 5),
                (at(11, 50), at(11, 55), at(12)),
                skipped(at(11, 45), 9, "missed: of those, the newest 3 are caught up on"),
            ),
        ),
        ({"catch_up": "all"}, DueTicks(at(12, 5), (*(at(11, minute) for minute in range(5, 60, 5)), at(12)))),
    ],
)
def test_what_was_missed_for_an_hour(options: dict[str, Any], expected: DueTicks) -> None:
    assert work_out(stored(next_at=at(11, 5), **options), NOW) == expected


@pytest.mark.parametrize(
    ("late", "options", "enqueued"),
    [
        (3600, {}, True),
        (3601, {}, False),
        (600, {"grace": timedelta(minutes=10)}, True),
        (601, {"grace": 600}, False),
        (60, {"catch_up": "none"}, True),
        (61, {"catch_up": "none"}, False),
        (61, {"catch_up": "none", "grace": 3600}, False),
        (86_399, {"catch_up": "all"}, True),
    ],
)
def test_how_late_a_daily_tick_may_be(late: int, options: dict[str, Any], *, enqueued: bool) -> None:
    due = work_out(
        stored(cron="0 9 * * *", since=at(9, day=1), next_at=at(9, day=2), **options), at(9, day=2) + timedelta(seconds=late)
    )
    assert due.next_at == at(9, day=3)
    assert due.nominal_times == ((at(9, day=2),) if enqueued else ())
    assert [each.count for each in due.skipped] == ([] if enqueued else [1])
    assert all(each.reason.startswith("missed: it couldn't be decided within") for each in due.skipped)


def test_of_many_days_that_were_missed_none_is_run_at_another_time_of_day() -> None:
    """A daily job whose workers start six hours after its time, and days later."""
    due = work_out(stored(cron="0 3 * * *", next_at=at(3, day=2)), at(9, day=5))
    assert due == DueTicks(at(3, day=6), (), skipped(at(3, day=5), 4, "missed: it couldn't be decided within 1.0 h"))


@pytest.mark.parametrize("options", [{"cron": "* * * * * *"}, {"cron": None, "every": 1}, {"cron": "*/7 */2 * * * MON-FRI"}])
@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_a_year_without_workers_is_caught_up_on_at_once(options: dict[str, Any], catch_up: Any) -> None:
    row = stored(since=NOW - timedelta(days=365), catch_up=catch_up, catch_up_limit=1000, **options)
    begun = time.process_time()
    due = work_out(row, NOW)
    assert time.process_time() - begun < 1  # walking all of it would take minutes
    assert len(due.nominal_times) == (1000 if catch_up == "all" else 1)
    assert due.next_at is not None
    assert due.next_at > NOW
    if options["cron"] != "*/7 */2 * * * MON-FRI":
        assert sum(each.count for each in due.skipped) == 365 * 86_400 - len(due.nominal_times)


# -- jobs and ticks ------------------------------------------------------------------------------------------------------------


def test_a_tick_has_what_a_store_needs() -> None:
    row = stored(next_at=at(12), version=7, overlap="skip")
    due = work_out(row, NOW)
    tick = tick_of(row, due, [job_of(row, each) for each in due.nominal_times])
    assert (tick.name, tick.version, tick.expected, tick.next_at) == ("shop/site.report", 7, at(12), at(12, 5))
    assert tick.alone
    assert not tick.by_hand
    (job,) = tick.jobs
    assert (job.type, job.payload, job.tags) == ("site.report", b'{"day":1}', ("nightly",))
    assert job.origin is not None
    assert (job.origin.schedule, job.origin.nominal_time, job.origin.dry_run) == ("shop/site.report", at(12), False)


def test_each_job_has_an_id_of_its_own() -> None:
    row = stored()
    assert job_of(row, at(12)).id != job_of(row, at(12)).id


def test_a_tick_by_hand_stands_beside_the_schedules_own() -> None:
    row = stored(next_at=at(12, 5), overlap="skip")
    tick = tick_by_hand(row, job_of(row, NOW))
    assert tick.by_hand
    assert (tick.name, tick.next_at, len(tick.jobs)) == ("shop/site.report", None, 1)


@pytest.mark.parametrize(("said", "kept"), [(None, None), ("https://b.example/y", "https://b.example/y"), (False, "")])
def test_who_is_told_is_as_the_call_says(said: Any, kept: str | None) -> None:
    """None leaves it to whoever enqueues it, and an empty text is nobody."""
    owner = Registry(name="shop")
    owner.schedule(report(1).options(webhook=said), every=60)
    row = StoredSchedule(definition=owner.schedules[0], version=1, since=NOW, anchor=NOW)
    assert job_of(row, NOW).webhook == kept


def test_what_cant_be_worked_out_here_says_so() -> None:
    row = stored()
    for unknown in ({"timezone": "Mars/Base"}, {"cron": "not an expression"}):
        with pytest.raises(ConfigurationError):
            work_out(replace(row, definition=replace(row.definition, **unknown)), NOW)
    with pytest.raises(ValueError, match="the schedule's job can't be read"):
        job_of(replace(row, definition=replace(row.definition, template=b'{"from": "newer code"}')), NOW)
