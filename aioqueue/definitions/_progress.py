"""How far an attempt has come: what a handler says of the phase that runs, in percent of the whole job."""

from __future__ import annotations

import numbers
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, SupportsFloat

from aioqueue.vocabulary._phases import Progress
from aioqueue.vocabulary._safe_text import safe_repr, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read_message", "read_percent", "shown_progress"]

_LONGEST_MESSAGE_CHARACTERS = 1_000


def read_percent(percent: SupportsFloat) -> float:
    """Read a percentage.

    Raises:
        ValueError: It isn't a number from 0 to 100.
    """
    try:
        value = float(percent) if isinstance(percent, (numbers.Real, Decimal)) else -1.0
    except (OverflowError, ValueError):  # too large an integer, and a signalling NaN
        value = -1.0
    if not 0.0 <= value <= 100.0:  # nor is NaN
        raise ValueError(f"progress is a number from 0 to 100, not {safe_repr(percent)}")
    return value


def read_message(message: str | None) -> str | None:
    """Read what is said with a percentage, as a line that a terminal can show.

    Raises:
        ValueError: It isn't a text.
    """
    if message is None:
        return None
    if not isinstance(message, str):
        raise ValueError(f"a message is a text, not {safe_repr(message)}")  # noqa: TRY004 - one error for both arguments
    return visible(str.__str__(message)[:_LONGEST_MESSAGE_CHARACTERS])[:_LONGEST_MESSAGE_CHARACTERS]


def shown_progress(phases: Sequence[str], running: str | None, percent: float, message: str | None) -> Progress:
    """Make what is shown of a percentage: 50 % of the first of three phases is 17 % of the job, 80 % of the third 93 %.

    Arguments:
        phases: All, in order.
        running: The one that the percentage is of; None for the whole job.
        percent: 0 to 100.
        message: What is said with it.
    """
    if running is not None:
        percent = (phases.index(running) * 100.0 + percent) / len(phases)
    return Progress(percent=percent, message=message, phase=running, phases=tuple(phases), at=datetime.now(UTC))
