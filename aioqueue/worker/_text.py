"""Errors as texts that can be stored and logged: bounded, and free of what columns and log lines can't hold."""

from __future__ import annotations

import re
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aioqueue._job import AttemptError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["attempt_error", "one_line", "stored_text"]

_LONGEST_MESSAGE = 4_000
_LONGEST_TRACEBACK = 16_000
_LONGEST_LINE = 1_000
_FRAMES = 30

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def _bounded(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest * 3 // 4]} […{len(text) - longest} characters left out…] {text[-longest // 4 :]}"


def stored_text(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Bound a text, and make visible what a `text` column can't hold or a terminal would obey."""
    return _CONTROL.sub(_visible, _bounded(text, longest))


def one_line(text: str) -> str:
    """Bound a text, and make one line of it."""
    return _NOT_IN_A_LINE.sub(_visible, _bounded(text, _LONGEST_LINE))


def attempt_error(error: BaseException, attempt: int, *, kind: str | None = None) -> AttemptError:
    """Describe an exception, whatever is wrong with it. Nothing of it is kept.

    Arguments:
        error: What was raised.
        attempt: The number of the attempt.
        kind: In place of the exception's type name.
    """
    try:
        message = str(error)
    except BaseException as second:  # noqa: BLE001 - classified: whatever its text raises is part of what we describe
        message = f"<its text can't be made: {type(second).__name__}>"
    return AttemptError(
        attempt=attempt,
        at=datetime.now(UTC),
        type=stored_text(kind or type(error).__name__, 200),
        message=stored_text(message),
        traceback=stored_text(_traceback(error, error.__traceback__), _LONGEST_TRACEBACK),
    )


def _traceback(error: BaseException, where: TracebackType | None) -> str:
    try:
        described = traceback.TracebackException(type(error), error, where, limit=-_FRAMES, compact=True)
        return "".join(_bounded(part, _LONGEST_MESSAGE) for part in described.format())
    except BaseException as second:  # noqa: BLE001 - classified: as above
        return f"<its traceback can't be made: {type(second).__name__}>"
