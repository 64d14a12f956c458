"""Durations and points in time, as users write them and as the stores want them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from numbers import Real

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._safe_text import safe_repr

__all__ = ["aware", "duration_text", "number_of_seconds", "seconds"]

_LONGEST_SECONDS = timedelta(days=366 * 1000).total_seconds()


def seconds(value: float | timedelta, name: str, *, positive: bool = False) -> float:
    """Read a duration.

    Arguments:
        value: Seconds (any real number, NumPy's too), or a timedelta.
        name: What it is, for the error.
        positive: Whether zero is refused too.

    Returns:
        Seconds, as an exact `float`.

    Raises:
        ConfigurationError: It isn't a number or timedelta, isn't finite, is negative, or is over 1,000 years.
    """
    number = number_of_seconds(value)
    if number is None:
        raise ConfigurationError(f"{name} must be seconds or a timedelta, not {safe_repr(value)}")
    if not math.isfinite(number) or number < 0 or (positive and number == 0) or number > _LONGEST_SECONDS:
        wanted = "positive" if positive else "zero or positive"
        raise ConfigurationError(f"{name} must be {wanted} and at most 1,000 years, not {safe_repr(value)}")
    return number


def number_of_seconds(value: object) -> float | None:
    """Read what may be a duration, such as the answer of a user's function: it raises nothing.

    Returns:
        Seconds as an exact `float`, of any range, or NaN; None for what is neither a real number nor a timedelta.
    """
    try:
        if isinstance(value, timedelta):
            return timedelta.total_seconds(value)
        if isinstance(value, (int, float, Real)) and not isinstance(value, bool):
            return float(value)
    except Exception:  # noqa: BLE001 - classified: an integer that no float can hold, or a subclass that is broken
        return math.nan
    return None


def aware(value: datetime, name: str) -> datetime:
    """Read a point in time.

    Arguments:
        value: A timezone-aware datetime.
        name: What it is, for the error.

    Returns:
        The same point in UTC, as an exact `datetime`.

    Raises:
        ConfigurationError: It isn't a datetime, is naive, or can't be expressed in UTC.
    """
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{name} must be a timezone-aware datetime, not {safe_repr(value)}")
    if value.utcoffset() is None:
        raise ConfigurationError(
            f"{name} has no time zone, so {safe_repr(value)} could mean several moments: "
            "give one, such as datetime.now(UTC) or datetime(..., tzinfo=ZoneInfo('Asia/Tokyo'))"
        )
    try:
        moment = value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ConfigurationError(f"{name} is out of range in UTC: {safe_repr(value)}") from None
    if type(moment) is datetime:
        return moment
    # Of a subclass (such as pandas' Timestamp) only the moment is kept: the stores' drivers know plain ones.
    return datetime(
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond, tzinfo=UTC
    )


def duration_text(duration: float) -> str:
    """A duration for people, such as `1.5 h`; a negative one, as of clocks that differ, is none."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if duration >= size:
            return f"{duration / size:.1f} {unit}"
    return f"{max(duration, 0.0):.1f} s"
