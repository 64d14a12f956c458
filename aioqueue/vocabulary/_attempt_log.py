"""What the handler of a job has logged in one attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

__all__ = ["AttemptLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """What was logged in one attempt of a job whose type has `capture_logs=`.

    Attributes:
        attempt: The number of the attempt, from 1.
        claims: The number of the claim: a job that was retried by hand counts its attempts anew, and its claims on.
        lines_json: A JSON array, one object for each record. `lines` reads it.
    """

    attempt: int
    claims: int
    lines_json: bytes

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The records, oldest first.

        Raises:
            orjson.JSONDecodeError: Somebody stored something that isn't JSON.
        """
        lines: list[dict[str, Any]] = orjson.loads(self.lines_json)
        return lines
