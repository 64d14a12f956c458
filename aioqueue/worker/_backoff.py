"""Waits between tries while the database is away."""

from __future__ import annotations

import random

__all__ = ["Backoff"]


class Backoff:
    """Each wait is twice as long as the one before, up to a limit, and varied by half at random.

    Arguments:
        first: Seconds.
        longest: Seconds.
    """

    def __init__(self, first: float = 0.1, longest: float = 3.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """Seconds to wait now; the next wait is longer."""
        wait, self._next = self._next, min(self._next * 2, self._longest)
        return wait * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets

    def reset(self) -> None:
        """What was tried has worked: the next wait is the first one again."""
        self._next = self._first
