"""When the ticks of schedules are: intervals, and cron expressions on clocks that are changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from aioqueue.definitions._cron import read_cron
from aioqueue.definitions._timing import CronTiming, IntervalTiming, NewestTicks, upcoming
from aioqueue.definitions._zones import read_zone

ANCHOR = datetime(2025, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def cron(expression: str, zone: str = "UTC") -> CronTiming:
    return CronTiming(read_cron(expression), read_zone(zone))


def local(times: list[datetime] | tuple[datetime, ...], zone: str) -> list[str]:
    return [each.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for each in times]


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


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        (
            "30 2 * * *",
            "America/New_York",
            datetime(2025, 3, 8, 17, tzinfo=UTC),
            ["2025-03-09T03:00-04:00", "2025-03-10T02:30-04:00"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            datetime(2025, 11, 1, 17, tzinfo=UTC),
            ["2025-11-02T01:30-04:00", "2025-11-03T01:30-05:00"],
        ),
        ("0 9 * * *", "Pacific/Apia", datetime(2011, 12, 29, tzinfo=UTC), ["2011-12-29T09:00-10:00", "2011-12-31T09:00+14:00"]),
    ],
)
def test_fixed_times(expression: str, zone: str, start: datetime, expected: list[str]) -> None:
    timing = cron(expression, zone)
    found = upcoming(timing, start, 2)
    assert local(found, zone) == expected
    assert timing.newest(start, found[-1], 5) == NewestTicks(tuple(found), 0, None)


def test_every_second_of_a_year_is_counted() -> None:
    end = datetime(2026, 3, 1, tzinfo=UTC)
    newest = cron("* * * * * *", "Europe/Berlin").newest(end - timedelta(days=365), end, 1)
    assert newest == NewestTicks((end,), 365 * 86_400, end - timedelta(seconds=1))
