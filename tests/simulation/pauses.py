"""Watches pauses: what is paused doesn't start, and nothing is held once it isn't paused any more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, PauseTarget
from tests.simulation.promises import Promise
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._pauses import NewPause
    from tests.simulation.account import Book

__all__ = ["PauseChecker"]

_BACK_IN = 15.0
"""Seconds within which what was parked is back, while nothing goes wrong."""


class PauseChecker:
    """See the module.

    Arguments:
        book: The account.

    Attributes:
        calm_since: Gives the time from which nothing has gone wrong any more; infinite before.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._require = book.require
        self._pauses: dict[tuple[PauseTarget, str, str], float] = {}
        self._free_since: dict[UUID, float] = {}
        self.calm_since: Callable[[], float] = lambda: math.inf

    def paused(self, pauses: Sequence[NewPause]) -> None:
        """Somebody has paused something."""
        for each in pauses:
            until = math.inf if each.until is None else each.until.timestamp() - START
            self._book.note(f"pause of {each.target} {each.value} by {each.by} until {until:.3f}")
            self._pauses[each.target, each.value, each.by] = until

    def resumed(self, target: PauseTarget, values: Collection[str], by: str | None) -> None:
        """Somebody has lifted pauses."""
        self._book.note(f"end of pauses of {target} {', '.join(values)} by {by or 'all'}")
        for key in [key for key in self._pauses if key[0] is target and key[1] in values and by in (None, key[2])]:
            del self._pauses[key]

    def _is_paused(self, target: PauseTarget, value: str = "") -> bool:
        now = self._book.now()
        return any(until > now for key, until in self._pauses.items() if key[:2] == (target, value))

    def keeps(self, new: NewJob) -> bool:
        """Whether a job mustn't start, since something is paused."""
        its_key = new.key is not None and self._is_paused(PauseTarget.KEY, new.key)
        return its_key or self._is_paused(PauseTarget.ALL) or self._is_paused(PauseTarget.TYPE, new.type)

    def claimed(self, new: NewJob) -> None:
        """A worker gets a job."""
        name = self._book.name(new.id)
        everything, its_type = self._is_paused(PauseTarget.ALL), self._is_paused(PauseTarget.TYPE, new.type)
        self._require(Promise.NOT_PAUSED, not everything, f"{name} was claimed, and all is paused")
        self._require(Promise.NOT_PAUSED, not its_type, f"{name} was claimed, and {new.type} is paused")
        its_key = new.key is not None and self._is_paused(PauseTarget.KEY, new.key)
        self._require(Promise.NOT_PAUSED, not its_key, f"{name} was claimed, and its key {new.key} is paused")

    def look(self, database: Database) -> None:
        """After each change: what need not be parked any more is back soon."""
        now, calm_since = self._book.now(), self.calm_since()
        free = {row.new.id for row in database.rows.values() if self._need_not_be_held(row.state, row.held_by, row.new)}
        self._free_since = {job_id: self._free_since.get(job_id, now) for job_id in sorted(free)}
        for job_id, since in self._free_since.items():
            long = now - max(since, calm_since) > _BACK_IN
            self._require(Promise.NOT_HELD, not long, f"{self._book.name(job_id)} is still held, and its key isn't paused")

    def _need_not_be_held(self, state: int, held_by: str | None, new: NewJob) -> bool:
        parked = state == StoredState.HELD and held_by is not None and held_by.startswith(HELD_BY_PAUSE)
        return parked and not self._is_paused(PauseTarget.KEY, new.key or "")
