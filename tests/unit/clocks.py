"""Clocks that are changed, and what a schedule's ticks are then, found minute by minute: what `_timing` works out has to agree.

This reads expressions by itself: numbers, lists, ranges, stars and steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

__all__ = ["CHANGES", "Change", "ticks_by_minute"]

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Change:
    """One change of the clocks: where, when in UTC, and what it is."""

    zone: str
    at: datetime
    what: str

    def __str__(self) -> str:
        return f"{self.zone} {self.at:%Y-%m-%d}: {self.what}"


def change(zone: str, at: str, what: str) -> Change:
    return Change(zone, datetime.fromisoformat(at).replace(tzinfo=UTC), what)


CHANGES = [
    change("America/New_York", "2025-03-09T07:00", "02:00 becomes 03:00"),
    change("America/New_York", "2025-11-02T06:00", "02:00 becomes 01:00"),
    change("Europe/Berlin", "2025-03-30T01:00", "02:00 becomes 03:00"),
    change("Europe/Berlin", "2025-10-26T01:00", "03:00 becomes 02:00"),
    change("Europe/Dublin", "2025-10-26T01:00", "02:00 becomes 01:00, and winter is the exception"),
    change("Australia/Lord_Howe", "2025-10-04T15:30", "02:00 becomes 02:30"),
    change("Australia/Lord_Howe", "2025-04-05T15:00", "02:00 becomes 01:30"),
    change("America/Sao_Paulo", "2018-11-04T03:00", "00:00 becomes 01:00"),
    change("America/Sao_Paulo", "2018-02-18T02:00", "00:00 becomes 23:00 of the day before"),
    change("Asia/Beirut", "2022-03-26T22:00", "00:00 becomes 01:00"),
    change("Asia/Beirut", "2022-10-29T21:00", "00:00 becomes 23:00 of the day before"),
    change("Africa/Cairo", "2023-04-27T22:00", "00:00 becomes 01:00"),
    change("Africa/Cairo", "2023-10-26T21:00", "00:00 becomes 23:00 of the day before"),
    change("America/St_Johns", "2006-04-02T03:31", "00:01 becomes 01:01"),
    change("America/St_Johns", "2006-10-29T02:31", "00:01 becomes 23:01 of the day before"),
    change("Antarctica/Troll", "2025-03-30T01:00", "01:00 becomes 03:00"),
    change("Antarctica/Troll", "2025-10-26T01:00", "03:00 becomes 01:00"),
    change("America/Nuuk", "2024-03-31T01:00", "23:00 becomes 00:00 of the next day"),
    change("America/Nuuk", "2024-10-27T01:00", "00:00 becomes 23:00 of the day before"),
    change("Asia/Pyongyang", "2018-05-04T15:00", "23:30 becomes 00:00 of the next day, for good"),
    change("Asia/Pyongyang", "2015-08-14T15:00", "00:00 becomes 23:30 of the day before, for good"),
    change("America/Caracas", "2016-05-01T07:00", "02:30 becomes 03:00, for good"),
    change("Pacific/Chatham", "2025-09-27T14:00", "02:45 becomes 03:45"),
    change("Africa/Casablanca", "2025-02-23T02:00", "03:00 becomes 02:00, for Ramadan"),
    change("Pacific/Apia", "2011-12-30T10:00", "30 December is left out"),
    change("Pacific/Kwajalein", "1993-08-21T12:00", "21 August is left out"),
]


@lru_cache
def walls(zone: str, start: datetime, end: datetime) -> tuple[tuple[datetime, datetime], ...]:
    """What a clock shows at each minute from one time to another: moments in UTC, with the times on the wall."""
    where = ZoneInfo(zone)
    count = (end - start) // MINUTE
    moments = [start + number * MINUTE for number in range(count)]
    return tuple((moment, moment.astimezone(where).replace(tzinfo=None)) for moment in moments)


def ticks_by_minute(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The ticks of an expression of five fields from one time to another, without the last one."""
    looked_at = walls(zone, start - DAY, end + DAY)
    fields = expression.split()
    star = fields[0].startswith("*") or fields[1].startswith("*")
    found = _met(fields, looked_at) if star else _once_a_day(fields, looked_at)
    return [each for each in found if start <= each < end]


def _met(fields: list[str], looked_at: tuple[tuple[datetime, datetime], ...]) -> list[datetime]:
    """Each minute at which the clock shows one of the times."""
    times, days = _times(fields), _Days(fields)
    return [moment for moment, wall in looked_at if (wall.hour, wall.minute) in times and wall.date() in days]


def _once_a_day(fields: list[str], looked_at: tuple[tuple[datetime, datetime], ...]) -> list[datetime]:
    """Each time of each day that there is: when it's first shown, or else when the clock is first past it."""
    first = {wall: moment for moment, wall in reversed(looked_at)}
    jumps = [(one, other, at) for (_, one), (at, other) in pairwise(looked_at) if other - one > MINUTE]
    days = _Days(fields)
    found: set[datetime] = set()
    for day in {wall.date() for _, wall in looked_at}:
        for hour, minute in _times(fields) if day in days else ():
            time = datetime(day.year, day.month, day.day, hour, minute)
            if time in first:
                found.add(first[time])
            else:
                found.update(at for one, other, at in jumps if one < time < other)
    return sorted(found)


def _times(fields: list[str]) -> set[tuple[int, int]]:
    return {(hour, minute) for minute in _values(fields[0], 0, 59) for hour in _values(fields[1], 0, 23)}


class _Days:
    """The days of an expression: both fields have to fit if one begins with a star, else one of them."""

    def __init__(self, fields: list[str]) -> None:
        self.days, self.months = _values(fields[2], 1, 31), _values(fields[3], 1, 12)
        self.weekdays = {each % 7 for each in _values(fields[4], 0, 7)}
        self.both = fields[2].startswith("*") or fields[4].startswith("*")

    def __contains__(self, day: date) -> bool:
        fits = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        return day.month in self.months and (all(fits) if self.both else any(fits))


def _values(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        values, _, step = part.partition("/")
        first, _, last = values.partition("-")
        low = least if first == "*" else int(first)
        high = most if first == "*" or (step and not last) else int(last or first)
        found.update(range(low, high + 1, int(step or 1)))
    return found
