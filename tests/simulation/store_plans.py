"""The part of the store of a history that tells the checker of schedules and pauses, once the database has carried it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._schedules import ScheduleChange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._pauses import NewPause, PauseTarget
    from aioqueue.vocabulary._schedules import Generation, NewSchedule, Reconciled, Tick, Ticked
    from tests.simulation.checker import Checker

__all__ = ["PlansStore"]

T = TypeVar("T")


class PlansStore(MemoryStore):
    """See the module. Of one whose answer gets lost, the checker hears all the same."""

    checker: Checker
    _seen: Callable[[Any], None] | None = None

    async def _seeing(self, seen: Callable[[Any], None], call: Coroutine[Any, Any, T]) -> T:
        self._seen = seen
        return await call  # it asks for its verb in its first step

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        seen, self._seen = self._seen, None
        if seen is None:
            return await super()._verb(verb, work)

        def work_and_tell(database: Database) -> T:
            result = work(database)
            seen(result)
            return result

        return await super()._verb(verb, work_and_tell)

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        """As it says."""
        return await self._seeing(lambda results: self.checker.schedules.ticked(ticks, results), super().tick(ticks))

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> Sequence[bool]:
        """As it says."""
        return await self._seeing(lambda _: self.checker.schedules.put(schedules), super().put_schedules(schedules))

    async def reconcile_schedules(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """As it says."""
        return await self._seeing(
            lambda said: self.checker.schedules.reconciled(generation, schedules, live, said),
            super().reconcile_schedules(generation, schedules, live),
        )

    async def pause_schedules(self, names: Sequence[str], reason: str, by: str) -> Sequence[bool]:
        """As it says."""
        return await self._seeing(lambda _: self.checker.schedules.paused(names), super().pause_schedules(names, reason, by))

    async def resume_schedules(self, names: Sequence[str]) -> Sequence[bool]:
        """As it says."""
        return await self._seeing(lambda _: self.checker.schedules.resumed(names), super().resume_schedules(names))

    async def delete_schedules(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """As it says."""

        def seen(results: Sequence[ScheduleChange]) -> None:
            gone = [name for name, result in zip(names, results, strict=True) if result is ScheduleChange.DONE]
            self.checker.schedules.deleted(gone)

        return await self._seeing(seen, super().delete_schedules(names))

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """As it says."""
        await self._seeing(lambda _: self.checker.pauses.paused(pauses), super().pause(pauses))

    async def resume(self, target: PauseTarget, values: Collection[str], *, by: str | None = None) -> int:
        """As it says."""
        return await self._seeing(
            lambda _: self.checker.pauses.resumed(target, values, by), super().resume(target, values, by=by)
        )
