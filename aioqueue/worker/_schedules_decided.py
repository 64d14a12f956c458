"""Gives ticks to the store, many at once; one that is at fault is taken out, and then goes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.runtime._batcher import NOT_ABOUT_ROWS, Batcher
from aioqueue.worker._bounded_calls import BoundedCalls, Hangs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._abilities import SupportsSchedules
    from aioqueue.vocabulary._schedules import Tick, Ticked

__all__ = ["MOST_TICKS", "STATEMENT_SECONDS", "Decisions"]


MOST_TICKS = 100
"""In one transaction."""
STATEMENT_SECONDS = 20.0
"""That a statement may take until it's taken for one that hangs."""
_LEAST_BYTES = 8 * 1024
"""For which a job counts, however small it is: those of a schedule that makes up for many ticks fill a transaction, too."""
_PATIENCE_SECONDS = 1.0
"""After which one that goes alone doesn't hold up the next one."""


class Decisions:
    """Has ticks of concurrent callers decided together. What failed before goes alone, one after the other, beside them.

    Arguments:
        store: Where the schedules are.
    """

    def __init__(self, store: SupportsSchedules) -> None:
        self._store = store
        self._together: Batcher[Tick, Ticked | Exception] = Batcher(
            self._write, limit=MOST_TICKS, size=_size, name="batcher of ticks"
        )
        self._alone: Batcher[Tick, Ticked | Exception] = Batcher(
            self._write, limit=1, patience=_PATIENCE_SECONDS, name="batcher of ticks that failed"
        )

    async def decide(self, tick: Tick, *, alone: bool) -> Ticked:
        """Decide one.

        Raises:
            RowRejected: The database refuses its job.
            StoreContended: Somebody's open transaction holds what it needs.
            Hangs: It, or one beside it, takes too long.
            StoreError: The database is away.
        """
        result = await (self._alone if alone else self._together).submit(tick)
        if isinstance(result, Exception):
            raise result
        return result

    def abort(self) -> None:
        """Cancel what waits or is being decided: whoever waits for it is cancelled too."""
        self._together.abort()
        self._alone.abort()

    async def _write(self, ticks: Sequence[Tick]) -> Sequence[Ticked | Exception]:
        """Decide some. What fails is halved until one is alone, unless that's no matter of rows, or one of time."""
        try:
            return await BoundedCalls("aioqueue ticks").call(self._store.tick(ticks), STATEMENT_SECONDS)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for each
            about_rows = isinstance(error, StoreContended) or not isinstance(error, (*NOT_ABOUT_ROWS, Hangs))
            if len(ticks) == 1 or not about_rows:
                return [error] * len(ticks)
        middle = len(ticks) // 2
        return [*await self._write(ticks[:middle]), *await self._write(ticks[middle:])]


def _size(tick: Tick) -> int:
    return sum(max(job.size, _LEAST_BYTES) for job in tick.jobs)
