"""Durations and points in time, as users write them and as the stores want them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from aioqueue.errors import ConfigurationError

__all__ = ["MICROSECOND", "aware", "seconds"]

MICROSECOND = timedelta(microseconds=1)

_LONGEST = timedelta(days=366 * 1000).total_seconds()


def seconds(value: float | timedelta, name: str, *, positive: bool = False) -> float:
    """Read a duration.

    Arguments:
        value: Seconds, or a timedelta.
        name: What it is, for the error.
        positive: Whether zero is refused too.

    Returns:
        Seconds.

    Raises:
        ConfigurationError: It isn't a number or timedelta, isn't finite, is negative, or is over 1,000 years.
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ConfigurationError(f"{name} must be seconds or a timedelta, not {value!r}")
    if not math.isfinite(number) or number < 0 or (positive and number == 0) or number > _LONGEST:
        wanted = "positive" if positive else "zero or positive"
        raise ConfigurationError(f"{name} must be {wanted} and at most 1,000 years, not {value!r}")
    return number


def aware(value: datetime, name: str) -> datetime:
    """Read a point in time.

    Arguments:
        value: A timezone-aware datetime.
        name: What it is, for the error.

    Returns:
        The same point in UTC.

    Raises:
        ConfigurationError: It isn't a datetime, is naive, or can't be expressed in UTC.
    """
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{name} must be a timezone-aware datetime, not {value!r}")
    if value.utcoffset() is None:
        raise ConfigurationError(
            f"{name} has no time zone, so {value!r} could mean several moments: "
            "give one, such as datetime.now(UTC) or datetime(..., tzinfo=ZoneInfo('Asia/Tokyo'))"
        )
    try:
        return value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ConfigurationError(f"{name} is out of range in UTC: {value!r}") from None
