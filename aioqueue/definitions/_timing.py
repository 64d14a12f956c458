"""When a schedule's ticks are. For whoever decides them, shows them or checks them: `timing_of(schedule, anchor)`, then

- `timing.after(moment)`: the first tick after a moment;
- `timing.newest(start, end, most)`: the last ones between two moments, and how many there were before these;
- `upcoming(timing, moment, count)`: the next ones, for a preview.

All times are in UTC, and ticks always ascend. Nothing here takes long, however far apart the moments are.

With a cron expression, a tick is a minute of the clock on a wall in its time zone, and this is what becomes of it when the
clocks are changed:

- Fixed times, where neither the minute nor the hour begins with a star: one tick for each time on each local day. Of a time
  that is left out the tick is at the first moment after the gap, one for all of them together; of one that comes twice, the
  first time. A day that is left out as a whole has none.
- All others: whenever the clock shows such a time. One that is left out doesn't come; one that comes twice is met twice.

With an interval, ticks are apart from the anchor by whole intervals, before and after it, whatever the clocks on walls do. What
counts of them begins after the anchor, since a schedule's `since` is no earlier.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aioqueue.definitions._clock_ticks import ClockTicks
from aioqueue.definitions._cron import read_cron
from aioqueue.definitions._zones import FIRST_MOMENT, LAST_MOMENT, read_zone
from aioqueue.vocabulary._time import aware

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from aioqueue.definitions._cron import CronExpression
    from aioqueue.vocabulary._schedules import NewSchedule

__all__ = ["CronTiming", "IntervalTiming", "NewestTicks", "Timing", "timing_of", "upcoming"]

_LONGEST_LOOK = timedelta(days=3660)


class NewestTicks(NamedTuple):
    """The last ticks of a stretch of time.

    Attributes:
        ticks: They, ascending.
        earlier: How many there are before them.
        last_earlier: The newest of those; None without any.
    """

    ticks: tuple[datetime, ...]
    earlier: int
    last_earlier: datetime | None


class Timing(Protocol):
    """Says when ticks are."""

    def after(self, moment: datetime) -> datetime | None:
        """The first tick after a moment; None if there is none in 50 years, or before the year 9999.

        Arguments:
            moment: Timezone-aware.

        Returns:
            In UTC.

        Raises:
            ConfigurationError: The moment is naive.
        """
        ...

    def newest(self, start: datetime, end: datetime, most: int) -> NewestTicks:
        """The last ticks between two moments, both included. Looks back ten years from the end, at most.

        Arguments:
            start: Timezone-aware.
            end: Timezone-aware.
            most: How many ticks.

        Returns:
            Ticks in UTC, and how many there are before these.

        Raises:
            ConfigurationError: A moment is naive.
        """
        ...


def timing_of(schedule: NewSchedule, anchor: datetime) -> Timing:
    """Read when a schedule's ticks are.

    Arguments:
        schedule: As it's defined.
        anchor: From which an interval counts; timezone-aware.

    Raises:
        ConfigurationError: This process can't work them out: the time zone isn't known here, the expression isn't one, or the
            extra `cron` isn't installed.
    """
    if schedule.cron is not None:
        return CronTiming(read_cron(schedule.cron), read_zone(schedule.timezone))
    return IntervalTiming(schedule.every or 0.0, anchor)


def upcoming(timing: Timing, moment: datetime, count: int) -> list[datetime]:
    """The next ticks after a moment, in UTC; fewer than `count` only where there are no more."""
    found: list[datetime] = []
    tick = timing.after(moment)
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = timing.after(tick)
    return found


class IntervalTiming:
    """Ticks that are apart by the same time.

    Arguments:
        every: Seconds between them, at least 1; counted in whole microseconds.
        anchor: One of them.

    Raises:
        ConfigurationError: The anchor is naive.
    """

    def __init__(self, every: float, anchor: datetime) -> None:
        self._every = timedelta(seconds=max(every, 1.0))
        self._anchor = aware(anchor, "anchor")

    def after(self, moment: datetime) -> datetime | None:
        """See `Timing`."""
        return self._tick((aware(moment, "moment") - self._anchor) // self._every + 1)

    def newest(self, start: datetime, end: datetime, most: int) -> NewestTicks:
        """See `Timing`."""
        start, end = _look_back(start, end)
        first = -((self._anchor - start) // self._every)
        last = (end - self._anchor) // self._every
        count = max(last - first + 1, 0)
        taken = min(count, most)
        ticks = tuple(self._anchor + number * self._every for number in range(last - taken + 1, last + 1))
        earlier = count - taken
        return NewestTicks(ticks, earlier, self._anchor + (last - taken) * self._every if earlier else None)

    def _tick(self, number: int) -> datetime | None:
        try:
            return self._anchor + number * self._every
        except OverflowError:
            return None


class CronTiming:
    """Ticks at the times of a cron expression, as clocks on walls show them.

    Arguments:
        expression: The times.
        zone: Where the clocks are.
    """

    def __init__(self, expression: CronExpression, zone: ZoneInfo) -> None:
        self._clock = ClockTicks(expression, zone)

    def after(self, moment: datetime) -> datetime | None:
        """See `Timing`."""
        return self._clock.after(aware(moment, "moment"))

    def newest(self, start: datetime, end: datetime, most: int) -> NewestTicks:
        """See `Timing`."""
        start, end = _look_back(start, end)
        ticks = list(islice(self._clock.backwards(start, end), most + 1))
        if len(ticks) <= most:
            return NewestTicks(tuple(reversed(ticks)), 0, None)
        last_earlier = ticks.pop()
        return NewestTicks(tuple(reversed(ticks)), self._clock.count(start, last_earlier), last_earlier)


def _look_back(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    end = min(aware(end, "end"), LAST_MOMENT)
    return max(aware(start, "start"), end - _LONGEST_LOOK, FIRST_MOMENT), end
