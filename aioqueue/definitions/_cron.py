"""Cron expressions: which days, hours, minutes and seconds one has. Time zones are no matter here: `_timing` knows them.

cronsim reads them, and finds days; it's imported here only, and only where there is an expression, since it's in an extra. Its
own times in a zone aren't used: they go back within a repeated hour, or miss times where clocks are changed by half an hour.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cronsim import CronSim

__all__ = ["CronExpression", "read_cron"]

_LONGEST_CHARACTERS = 1000
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WAYS_OUT = (
    (re.compile(r"@reboot"), "it would run when a machine starts: enqueue a job where the program starts"),
    (re.compile(r"@every\b.*"), "an interval is given as every=timedelta(...)"),
    (re.compile(r"@.*"), f"there are {', '.join(_MACROS)}"),
    (re.compile(r"(CRON_)?TZ=.*", re.IGNORECASE), "the time zone is given as timezone="),
    (re.compile(r".*\?.*"), "in place of ? write *"),
)
_A_MINUTE = timedelta(minutes=1)
_A_DAY = timedelta(days=1)
_LAST_MINUTE = time(23, 59)
_ANY_MIDNIGHT = datetime(2000, 1, 1)  # noqa: DTZ001 - a clock on a wall: zones are no matter here


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its name, the expression in which it stands alone, how many values it has, and what may stand in it."""

    name: str
    alone: str
    size: int
    values: str


_SECOND = _Field("a second", "{} * * * *", 60, "0 to 59")  # cronsim reads it as minutes, which are written alike
_FIELDS = (
    _Field("a minute", "{} * * * *", 60, "0 to 59"),
    _Field("an hour", "0 {} * * *", 24, "0 to 23"),
    _Field("a day of the month", "0 0 {} * *", 31, "1 to 31, L for the last day, LW for the last one from Monday to Friday"),
    _Field("a month", "0 0 1 {} *", 12, "1 to 12, or JAN to DEC"),
    _Field("a day of the week", "0 0 * * {}", 7, "0 to 7, or SUN to SAT, 5L for the last Friday, 1#2 for the second Monday"),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """An expression that was read. What it gives are minutes as a clock on a wall shows them: datetimes without a zone.

    Attributes:
        text: As it was written, with single blanks.
        seconds, minutes, hours: The values of these fields, ascending.
        fixed: Whether it's for fixed times of a day: neither its minute nor its hour begins with a star.
        days: Its fields for days: day of the month, month, day of the week.
    """

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    fixed: bool
    days: str

    def first_minute(self, low: datetime) -> datetime | None:
        """The first one that isn't before `low`, which is a whole minute; None if there is none within 50 years."""
        today = low.date()
        day = self._day_from(today)
        if day == today:
            rank = self._rank(low)
            if rank < len(self.hours) * len(self.minutes):
                return self._minute(today, rank)
            day = self._day_from(today + _A_DAY)
        return None if day is None else self._minute(day, 0)

    def last_minute(self, high: datetime) -> datetime | None:
        """The last one that isn't after `high`, which is a whole minute; None if there is none within 50 years."""
        today = high.date()
        day = self._day_until(today)
        if day == today and high.time() < _LAST_MINUTE:
            rank = self._rank(high + _A_MINUTE)
            if rank > 0:
                return self._minute(today, rank - 1)
            day = self._day_until(today - _A_DAY)
        return None if day is None else self._minute(day, -1)

    def count_minutes(self, low: datetime, high: datetime) -> int:
        """How many there are from one whole minute to another, both included."""
        if high < low:
            return 0
        days = self._count_days(low.date(), high.date())
        count = days * len(self.hours) * len(self.minutes)
        if self._day_from(low.date()) == low.date():
            count -= self._rank(low)
        if self._day_from(high.date()) == high.date() and high.time() < _LAST_MINUTE:
            count -= len(self.hours) * len(self.minutes) - self._rank(high + _A_MINUTE)
        return count

    def _rank(self, moment: datetime) -> int:
        """How many of a day's minutes are before this one of the day."""
        hours = bisect_left(self.hours, moment.hour)
        whole = hours * len(self.minutes)
        if hours == len(self.hours) or self.hours[hours] != moment.hour:
            return whole
        return whole + bisect_left(self.minutes, moment.minute)

    def _minute(self, day: date, rank: int) -> datetime:
        hour, minute = divmod(rank, len(self.minutes))
        return datetime.combine(day, time(self.hours[hour], self.minutes[minute]))

    # -- days -------------------------------------------------------------------------------------------------------

    @property
    def _every_day(self) -> bool:
        return self.days == "* * *"

    def _day_from(self, day: date) -> date | None:
        return day if self._every_day else next(self._days_from(day), None)

    def _day_until(self, day: date) -> date | None:
        return day if self._every_day else next(self._walk(datetime.combine(day, time()) + _A_MINUTE, reverse=True), None)

    def _count_days(self, first: date, last: date) -> int:
        if self._every_day:
            return (last - first).days + 1
        return sum(1 for _ in takewhile(lambda day: day <= last, self._days_from(first)))

    def _days_from(self, day: date) -> Iterator[date]:
        return self._walk(datetime.combine(day, time()) - _A_MINUTE, reverse=False)

    def _walk(self, start: datetime, *, reverse: bool) -> Iterator[date]:
        for found in _import_cronsim()(f"0 0 {self.days}", start, reverse=reverse):
            yield found.date()


def read_cron(expression: str) -> CronExpression:
    """Read an expression: five fields, or six with seconds first, or a name such as `@daily`.

    Raises:
        ConfigurationError: It isn't one, or it has no day at all; with the way out. Or the extra `cron` isn't installed.
    """
    return _read_fields(_read_text(expression))


@lru_cache(maxsize=1024)
def _read_fields(text: str) -> CronExpression:
    fields = _MACROS.get(text.lower(), text).split(" ")
    if len(fields) not in (5, 6):
        for pattern, way_out in _WAYS_OUT:
            if pattern.fullmatch(text):
                raise _refused(text, way_out)
        raise _refused(
            text,
            f"it has {len(fields)} fields, not five (minute, hour, day of the month, month, day of the week) or six (the same "
            "after a second)",
        )
    second, *others = fields if len(fields) == 6 else ("0", *fields)
    sim = _import_cronsim()
    for field, part in zip((_SECOND, *_FIELDS), (second, *others), strict=True):
        _check_field(sim, text, field, part)
    minute, hour, *days = others
    read = CronExpression(
        text=text,
        seconds=_values(sim, _SECOND, second, lambda each: each.minute),
        minutes=_values(sim, _FIELDS[0], minute, lambda each: each.minute),
        hours=_values(sim, _FIELDS[1], hour, lambda each: each.hour),
        fixed=not minute.startswith("*") and not hour.startswith("*"),
        days=" ".join(days),
    )
    _refuse_impossible(sim, read)
    return read


def _read_text(expression: object) -> str:
    if not isinstance(expression, str):
        raise ConfigurationError(f'cron must be an expression, such as "0 9 * * MON-FRI", not {safe_repr(expression)}')
    if len(expression) > _LONGEST_CHARACTERS:
        raise ConfigurationError(
            f"cron must be an expression of {_LONGEST_CHARACTERS:,} characters at most, not {len(expression):,}"
        )
    text = " ".join(expression.split())
    if not text:
        raise ConfigurationError('cron is empty: give an expression, such as "0 9 * * MON-FRI"')
    if not text.isascii() or not text.isprintable():
        raise _refused(text, "it has characters that none has")
    return text


def _refused(text: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"cron={safe_repr(text, 100)} can't be read: {why}")


def _import_cronsim() -> type[CronSim]:
    try:
        from cronsim import CronSim
    except ImportError:
        raise ConfigurationError(
            "cron expressions need the extra: pip install 'aioqueue-jobs[cron]'. Intervals (every=) don't"
        ) from None
    return CronSim


def _read(sim: type[CronSim], expression: str, start: datetime) -> CronSim | None:
    # Of the library's errors only CronSimError is documented; numbers of thousands of digits, and others, raise more.
    try:
        return sim(expression, start)
    except Exception:  # noqa: BLE001 - classified: whatever it raises, it can't read this
        return None


def _check_field(sim: type[CronSim], text: str, field: _Field, part: str) -> None:
    if _read(sim, field.alone.format(part), _ANY_MIDNIGHT) is None:
        way_out = next((way_out for pattern, way_out in _WAYS_OUT if pattern.fullmatch(part)), f"there are {field.values}")
        raise _refused(text, f"{safe_repr(part, 100)} isn't {field.name}; {way_out}")
    if any(int(step) > field.size for step in re.findall(r"/(\d+)", part)):
        raise _refused(
            text,
            f"{safe_repr(part, 100)} has a step of more than the {field.size} values that there are for {field.name}; an "
            "interval is given as every=timedelta(...)",
        )


def _values(sim: type[CronSim], field: _Field, part: str, value: Callable[[datetime], int]) -> tuple[int, ...]:
    """The values of a field for times, as it is met in the first hour, or on the first day, of any one."""
    found: dict[int, None] = {}
    for each in sim(field.alone.format(part), _ANY_MIDNIGHT - _A_MINUTE):
        if value(each) in found:
            break
        found[value(each)] = None
    return tuple(sorted(found))


def _refuse_impossible(sim: type[CronSim], read: CronExpression) -> None:
    if _read(sim, f"0 0 {read.days}", _ANY_MIDNIGHT) is None or read.first_minute(_ANY_MIDNIGHT) is None:
        raise ConfigurationError(
            f"cron={safe_repr(read.text, 100)} would never fire: no year has a day with these fields for days: {read.days}"
        )
