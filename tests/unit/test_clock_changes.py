"""Ticks of cron expressions around changes of the clocks: once a day for fixed times, as the clock shows it for others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioqueue.definitions._cron import read_cron
from aioqueue.definitions._timing import CronTiming, NewestTicks, upcoming
from aioqueue.definitions._zones import read_zone
from tests.unit.clocks import CHANGES, Change, ticks_by_minute

FIXED = [
    "0 0 * * *",
    "1 0 * * *",
    "30 0 * * *",
    "30 1 * * *",
    "0 2 * * *",
    "15 2 * * *",
    "30 2 * * *",
    "0 3 * * *",
    "0 9 * * *",
    "45 23 * * *",
    "0,30 1,2,3 * * *",
    "0-59 0-3 * * *",
    "30 0-23 * * *",
    "0 0,12 * * *",
    "15 2 * * 0",
    "30 1 1,30,31 * *",
    "59 23 */2 * *",
]
OTHERS = [
    "* * * * *",
    "*/5 * * * *",
    "*/15 * * * *",
    "*/45 * * * *",
    "0 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "15 */3 * * *",
    "*/10 2 * * *",
    "* 0-2 * * *",
    "*/15 1,23 * * 0",
]
DENSE = ("* * * * *", "*/5 * * * *", "* 0-2 * * *", "0-59 0-3 * * *")  # looked at for a few hours only
ON_SOME_DAYS = ("15 2 * * 0", "*/15 1,23 * * 0", "30 1 1,30,31 * *")


def cron(expression: str, zone: str) -> CronTiming:
    return CronTiming(read_cron(expression), read_zone(zone))


def walked(timing: CronTiming, start: datetime, end: datetime) -> list[datetime]:
    """The ticks from one moment to another, without the last, one after another."""
    found: list[datetime] = []
    tick = timing.after(start - timedelta(microseconds=1))
    while tick is not None and tick < end:
        found.append(tick)
        tick = timing.after(tick)
    return found


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_change_is_one(change: Change) -> None:
    where = ZoneInfo(change.zone)
    before, at = (change.at - timedelta(minutes=1)).astimezone(where), change.at.astimezone(where)
    assert before.utcoffset() != at.utcoffset()
    shown = (before + timedelta(minutes=1)).strftime("%H:%M"), at.strftime("%H:%M")
    assert all(each in change.what for each in shown) or "left out" in change.what, shown


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_ticks_around_a_change_are_those_that_a_look_at_each_minute_finds(change: Change) -> None:
    for expression in FIXED + OTHERS:
        around = timedelta(hours=4 if expression in DENSE else 30)
        start, end = change.at - around, change.at + around
        timing = cron(expression, change.zone)
        expected = ticks_by_minute(expression, change.zone, start, end)
        assert expected or expression in ON_SOME_DAYS + DENSE, expression
        assert walked(timing, start, end) == expected, expression
        assert timing.newest(start, end - timedelta(minutes=1), 9999) == NewestTicks(tuple(expected), 0, None), expression


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_fixed_time_is_met_once_on_each_local_day(change: Change) -> None:
    """Said once more without the look at each minute. A day that is left out has none; 24 hours may have one more or less."""
    where = ZoneInfo(change.zone)
    start = (change.at - timedelta(days=3)).astimezone(where).replace(hour=12, minute=0)
    for hour, minute in ((0, 0), (0, 30), (1, 30), (2, 15), (2, 30), (9, 0), (23, 15), (23, 45)):
        found = upcoming(cron(f"{minute} {hour} * * *", change.zone), start.astimezone(UTC), 6)
        shown = [each.astimezone(where) for each in found]
        exact = [each for each in shown if (each.hour, each.minute) == (hour, minute)]
        assert len(exact) >= 5
        assert len({each.date() for each in exact}) == len(exact)
        for moved in set(shown) - set(exact):
            assert moved.astimezone(UTC) == change.at


def local(times: list[datetime], zone: str) -> list[str]:
    return [each.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for each in times]


# What the page on schedules promises, as people would write it down.
EXAMPLES = [
    ("30 2 * * *", "America/New_York", "2025-03-08T12:00", ["2025-03-09T03:00-04:00", "2025-03-10T02:30-04:00"]),
    ("30 1 * * *", "America/New_York", "2025-11-01T12:00", ["2025-11-02T01:30-04:00", "2025-11-03T01:30-05:00"]),
    ("0 9 * * *", "America/New_York", "2025-03-08T12:00", ["2025-03-09T09:00-04:00", "2025-03-10T09:00-04:00"]),
    ("0 9 * * *", "America/New_York", "2025-11-01T12:00", ["2025-11-02T09:00-05:00", "2025-11-03T09:00-05:00"]),
    (
        "*/30 * * * *",
        "America/New_York",
        "2025-03-09T01:00",
        ["2025-03-09T01:30-05:00", "2025-03-09T03:00-04:00", "2025-03-09T03:30-04:00"],
    ),
    (
        "*/30 * * * *",
        "America/New_York",
        "2025-11-02T00:45",
        [
            "2025-11-02T01:00-04:00",
            "2025-11-02T01:30-04:00",
            "2025-11-02T01:00-05:00",
            "2025-11-02T01:30-05:00",
            "2025-11-02T02:00-05:00",
        ],
    ),
    ("0 */2 * * *", "Europe/Berlin", "2025-03-29T23:30", ["2025-03-30T00:00+01:00", "2025-03-30T04:00+02:00"]),
    (
        "0 */2 * * *",
        "Europe/Berlin",
        "2025-10-25T23:30",
        ["2025-10-26T00:00+02:00", "2025-10-26T02:00+02:00", "2025-10-26T02:00+01:00", "2025-10-26T04:00+01:00"],
    ),
    ("0 2,3 * * *", "Europe/Berlin", "2025-03-29T23:30", ["2025-03-30T03:00+02:00", "2025-03-31T02:00+02:00"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00", ["2025-10-05T02:30+11:00", "2025-10-06T02:15+11:00"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T12:00", ["2025-04-06T01:45+11:00", "2025-04-07T01:45+10:30"]),
    (
        "30 * * * *",
        "Australia/Lord_Howe",
        "2025-04-06T00:45",
        ["2025-04-06T01:30+11:00", "2025-04-06T01:30+10:30", "2025-04-06T02:30+10:30"],
    ),
    ("30 * * * *", "Australia/Lord_Howe", "2025-10-05T01:00", ["2025-10-05T01:30+10:30", "2025-10-05T02:30+11:00"]),
    ("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00", ["2011-12-29T09:00-10:00", "2011-12-31T09:00+14:00"]),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00", ["2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"]),
    ("30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00", ["2018-02-17T23:30-02:00", "2018-02-18T23:30-03:00"]),
    ("0 0 * * *", "Asia/Beirut", "2022-03-26T12:00", ["2022-03-27T01:00+03:00", "2022-03-28T00:00+03:00"]),
    ("0 0 * * *", "Africa/Cairo", "2023-04-27T12:00", ["2023-04-28T01:00+03:00", "2023-04-29T00:00+03:00"]),
    ("0 0 * * *", "America/St_Johns", "2006-10-28T12:00", ["2006-10-29T00:00-02:30", "2006-10-30T00:00-03:30"]),
    ("30 23 * * *", "America/St_Johns", "2006-10-28T12:00", ["2006-10-28T23:30-02:30", "2006-10-29T23:30-03:30"]),
    ("30 0 * * *", "America/St_Johns", "2006-04-01T12:00", ["2006-04-02T01:01-02:30", "2006-04-03T00:30-02:30"]),
    ("30 1 * * *", "Antarctica/Troll", "2025-03-29T12:00", ["2025-03-30T03:00+02:00", "2025-03-31T01:30+02:00"]),
    ("30 1 * * *", "Antarctica/Troll", "2025-10-25T12:00", ["2025-10-26T01:30+02:00", "2025-10-27T01:30+00:00"]),
    ("30 23 * * *", "America/Nuuk", "2024-03-30T12:00", ["2024-03-31T00:00-01:00", "2024-03-31T23:30-01:00"]),
]


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), EXAMPLES)
def test_examples(expression: str, zone: str, start: str, expected: list[str]) -> None:
    begin = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone))
    assert local(upcoming(cron(expression, zone), begin, len(expected)), zone) == expected


def test_what_the_clock_shows_again_is_met_again_also_on_the_only_day_of_the_year() -> None:
    start = datetime(2025, 11, 2, 1, 45, tzinfo=ZoneInfo("America/New_York"))
    found = local(upcoming(cron("*/30 1 2 11 *", "America/New_York"), start, 3), "America/New_York")
    assert found == ["2025-11-02T01:00-05:00", "2025-11-02T01:30-05:00", "2026-11-02T01:00-05:00"]


@pytest.mark.parametrize(
    ("expression", "count"), [("30 2 * * *", 5), ("0,30 2 * * *", 9), ("0 2,3 * * *", 9), ("15 2 9 3 *", 1), ("0 * * * *", 119)]
)
def test_what_is_made_up_for_after_a_gap_is_counted_once(expression: str, count: int) -> None:
    start = datetime(2025, 3, 7, 0, 30, tzinfo=ZoneInfo("America/New_York"))
    timing = cron(expression, "America/New_York")
    assert timing.newest(start, start + timedelta(days=5), 0).earlier == count
    assert len(walked(timing, start, start + timedelta(days=5))) == count


@pytest.mark.parametrize(
    ("expression", "forward", "back"),
    [
        ("30 2 * * *", ["03:00"], ["02:30+02:00"]),
        ("0,30 2 * * *", ["03:00"], ["02:00+02:00", "02:30+02:00"]),
        ("0 2,3 * * *", ["03:00"], ["02:00+02:00", "03:00+01:00"]),
        ("0 * * * *", 23, 25),
        ("*/15 * * * *", 23 * 4, 25 * 4),
        ("0 */2 * * *", 11, 13),
        ("*/10 2 * * *", 0, 12),
    ],
)
def test_the_table_of_the_page(expression: str, forward: list[str] | int, back: list[str] | int) -> None:
    for day, expected in ((datetime(2025, 3, 30), forward), (datetime(2025, 10, 26), back)):
        start, end = (each.replace(tzinfo=ZoneInfo("Europe/Berlin")) for each in (day, day + timedelta(days=1)))
        found = walked(cron(expression, "Europe/Berlin"), start, end)
        if isinstance(expected, int):
            assert len(found) == expected
        else:
            assert [each[11 : 11 + len(expected[0])] for each in local(found, "Europe/Berlin")] == expected


def test_seconds_follow_their_minute() -> None:
    """A minute that is left out is made up for with its seconds; one that comes twice has them once, if it's a fixed time."""
    start = datetime(2025, 3, 8, 12, tzinfo=ZoneInfo("America/New_York"))
    found = upcoming(cron("15,45 30 2 * * *", "America/New_York"), start, 4)
    assert [each.astimezone(start.tzinfo).isoformat() for each in found] == [
        "2025-03-09T03:00:15-04:00",
        "2025-03-09T03:00:45-04:00",
        "2025-03-10T02:30:15-04:00",
        "2025-03-10T02:30:45-04:00",
    ]
    start = datetime(2025, 11, 1, 12, tzinfo=ZoneInfo("America/New_York"))
    found = upcoming(cron("*/30 30 1 * * *", "America/New_York"), start, 3)
    assert [each.astimezone(start.tzinfo).isoformat() for each in found] == [
        "2025-11-02T01:30:00-04:00",
        "2025-11-02T01:30:30-04:00",
        "2025-11-03T01:30:00-05:00",
    ]


# -- whatever expression, zone and time ---------------------------------------------------------------------------------------


def lists(least: int, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(least, most), min_size=1, max_size=3).map(lambda values: ",".join(map(str, values)))


def fields(least: int, most: int) -> st.SearchStrategy[str]:
    steps = st.integers(1, most).map(lambda step: f"*/{step}")
    ranges = st.tuples(st.integers(least, most), st.integers(least, most)).map(lambda ends: f"{min(ends)}-{max(ends)}")
    return st.one_of(st.just("*"), lists(least, most), steps, ranges)


days = st.one_of(
    st.just("* * *"),
    st.tuples(st.one_of(st.just("*"), lists(1, 28)), fields(1, 12), fields(0, 7)).map(lambda parts: " ".join(parts)),
)
expressions = st.tuples(fields(0, 59), fields(0, 23), days).map(lambda parts: " ".join(parts))
zones = st.sampled_from(sorted({change.zone for change in CHANGES} | {"UTC", "Asia/Kathmandu", "America/Phoenix"}))
anywhere = st.datetimes(datetime(1975, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))
near_a_change = st.tuples(st.sampled_from(CHANGES), st.timedeltas(timedelta(days=-2), timedelta(days=2))).map(
    lambda both: both[0].at + both[1]
)
moments = st.one_of(anywhere, near_a_change)


@settings(max_examples=100, deadline=None)
@given(expressions, zones, moments)
def test_ticks_ascend_and_none_is_left_out(expression: str, zone: str, moment: datetime) -> None:
    check_order(expression, zone, moment)


def check_order(expression: str, zone: str, moment: datetime) -> None:
    timing = cron(expression, zone)
    ticks = upcoming(timing, moment, 6)
    assert len(ticks) == 6
    assert all(earlier < later for earlier, later in zip([moment, *ticks], ticks, strict=False))
    assert all(each.tzinfo is UTC and each.second == each.microsecond == 0 for each in ticks)
    for earlier, later in zip([moment, *ticks], ticks, strict=False):
        for between in (earlier, earlier + (later - earlier) / 3, later - timedelta(microseconds=1)):
            assert timing.after(between) == later
    start = moment + timedelta(microseconds=1)
    for most in (1, 4, 6, 7):
        newest = timing.newest(start, ticks[-1], most)
        earlier = ticks[:-most] if most < 6 else []
        if ticks[-1] - start < timedelta(days=3000):
            assert newest == NewestTicks(tuple(ticks[-most:]), len(earlier), earlier[-1] if earlier else None)


@settings(max_examples=50, deadline=None)
@given(expressions, st.sampled_from(CHANGES), st.integers(0, 5), st.sampled_from(["0", "30", "15,45", "*/20"]))
def test_what_is_counted_agrees_with_a_walk(expression: str, change: Change, most: int, seconds: str) -> None:
    check_count(expression, change, most, seconds)


def check_count(expression: str, change: Change, most: int, seconds: str) -> None:
    timing = cron(f"{seconds} {expression}", change.zone)
    start = change.at - timedelta(hours=5, seconds=17)
    ticks = walked(timing, start, start + timedelta(hours=30))[:500]
    if not ticks:
        return
    middle = ticks[len(ticks) // 2]
    for begin, end in ((start, ticks[-1]), (middle, ticks[-1]), (start, middle), (middle, middle)):
        expected = [each for each in ticks if begin <= each <= end]
        newest = timing.newest(begin, end, most)
        kept = expected[len(expected) - most :] if most < len(expected) else expected
        assert list(newest.ticks) == kept
        assert newest.earlier == len(expected) - len(kept)
        assert newest.last_earlier == (expected[-most - 1] if newest.earlier else None)


@settings(max_examples=25, deadline=None)
@given(expressions, st.sampled_from(CHANGES))
def test_any_expression_around_a_change_is_what_a_look_at_each_minute_finds(expression: str, change: Change) -> None:
    check_minutes(expression, change)


def check_minutes(expression: str, change: Change) -> None:
    start, end = change.at - timedelta(hours=26), change.at + timedelta(hours=26)
    assert walked(cron(expression, change.zone), start, end) == ticks_by_minute(expression, change.zone, start, end)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(expressions, zones, moments, st.sampled_from(CHANGES), st.integers(0, 5), st.sampled_from(["0", "15,45", "*/20"]))
def test_all_of_it_for_long(expression: str, zone: str, moment: datetime, change: Change, most: int, seconds: str) -> None:
    check_order(expression, zone, moment)
    check_count(expression, change, most, seconds)
    check_minutes(expression, change)
