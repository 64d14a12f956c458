"""Schedules whose ticks this worker can't decide for now: each waits alone, and longer each time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.worker._backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PutOff"]

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
_LOG_EVERY_SECONDS = 3600.0
_FORGOTTEN_SECONDS = 600.0
"""After which one that was to be tried again and wasn't due any more is forgotten: another worker can, or it was removed."""
_MOST = 10_000


@dataclass(slots=True)
class _Entry:
    until: float = 0.0
    waits: bool = False
    reason: str = ""
    logged_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_SECONDS, _LONGEST_SECONDS))


class PutOff:
    """Knows them by name.

    Arguments:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    def add(self, name: str, reason: str, *, quiet: bool = False) -> bool:
        """Put one off. Returns whether that's to be told: for the first time, for another reason, or for an hour by now.

        Arguments:
            name: Of the schedule.
            reason: Why.
            quiet: Whether it isn't to be told now.
        """
        now, entry = self._clock(), self._entry(name)
        entry.until, entry.waits = _in_step(now + entry.backoff.next()), True
        if quiet or (entry.reason == reason and now - entry.logged_at < _LOG_EVERY_SECONDS):
            return False
        entry.reason, entry.logged_at = reason, now
        return True

    def doubt(self, name: str) -> None:
        """Know one again that has failed with others: it may be at fault, and is tried again at once."""
        self._entry(name).until = self._clock()

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.pop(name, None)
        if entry is None:
            entry = _Entry()
            while len(self._entries) >= _MOST:
                del self._entries[next(iter(self._entries))]
        self._entries[name] = entry
        return entry

    def done(self, name: str) -> None:
        """Forget one: it was decided."""
        self._entries.pop(name, None)

    def __contains__(self, name: str) -> bool:
        """Whether it was put off, or may be at fault, and hasn't been decided since."""
        return name in self._entries

    def waiting(self) -> list[str]:
        """Those that aren't to be tried now. The others are: whoever asks for it looks at them."""
        if not self._entries:
            return []
        now, waiting = self._clock(), list[str]()
        for name, entry in list(self._entries.items()):
            entry.waits = entry.until > now
            if entry.waits:
                waiting.append(name)
            elif now - entry.until > _FORGOTTEN_SECONDS:
                del self._entries[name]
        return waiting

    def next_at(self) -> float:
        """When the first of those that wait is to be tried again, by the clock; infinite without any."""
        return min((entry.until for entry in self._entries.values() if entry.waits), default=math.inf)


def _in_step(when: float) -> float:
    """Those that wait become due together: there isn't a look for each, however many there are."""
    return math.ceil(when / _FIRST_SECONDS) * _FIRST_SECONDS
