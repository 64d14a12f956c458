"""The rows of pauses: what people have said isn't to be started for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._rows_jobs import FOR_EVER
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._pauses import Pause

__all__ = ["Pauses", "ends_of", "paused_key"]


class Pauses:
    """What is paused, by whom: one pause of each target and value by each person."""

    def __init__(self) -> None:
        self._rows: dict[tuple[PauseTarget, str, str], Pause] = {}

    def put(self, pause: Pause) -> None:
        """Store a pause; of the same person's the later counts."""
        self._rows[pause.target, pause.value, pause.by] = pause

    def remove(self, pauses: Iterable[Pause]) -> None:
        """Let these be no pauses any more."""
        for each in pauses:
            self._rows.pop((each.target, each.value, each.by), None)

    def valid(self, now: datetime) -> list[Pause]:
        """Those that aren't over, in order."""
        found = [each for each in self._rows.values() if not is_over(each, now)]
        return sorted(found, key=lambda each: (each.target, each.value, each.by))

    def over(self, now: datetime) -> list[Pause]:
        """Those that are over by themselves."""
        return [each for each in self._rows.values() if is_over(each, now)]

    def of_key(self, key: str | None, now: datetime) -> list[Pause]:
        """Those of a key."""
        return [each for each in self.valid(now) if each.target is PauseTarget.KEY and each.value == key]

    def of_type(self, name: str, now: datetime) -> list[Pause]:
        """Those for which no job of a type is claimed, whatever its key is."""
        return [each for each in self.valid(now) if each.target is PauseTarget.ALL or is_of_type(each, name)]


def is_of_type(pause: Pause, name: str) -> bool:
    """Whether a pause is about one type."""
    return pause.target is PauseTarget.TYPE and pause.value == name


def is_over(pause: Pause, now: datetime) -> bool:
    """Whether a pause has ended by itself."""
    return pause.until is not None and pause.until <= now


def ends_of(pauses: Iterable[Pause]) -> datetime | None:
    """When the last of several pauses ends; None without any."""
    return max((each.until or FOR_EVER for each in pauses), default=None)


def paused_key(row: Row) -> str | None:
    """The key since whose pause a job is parked; None if it isn't."""
    if row.held_by is None or not row.held_by.startswith(HELD_BY_PAUSE):
        return None
    return row.held_by.removeprefix(HELD_BY_PAUSE)
