"""What a receiver of a webhook has said."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver has said.

    Attributes:
        status: Of HTTP; None without an answer.
        text: The beginning of what it has said, on one line, or why there is no answer.
        retry_after: Seconds for which it wants to be left alone, if it has said so.
        unreachable: Whether nothing was heard of it in time.
    """

    status: int | None
    text: str
    retry_after: float | None = None
    unreachable: bool = False
