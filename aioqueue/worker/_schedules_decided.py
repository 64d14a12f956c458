"""Gives ticks to the store, many at once; one that is at fault is taken out, and then goes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import ClientClosed, StoreContended, StoreUnavailable
from aioqueue.runtime._batcher import Batcher
from aioqueue.worker._bounded_calls import BoundedCalls, Hangs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._abilities import SupportsSchedules
    from aioqueue.vocabulary._schedules import Tick, Ticked

__all__ = ["MOST_TICKS", "STATEMENT_SECONDS", "Decisions", "says_away"]


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
            StoreError: The database refuses its job, or is away.
            StoreContended: Somebody's open transaction holds what it needs.
            Hangs: It, or one beside it, takes too long.
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
        """Decide some. What fails is halved until one is alone, unless the database seems away."""
        try:
            return await BoundedCalls("aioqueue ticks").call(self._store.tick(ticks), STATEMENT_SECONDS)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for each
            if len(ticks) == 1 or says_away(error):
                return [error] * len(ticks)
        middle = len(ticks) // 2
        return [*await self._write(ticks[:middle]), *await self._write(ticks[middle:])]


def says_away(error: Exception) -> bool:
    """Whether an error says that the database is away, or can't write. One of several ticks may make it seem so."""
    return isinstance(error, (StoreUnavailable, ClientClosed, Hangs)) and not isinstance(error, StoreContended)


def _size(tick: Tick) -> int:
    return sum(max(job.size, _LEAST_BYTES) for job in tick.jobs)
