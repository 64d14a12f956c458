"""Time zones as stretches of time in which clocks on walls are apart from UTC by the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import safe_repr

__all__ = ["FIRST_MOMENT", "LAST_MOMENT", "Period", "period_at", "read_zone"]

FIRST_MOMENT = datetime(1971, 1, 1, tzinfo=UTC)
"""From when on clocks are known."""

LAST_MOMENT = datetime(9900, 1, 1, tzinfo=UTC)
"""Until when: the calendar of Python ends with the year 9999, and ticks are looked for 50 years ahead."""

_ONLY_HERE = ("localtime", "posixrules", "posix/", "right/")
_LOOK = timedelta(days=2)
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time, of a year at most, without a change of the clocks.

    Attributes:
        start: Its first moment, in UTC.
        end: The first moment after it, in UTC.
        offset: What clocks are ahead of UTC in it.
        before: What they were ahead just before it: the same at the begin of a year.
    """

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta


def read_zone(name: object) -> ZoneInfo:
    """Find a time zone.

    Raises:
        ConfigurationError: There is none of this name here.
    """
    if not isinstance(name, str):
        raise ConfigurationError(f'timezone must be a name, such as "Europe/Berlin", not {safe_repr(name)}')
    if name.startswith(_ONLY_HERE):
        raise ConfigurationError(
            f"timezone={safe_repr(name, 100)} isn't the same, or isn't there, on other machines: give a name such as "
            '"Europe/Berlin"'
        )
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # a name that is no file's, a directory's, or nobody's
        raise ConfigurationError(
            f'there is no time zone {safe_repr(name, 100)} here: give a name such as "Europe/Berlin". If it\'s one of those, '
            "this machine doesn't know it: pip install tzdata"
        ) from None


def period_at(zone: ZoneInfo, moment: datetime) -> Period:
    """Find the stretch with a moment.

    Arguments:
        zone: The zone.
        moment: In UTC; from 1970 to 9900.
    """
    periods = _periods(zone, moment.year)
    return next(each for each in reversed(periods) if each.start <= moment)


@lru_cache(maxsize=4096)
def _periods(zone: ZoneInfo, year: int) -> tuple[Period, ...]:
    """All of one year, by UTC. No zone has had two changes within five days since 1970."""
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    before = _offset(zone, start - _SHORTEST)
    periods: list[Period] = []
    offset, seen = _offset(zone, start), start
    while seen < end:
        later = min(seen + _LOOK, end)
        if _offset(zone, later - _SHORTEST) != offset:  # a change at the end itself is seen next
            changed = _change(zone, seen, later)
            periods.append(Period(start, changed, offset, before))
            start, before, offset = changed, offset, _offset(zone, changed)
        seen = later
    periods.append(Period(start, end, offset, before))
    return tuple(periods)


def _change(zone: ZoneInfo, earlier: datetime, later: datetime) -> datetime:
    """The first moment, in whole seconds, with another offset than the earlier one's."""
    offset = _offset(zone, earlier)
    while later - earlier > _SHORTEST:
        middle = earlier + (later - earlier) // _SHORTEST // 2 * _SHORTEST
        if _offset(zone, middle) == offset:
            earlier = middle
        else:
            later = middle
    return later


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
