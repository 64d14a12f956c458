"""Ticks at the times of a cron expression, as clocks on walls show them: `_timing` says what the rules are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.definitions._zones import FIRST_MOMENT, LAST_MOMENT, period_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from aioqueue.definitions._cron import CronExpression
    from aioqueue.definitions._zones import Period

__all__ = ["ClockTicks"]

_A_MINUTE = timedelta(minutes=1)
_A_DAY = timedelta(days=1)
_FARTHEST = timedelta(days=366 * 50)
_BEYOND_ANY_CHANGE = timedelta(days=2)


class ClockTicks:
    """The ticks of an expression in a zone. Moments are in UTC.

    Arguments:
        expression: The times.
        zone: Where the clock is.
    """

    def __init__(self, expression: CronExpression, zone: ZoneInfo) -> None:
        self._expression = expression
        self._zone = zone

    def after(self, moment: datetime) -> datetime | None:
        """The first tick after a moment; None if there is none within 50 years."""
        if moment >= LAST_MOMENT:
            return None
        moment = max(moment, FIRST_MOMENT)
        seconds = [timedelta(seconds=each) for each in self._expression.seconds]
        minute = self._minute_after(moment - seconds[-1])
        return None if minute is None else next(minute + each for each in seconds if minute + each > moment)

    def backwards(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The ticks from one moment to another, both included, the last one first."""
        minute = self._minute_until(end, start)
        while minute is not None:
            for second in reversed(self._expression.seconds):
                tick = minute + timedelta(seconds=second)
                if start <= tick <= end:
                    yield tick
            minute = self._minute_until(minute - _A_MINUTE, start)

    def count(self, start: datetime, end: datetime) -> int:
        """How many ticks there are from one moment to another, both included. Takes as long as there are days and changes."""
        seconds = self._expression.seconds
        first, last = self._minute_after(start - _A_MINUTE), self._minute_until(end, start)
        if first is None or last is None:
            return 0
        left_out = sum(1 for second in seconds if first + timedelta(seconds=second) < start)
        left_out += sum(1 for second in seconds if last + timedelta(seconds=second) > end)
        return self._count_minutes(first, last) * len(seconds) - left_out

    # -- the minutes that have ticks ----------------------------------------------------------------------------------

    def _minute_after(self, moment: datetime) -> datetime | None:
        """The first one after a moment."""
        period = period_at(self._zone, moment)
        low, searched_from = max(_on_wall(moment, period) + _A_MINUTE, self._low(period)), moment
        while True:
            wall = self._expression.first_minute(low)
            while wall is not None and (skipped := _skipped_day(period, wall)):
                wall = self._expression.first_minute(skipped + _A_DAY)
            if wall is None:
                return None
            minute = _moment(wall, period)
            if minute < period.end:
                return minute
            if period.end >= moment + _FARTHEST:
                return None
            # Until shortly before that minute there's nothing. Only what the clock shows again may have been behind `low`.
            far = period.end - searched_from > _BEYOND_ANY_CHANGE
            searched_from = max(period.end, minute - _BEYOND_ANY_CHANGE) if far else period.end
            period = period_at(self._zone, searched_from)
            low = self._low(period)

    def _minute_until(self, moment: datetime, start: datetime) -> datetime | None:
        """The last one that isn't after a moment, nor a minute or more before `start`."""
        period = period_at(self._zone, moment)
        high = _on_wall(moment, period)
        while True:
            wall = self._expression.last_minute(high)
            while wall is not None and (skipped := _skipped_day(period, wall)):
                wall = self._expression.last_minute(skipped - _A_MINUTE)
            if wall is None:
                return None
            minute = _moment(wall, period)
            if wall >= self._low(period):
                return minute if minute > start - _A_MINUTE else None
            if period.start <= max(start - _A_MINUTE, FIRST_MOMENT):
                return None
            # From shortly behind that minute on there's nothing.
            beyond = (wall - period.offset).replace(tzinfo=UTC) + _BEYOND_ANY_CHANGE
            period = period_at(self._zone, max(min(period.start - _A_MINUTE, beyond), FIRST_MOMENT))
            high = _on_wall(period.end - _A_MINUTE, period)

    def _count_minutes(self, first: datetime, last: datetime) -> int:
        """How many there are from one to another of them."""
        count = 0
        period = period_at(self._zone, first)
        while True:
            low = _on_wall(max(first, period.start), period)
            count += self._expression.count_minutes(
                max(low, self._low(period)), _on_wall(min(last, period.end - _A_MINUTE), period)
            )
            if first <= period.start <= last and self._is_made_up(period):
                count += 1
            if last < period.end:
                return count
            period = period_at(self._zone, period.end)

    def _is_made_up(self, period: Period) -> bool:
        """Whether the first minute of a period has ticks only since there's a gap before it."""
        start = _on_wall(period.start, period)
        return self._minute_until(period.start, period.start) == period.start and self._expression.first_minute(start) != start

    def _low(self, period: Period) -> datetime:
        """From when on the clock counts in a period: for fixed times on from what it showed before, so that what comes twice
        doesn't count again, and what is left out does.
        """
        return (period.start + (period.before if self._expression.fixed else period.offset)).replace(tzinfo=None)


def _on_wall(moment: datetime, period: Period) -> datetime:
    """The whole minute that the clock shows."""
    return (moment + period.offset).replace(tzinfo=None, second=0, microsecond=0)


def _moment(wall: datetime, period: Period) -> datetime:
    """When the clock shows this minute; of one in the gap before the period, the period's start."""
    return max((wall - period.offset).replace(tzinfo=UTC), period.start)


def _skipped_day(period: Period, wall: datetime) -> datetime | None:
    """The midnight before a minute, if its whole day is in the gap before the period."""
    midnight = wall.replace(hour=0, minute=0)
    gap_start, gap_end = (
        (period.start + period.before).replace(tzinfo=None),
        (period.start + period.offset).replace(tzinfo=None),
    )
    return midnight if gap_start <= midnight and midnight + _A_DAY <= gap_end else None
