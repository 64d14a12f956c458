"""How durations and numbers are written in variables and on the command line: one grammar for both.

A duration is a number of seconds, or a number with a unit: `30`, `0.5`, `1e2`, `500ms`, `30s`, `5m`, `1h`, `2d`. A space may
stand before the unit. A whole number is written in digits. Spaces around either don't matter.
"""

from __future__ import annotations

import re

from aioqueue.errors import ConfigurationError
from aioqueue.vocabulary._time import seconds

__all__ = ["read_duration", "read_whole_number"]

_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_DURATION = re.compile(rf"\s*(?P<number>{_NUMBER})(?:\s*(?P<unit>ms|s|m|h|d))?\s*", re.ASCII)
"""No character has two places, so that a long text that isn't one takes no time: it may come with a request."""


def read_duration(text: str, name: str) -> float:
    """Read a duration.

    Arguments:
        text: As somebody wrote it.
        name: Of the variable or option, for the error.

    Returns:
        Seconds.

    Raises:
        ConfigurationError: It isn't one, is negative, or is over 1,000 years.
    """
    match = _DURATION.fullmatch(text)
    try:
        if match is not None:
            return seconds(float(match["number"]) * _SECONDS_PER_UNIT[match["unit"] or "s"], name)
    except ValueError:
        pass  # underscores where Python has none in a number
    except ConfigurationError:
        raise ConfigurationError(f"{name} must be zero or positive and at most 1,000 years, not {text!r}") from None
    raise ConfigurationError(
        f"{name} must be a duration: seconds, such as 30 or 0.5, or a number with ms, s, m, h or d, such as 500ms, not {text!r}"
    )


def read_whole_number(text: str, name: str) -> int:
    """Read a whole number.

    Arguments:
        text: As somebody wrote it.
        name: Of the variable or option, for the error.

    Raises:
        ConfigurationError: It isn't one.
    """
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a whole number, not {text!r}") from None
