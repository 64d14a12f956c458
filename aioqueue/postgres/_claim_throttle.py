"""A limit for what is usually quick, and may become slow."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Throttle"]

_SLOW_SECONDS = 0.05
_REMEMBERED_CALLS = 8
_PAUSE_FACTOR = 20.0


class Throttle:
    """How often something may be done that is usually quick: once it has become slow, for a twentieth of the time.

    Claims use it for those that begin at no floor, and the recovery for its look at jobs without a lease.

    Arguments:
        slow_seconds: Slow is what took longer than that, the best of the last few times.
    """

    def __init__(self, slow_seconds: float = _SLOW_SECONDS) -> None:
        self._slow_seconds = slow_seconds
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_CALLS)
        self.last = float("-inf")

    def done(self, began: float, ended: float) -> None:
        """Note how long it took.

        Arguments:
            began, ended: By the monotonic clock.
        """
        self.last = ended
        self._durations.append(ended - began)

    @property
    def pause(self) -> float:
        """Seconds until it may be done again; 0 unless it has become slow."""
        if len(self._durations) < _REMEMBERED_CALLS or min(self._durations) < self._slow_seconds:
            return 0.0
        return max(0.0, self.last + self._durations[-1] * _PAUSE_FACTOR - time.monotonic())
