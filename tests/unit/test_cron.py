"""What cron expressions mean, and which are refused."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aioqueue import ConfigurationError
from aioqueue.definitions._cron import read_cron
from aioqueue.definitions._timing import CronTiming, upcoming
from aioqueue.definitions._zones import LAST_MOMENT, read_zone

NEW_YORK = ZoneInfo("America/New_York")


def ticks(expression: str, start: str, count: int = 3, zone: str = "UTC") -> list[str]:
    """The next ticks, as the clock shows them."""
    timing = CronTiming(read_cron(expression), read_zone(zone))
    found = upcoming(timing, datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)), count)
    return [each.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00") for each in found]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2025-01-01 12:01", "2025-01-01 12:02", "2025-01-01 12:03"]),
        ("*/20 * * * *", ["2025-01-01 12:20", "2025-01-01 12:40", "2025-01-01 13:00"]),
        ("5/15 * * * *", ["2025-01-01 12:05", "2025-01-01 12:20", "2025-01-01 12:35"]),
        ("10-40/15 * * * *", ["2025-01-01 12:10", "2025-01-01 12:25", "2025-01-01 12:40"]),
        ("*/60 * * * *", ["2025-01-01 13:00", "2025-01-01 14:00", "2025-01-01 15:00"]),
        ("7 */24 * * *", ["2025-01-02 00:07", "2025-01-03 00:07", "2025-01-04 00:07"]),
        ("0 9 * * MON-FRI", ["2025-01-02 09:00", "2025-01-03 09:00", "2025-01-06 09:00"]),
        ("0 9 * jan,Feb mon", ["2025-01-06 09:00", "2025-01-13 09:00", "2025-01-20 09:00"]),
        ("0 9 L * *", ["2025-01-31 09:00", "2025-02-28 09:00", "2025-03-31 09:00"]),
        ("0 9 LW * *", ["2025-01-31 09:00", "2025-02-28 09:00", "2025-03-31 09:00"]),
        ("0 9 * * 5L", ["2025-01-31 09:00", "2025-02-28 09:00", "2025-03-28 09:00"]),
        ("0 9 * * MON#2", ["2025-01-13 09:00", "2025-02-10 09:00", "2025-03-10 09:00"]),
        ("0 9 * * MON/2", ["2025-01-03 09:00", "2025-01-05 09:00", "2025-01-06 09:00"]),
        ("@hourly", ["2025-01-01 13:00", "2025-01-01 14:00", "2025-01-01 15:00"]),
        ("@daily", ["2025-01-02 00:00", "2025-01-03 00:00", "2025-01-04 00:00"]),
        ("@Midnight", ["2025-01-02 00:00", "2025-01-03 00:00", "2025-01-04 00:00"]),
        ("@weekly", ["2025-01-05 00:00", "2025-01-12 00:00", "2025-01-19 00:00"]),
        ("@monthly", ["2025-02-01 00:00", "2025-03-01 00:00", "2025-04-01 00:00"]),
        ("@yearly", ["2026-01-01 00:00", "2027-01-01 00:00", "2028-01-01 00:00"]),
        ("@annually", ["2026-01-01 00:00", "2027-01-01 00:00", "2028-01-01 00:00"]),
        ("*/20 * * * * *", ["2025-01-01 12:00:20", "2025-01-01 12:00:40", "2025-01-01 12:01"]),
        ("30 */10 * * * *", ["2025-01-01 12:00:30", "2025-01-01 12:10:30", "2025-01-01 12:20:30"]),
        ("59 59 23 31 12 *", ["2025-12-31 23:59:59", "2026-12-31 23:59:59", "2027-12-31 23:59:59"]),
        ("  0\t9 * *\n* ", ["2025-01-02 09:00", "2025-01-03 09:00", "2025-01-04 09:00"]),
    ],
)
def test_what_expressions_mean(expression: str, expected: list[str]) -> None:
    assert ticks(expression, "2025-01-01T12:00") == expected


@pytest.mark.parametrize("weekday", ["0", "7", "SUN", "sun", "7,0", "0-0"])
def test_sunday_has_two_numbers_and_a_name(weekday: str) -> None:
    assert ticks(f"0 9 * * {weekday}", "2025-01-01T12:00", 2) == ["2025-01-05 09:00", "2025-01-12 09:00"]


def test_days_from_friday_to_sunday() -> None:
    assert ticks("0 9 * * 5-7", "2025-01-01T12:00", 4) == [f"2025-01-{day} 09:00" for day in ("03", "04", "05", "10")]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Neither field for days begins with a star: one of them is enough.
        ("0 9 1,15 * 5", ["03", "10", "15", "17", "24"]),
        ("0 9 13 * FRI", ["03", "10", "13", "17", "24"]),
        ("0 9 1-31 * 1", ["02", "03", "04", "05", "06"]),  # every day: a range isn't a star
        # One begins with a star: both have to fit.
        ("0 9 */2 * 1", ["13", "27"]),
        ("0 9 * * 1", ["06", "13", "20", "27"]),
        ("0 9 13 * *", ["13"]),
        ("0 9 1-7 * */7", ["05"]),  # the first Sunday
    ],
)
def test_the_two_fields_for_days(expression: str, expected: list[str]) -> None:
    """As in Vixie's cron, by what is written and not by what it stands for."""
    assert ticks(expression, "2025-01-01T12:00", len(expected)) == [f"2025-01-{day} 09:00" for day in expected]
    found = ticks(expression, "2025-01-01T12:00", len(expected) + 1)
    assert found[-1] > f"2025-01-{expected[-1]} 09:00"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("2024-02-28T00:00", ["2024-02-29 09:00", "2028-02-29 09:00"]),
        ("2024-02-29T08:59", ["2024-02-29 09:00", "2028-02-29 09:00"]),
        ("2024-02-29T09:00", ["2028-02-29 09:00", "2032-02-29 09:00"]),
        ("2096-02-29T08:00", ["2096-02-29 09:00", "2104-02-29 09:00"]),
        ("2096-03-01T00:00", ["2104-02-29 09:00", "2108-02-29 09:00"]),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_29_february(start: str, expected: list[str], zone: str) -> None:
    assert ticks("0 9 29 2 *", start, 2, zone) == expected


def test_a_fifth_monday_in_february_is_found_40_years_later() -> None:
    assert ticks("0 0 * 2 MON#5", "2072-03-01T00:00", 1) == ["2112-02-29 00:00"]


# -- what is refused ---------------------------------------------------------------------------------------------------------

REFUSED = [
    ("", "cron is empty"),
    ("   \n", "cron is empty"),
    ("* * * *", "it has 4 fields, not five"),
    ("* * * * * * *", "it has 7 fields, not five"),
    ("60 * * * *", "'60' isn't a minute; there are 0 to 59"),
    ("60 * * * * *", "'60' isn't a second; there are 0 to 59"),
    ("* 24 * * *", "'24' isn't an hour; there are 0 to 23"),
    ("* * 0 * *", "'0' isn't a day of the month"),
    ("* * 32 * *", "'32' isn't a day of the month"),
    ("* * * 13 *", "'13' isn't a month; there are 1 to 12, or JAN to DEC"),
    ("* * * FOO *", "'FOO' isn't a month"),
    ("* * * * 8", "'8' isn't a day of the week; there are 0 to 7, or SUN to SAT"),
    ("* * * * MON#6", "'MON#6' isn't a day of the week"),
    ("* * * * FRI-MON", "'FRI-MON' isn't a day of the week"),
    ("30-10 * * * *", "'30-10' isn't a minute"),
    ("*/0 * * * *", "'*/0' isn't a minute"),
    ("*/-5 * * * *", "isn't a minute"),
    ("1.5 * * * *", "isn't a minute"),
    ("MON/2 * * * *", "'MON/2' isn't a minute"),
    ("0 9 15W * *", "'15W' isn't a day of the month"),
    ("0 9 ? * MON", "in place of ? write *"),
    ("0 9 * * ;", "isn't a day of the week"),
    ("0 9 * * *,", "isn't a day of the week"),
    ("0 9 * * * 2030", "isn't a day of the week"),
    ("TZ=UTC 0 9 * * *", "the time zone is given as timezone="),
    ("CRON_TZ=UTC 0 9 * * *", "the time zone is given as timezone="),
    ("@reboot", "enqueue a job where the program starts"),
    ("@every 5m", "an interval is given as every=timedelta(...)"),
    ("@hour", "there are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"),
    ("0 9 * * \u0660", "it has characters that none has"),
    ("0 9 * * \u017fun", "it has characters that none has"),
    ("0 9 * * *\0", "it has characters that none has"),
    ("0 9 * * \ud800", "it has characters that none has"),
    # Never: the first two are said so by the library, the others only seem to be in order.
    ("0 0 30 2 *", "would never fire"),
    ("0 0 31 4 *", "would never fire"),
    ("0 0 31 2,4,6,9,11 *", "would never fire"),
    ("0 0 */29 2 MON#5", "would never fire"),
    ("0 0 */31 * MON#2", "would never fire"),
    # Steps that don't do what they say.
    ("*/100 * * * *", "'*/100' has a step of more than the 60 values that there are for a minute"),
    ("0 */48 * * *", "an interval is given as every=timedelta(...)"),
    ("0 0 1/32 * *", "has a step of more than the 31"),
    ("* * * * */8", "has a step of more than the 7"),
    # Too long, and numbers that the library can't read as such.
    ("0," * 5000 + "0 * * * *", "an expression of 1,000 characters at most, not 10,009"),
    ("9" * 10_000, "an expression of 1,000 characters at most"),
    ("9" * 900 + " * * * *", "isn't a minute"),
    ("*/" + "9" * 900 + " * * * *", "has a step of"),
    ("0 0 * * MON#" + "9" * 900, "isn't a day of the week"),
    ("1" + "/1" * 490 + " * * * *", "isn't a minute"),
    ("," * 900 + " * * * *", "isn't a minute"),
]


@pytest.mark.parametrize(("expression", "why"), REFUSED, ids=[repr(expression)[:30] for expression, _ in REFUSED])
def test_what_cant_be_read_or_never_fires_is_refused_at_once_with_the_reason(expression: str, why: str) -> None:
    read_cron("* * * * *")  # the library is loaded once
    begun = time.process_time()
    with pytest.raises(ConfigurationError) as caught:
        read_cron(expression)
    taken = time.process_time() - begun
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500
    assert taken < 0.05


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"] * 5, object()])
def test_what_isnt_a_text_is_refused(expression: Any) -> None:
    with pytest.raises(ConfigurationError, match="cron must be an expression, such as"):
        read_cron(expression)


def test_the_longest_list_of_minutes_may_be_written() -> None:
    every = ",".join(map(str, range(60)))
    assert read_cron(f"{every} {','.join(map(str, range(24)))} * * *").minutes == tuple(range(60))


def test_the_end_of_the_calendar_is_no_error() -> None:
    assert CronTiming(read_cron("0 0 1 1 *"), read_zone("UTC")).after(LAST_MOMENT) is None
    assert CronTiming(read_cron("* * * * *"), read_zone("Asia/Tokyo")).after(datetime(9999, 12, 31, 23, 59, tzinfo=UTC)) is None
    found = CronTiming(read_cron("0 0 29 2 *"), read_zone("UTC")).after(datetime(9899, 6, 1, tzinfo=UTC))
    assert found == datetime(9904, 2, 29, tzinfo=UTC)


def test_times_before_clocks_are_known_are_as_the_first_known() -> None:
    assert ticks("0 9 * * *", "0001-01-02T00:00", 1) == ["1971-01-01 09:00"]


# -- what a library's own time zones were seen to get wrong -------------------------------------------------------------------


def test_seconds_dont_lose_the_tick_in_a_gap() -> None:
    assert ticks("0 30 2 * * *", "2025-03-08T12:00", 2, "America/New_York") == ["2025-03-09 03:00", "2025-03-10 02:30"]


def test_in_a_repeated_hour_the_next_tick_is_never_before_now() -> None:
    timing = CronTiming(read_cron("30 1 * * *"), read_zone("America/New_York"))
    second_time = datetime(2025, 11, 2, 1, 10, fold=1, tzinfo=NEW_YORK)
    assert timing.after(second_time) == datetime(2025, 11, 3, 1, 30, tzinfo=NEW_YORK)


def test_half_an_hours_shift_misses_no_time_that_the_clock_shows() -> None:
    expected = ["2025-04-06 01:30", "2025-04-06 01:30", "2025-04-06 02:30"]
    assert ticks("30 * * * *", "2025-04-06T00:45", 3, "Australia/Lord_Howe") == expected
    assert ticks("30 * * * *", "2025-10-05T01:00", 2, "Australia/Lord_Howe") == ["2025-10-05 01:30", "2025-10-05 02:30"]


def test_a_day_that_is_left_out_isnt_made_up_for() -> None:
    assert ticks("0 9 * * *", "2011-12-29T00:00", 3, "Pacific/Apia") == [
        "2011-12-29 09:00",
        "2011-12-31 09:00",
        "2012-01-01 09:00",
    ]
    assert ticks("0 9 30 12 *", "2011-06-01T00:00", 1, "Pacific/Apia") == ["2012-12-30 09:00"]


# -- zones --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "Europe", "../etc/passwd", "/etc/passwd", "x" * 5000, "a\0b", "\ud800", "CEST", "Europe/Berlin\n"]
)
def test_an_unknown_zone_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r'there is no time zone .* here: give a name such as "Europe/Berlin"'
    ) as caught:
        read_zone(name)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["localtime", "posix/Europe/Berlin", "right/Europe/Berlin"])
def test_a_zone_that_is_another_one_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="isn't the same, or isn't there, on other machines"):
        read_zone(name)


@pytest.mark.parametrize("name", [None, 5, UTC, ZoneInfo("Europe/Berlin")])
def test_a_zone_is_given_by_its_name(name: object) -> None:
    with pytest.raises(ConfigurationError, match='timezone must be a name, such as "Europe/Berlin"'):
        read_zone(name)


# -- without the extra ---------------------------------------------------------------------------------------------------------

WITHOUT = """
import sys
from datetime import timedelta
import aioqueue
print("cronsim" in sys.modules)
sys.modules["cronsim"] = None
registry = aioqueue.Registry("site.")

@registry.job
async def tidy() -> None: ...

registry.schedule(tidy(), every=timedelta(hours=1))
try:
    registry.schedule(tidy(), cron="@daily", name="daily")
except aioqueue.ConfigurationError as error:
    print(error)
print([each.name for each in registry.schedules])
"""


def test_without_the_extra_intervals_work_and_expressions_say_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60)
    loaded, error, names = done.stdout.splitlines()
    assert loaded == "False"  # it's there only for who has expressions
    assert error == (
        "the schedule daily: cron expressions need the extra: pip install 'aioqueue-jobs[cron]'. Intervals (every=) don't"
    )
    assert names == "['site/site.tidy']"
