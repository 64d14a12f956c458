"""When the ticks of schedules are: intervals, and what holds for expressions too. Changes of clocks have their own file."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioqueue import ConfigurationError
from aioqueue.definitions._cron import read_cron
from aioqueue.definitions._timing import CronTiming, IntervalTiming, NewestTicks, Timing, upcoming
from aioqueue.definitions._zones import read_zone

ANCHOR = datetime(2025, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def cron(expression: str, zone: str = "UTC") -> CronTiming:
    return CronTiming(read_cron(expression), read_zone(zone))


def test_an_interval_counts_from_its_anchor() -> None:
    timing = IntervalTiming(90, ANCHOR)
    assert timing.after(ANCHOR - timedelta(seconds=1)) == ANCHOR
    assert timing.after(ANCHOR) == ANCHOR + timedelta(seconds=90)
    assert timing.after(ANCHOR + timedelta(seconds=90)) == ANCHOR + timedelta(seconds=180)
    assert timing.after(ANCHOR + timedelta(seconds=179.9)) == ANCHOR + timedelta(seconds=180)


def test_the_newest_ticks_of_an_interval() -> None:
    timing = IntervalTiming(60, ANCHOR)
    end = ANCHOR + timedelta(hours=1)
    assert timing.newest(ANCHOR, end, 2) == NewestTicks((end - timedelta(minutes=1), end), 59, end - timedelta(minutes=2))
    assert timing.newest(ANCHOR + timedelta(seconds=1), ANCHOR + timedelta(seconds=59), 2) == NewestTicks((), 0, None)
    assert timing.newest(end, ANCHOR, 2) == NewestTicks((), 0, None)
    assert timing.newest(end, end, 2) == NewestTicks((end,), 0, None)


def test_every_second_of_a_year_is_counted() -> None:
    end = datetime(2026, 3, 1, tzinfo=UTC)
    newest = cron("* * * * * *", "Europe/Berlin").newest(end - timedelta(days=365), end, 1)
    assert newest == NewestTicks((end,), 365 * 86_400, end - timedelta(seconds=1))


@pytest.mark.parametrize("timing", [cron("*/5 * * * *", "Europe/Berlin"), IntervalTiming(60, ANCHOR)])
def test_times_without_a_zone_are_refused_with_the_way_out(timing: Timing) -> None:
    naive = datetime(2025, 1, 1, 12)
    for look in (
        lambda: timing.after(naive),
        lambda: timing.newest(naive, ANCHOR, 1),
        lambda: timing.newest(ANCHOR, naive, 1),
        lambda: upcoming(timing, naive, 1),
        lambda: IntervalTiming(60, naive),
    ):
        with pytest.raises(ConfigurationError, match=r"has no time zone.*give one, such as datetime.now\(UTC\)"):
            look()


@pytest.mark.parametrize("timing", [cron("*/5 * * * *", "Europe/Berlin"), IntervalTiming(300, ANCHOR.replace(microsecond=0))])
def test_the_same_moment_in_any_zone_gives_the_same_tick_in_utc(timing: Timing) -> None:
    moments = [ANCHOR.astimezone(ZoneInfo(zone)) for zone in ("UTC", "Asia/Tokyo", "America/New_York")]
    found = [timing.after(each) for each in moments]
    assert found == [datetime(2025, 1, 1, 12, 5, tzinfo=UTC)] * 3
    assert all(each is not None and each.tzinfo is UTC for each in found)


def test_the_environment_s_time_zone_is_of_no_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = upcoming(cron("30 2 * * *", "America/New_York"), ANCHOR, 100)
    try:
        for zone in ("Asia/Tokyo", "America/New_York"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert upcoming(cron("30 2 * * *", "America/New_York"), ANCHOR, 100) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


@settings(max_examples=200, deadline=None)
@given(
    st.floats(1, 1e7),
    st.datetimes(datetime(1990, 1, 1), datetime(2050, 1, 1), timezones=st.just(UTC)),
    st.datetimes(datetime(1990, 1, 1), datetime(2050, 1, 1), timezones=st.just(UTC)),
    st.integers(0, 5),
)
def test_intervals_ascend_and_none_is_left_out(every: float, anchor: datetime, moment: datetime, most: int) -> None:
    timing = IntervalTiming(every, anchor)
    ticks = upcoming(timing, moment, 5)
    step = timedelta(seconds=every)
    assert moment < ticks[0] <= moment + step
    assert [later - earlier for earlier, later in pairwise(ticks)] == [step] * 4
    assert (ticks[0] - anchor) % step == timedelta(0)
    newest = timing.newest(moment + timedelta(microseconds=1), ticks[-1], most)
    assert list(newest.ticks) == ticks[5 - most :]
    assert newest.earlier == 5 - most
    assert newest.last_earlier == (ticks[4 - most] if most < 5 else None)
