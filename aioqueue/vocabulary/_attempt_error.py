"""One entry of a job's history of errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import orjson

__all__ = ["AttemptError"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptError:
    """One entry of a job's error history.

    Attributes:
        attempt: The number of the attempt, from 1.
        at: When, in UTC, by the worker's clock.
        type: The exception's type name, or a word such as `WorkerLost`, `Expired`.
        message: Its text, cleaned of what `text` columns can't hold, and bounded.
        traceback: The formatted traceback, bounded; empty where there is none.
    """

    attempt: int
    at: datetime
    type: str
    message: str
    traceback: str = ""

    def encode(self) -> bytes:
        """The entry as one JSON object, as stores append it to a job's history."""
        return orjson.dumps(
            {"attempt": self.attempt, "at": self.at, "type": self.type, "message": self.message, "traceback": self.traceback}
        )

    @classmethod
    def decode(cls, value: object) -> AttemptError:
        """Read one stored entry. Odd rows don't raise: what is missing or strange is shown as well as it can be."""
        entry = cast("dict[str, Any]", value) if isinstance(value, dict) else {"message": repr(value)}
        try:
            at = datetime.fromisoformat(str(entry.get("at"))).astimezone(UTC)
        except (ValueError, OverflowError):
            at = datetime.fromtimestamp(0, UTC)
        attempt = entry.get("attempt")
        return cls(
            attempt=attempt if isinstance(attempt, int) else 0,
            at=at,
            type=str(entry.get("type", "")),
            message=str(entry.get("message", "")),
            traceback=str(entry.get("traceback", "")),
        )

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type
