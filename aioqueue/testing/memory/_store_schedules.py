"""The methods of `SupportsSchedules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioqueue.testing.memory._schedules import (
    delete_schedules,
    fetch_schedules,
    list_schedules,
    pause_schedules,
    put_schedules,
    recompute_schedules,
    reconcile_schedules,
    resume_schedules,
)
from aioqueue.testing.memory._schedules_ticks import due_schedules, tick

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aioqueue.testing.memory._rows import Database
    from aioqueue.vocabulary._schedules import (
        DueSchedules,
        Generation,
        NewSchedule,
        Reconciled,
        ScheduleChange,
        SchedulePage,
        StoredSchedule,
        Tick,
        Ticked,
    )

__all__ = ["ScheduleVerbs"]

T = TypeVar("T")


class ScheduleVerbs:
    """See `aioqueue.abc.SupportsSchedules`. Whoever derives from it says where the verbs are carried out."""

    async def _verb(self, verb: str, work: Callable[[Database], T]) -> T:
        raise NotImplementedError

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> Sequence[bool]:
        """Store schedules without an owner. See `SupportsSchedules.put_schedules`."""
        return await self._verb("put_schedules", lambda database: put_schedules(database, schedules))

    async def reconcile_schedules(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """Make these the schedules of their owner. See `SupportsSchedules.reconcile_schedules`."""
        return await self._verb(
            "reconcile_schedules", lambda database: reconcile_schedules(database, generation, schedules, live)
        )

    async def due_schedules(self, limit: int, *, cron: bool = True, without: Collection[str] = ()) -> DueSchedules:
        """See which ticks are due. See `SupportsSchedules.due_schedules`."""
        return await self._verb("due_schedules", lambda database: due_schedules(database, limit, cron=cron, without=without))

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        """Decide ticks. See `SupportsSchedules.tick`."""
        return await self._verb("tick", lambda database: tick(database, ticks))

    async def recompute_schedules(self, names: Collection[str] | None = None) -> int:
        """Have next ticks worked out again. See `SupportsSchedules.recompute_schedules`."""
        return await self._verb("recompute_schedules", lambda database: recompute_schedules(database, names))

    async def list_schedules(self, limit: int, cursor: str | None = None) -> SchedulePage:
        """One page of schedules. See `SupportsSchedules.list_schedules`."""
        return await self._verb("list_schedules", lambda database: list_schedules(database, limit, cursor))

    async def fetch_schedules(self, names: Sequence[str]) -> Sequence[StoredSchedule | None]:
        """Schedules by name. See `SupportsSchedules.fetch_schedules`."""
        return await self._verb("fetch_schedules", lambda database: fetch_schedules(database, names))

    async def pause_schedules(self, names: Sequence[str], reason: str, by: str) -> Sequence[bool]:
        """Decide no ticks of these. See `SupportsSchedules.pause_schedules`."""
        return await self._verb("pause_schedules", lambda database: pause_schedules(database, names, reason, by))

    async def resume_schedules(self, names: Sequence[str]) -> Sequence[bool]:
        """Decide ticks of these again. See `SupportsSchedules.resume_schedules`."""
        return await self._verb("resume_schedules", lambda database: resume_schedules(database, names))

    async def delete_schedules(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """Remove schedules. See `SupportsSchedules.delete_schedules`."""
        return await self._verb("delete_schedules", lambda database: delete_schedules(database, names))
