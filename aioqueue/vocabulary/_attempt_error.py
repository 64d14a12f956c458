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
        worker: The name of the worker that ran the attempt; empty where no attempt ran, or where it isn't known.
        started_at: When the attempt was claimed, in UTC; None where it isn't known.
    """

    attempt: int
    at: datetime
    type: str
    message: str
    traceback: str = ""
    worker: str = ""
    started_at: datetime | None = None

    def encode(self) -> bytes:
        """The entry as one JSON object, as stores append it to a job's history."""
        entry = {
            "attempt": self.attempt,
            "at": self.at,
            "type": self.type,
            "message": self.message,
            "traceback": self.traceback,
        }
        if self.worker:
            entry["worker"] = self.worker
        if self.started_at is not None:
            entry["started_at"] = self.started_at
        return orjson.dumps(entry)

    @classmethod
    def decode(cls, value: object) -> AttemptError:
        """Read one stored entry. Odd rows don't raise: what is missing or strange is shown as well as it can be."""
        entry = cast("dict[str, Any]", value) if isinstance(value, dict) else {"message": repr(value)}
        at = _time(entry.get("at")) or datetime.fromtimestamp(0, UTC)
        attempt = entry.get("attempt")
        return cls(
            attempt=attempt if isinstance(attempt, int) else 0,
            at=at,
            type=str(entry.get("type", "")),
            message=str(entry.get("message", "")),
            traceback=str(entry.get("traceback", "")),
            worker=str(entry.get("worker", "")),
            started_at=_time(entry.get("started_at")),
        )

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def _time(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
