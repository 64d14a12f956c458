"""The store's verbs for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.postgres._schedules import Schedules
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


class ScheduleVerbs:
    """What `aioqueue.abc.SupportsSchedules` asks for."""

    @property
    def _schedules(self) -> Schedules:
        """Those of the open store."""
        raise NotImplementedError

    def _tell(self, notification: Notification) -> None:
        """Tell this process's listeners."""
        raise NotImplementedError

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsSchedules.put_schedules`."""
        stored = await self._schedules.put(schedules)
        self._tell(Notification(schedules=any(stored)))
        return stored

    async def reconcile_schedules(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """See `aioqueue.abc.SupportsSchedules.reconcile_schedules`."""
        reconciled = await self._schedules.reconcile(generation, schedules, live)
        self._tell(Notification(schedules=bool(reconciled.changed or reconciled.removed)))
        return reconciled

    async def due_schedules(self, limit: int, *, cron: bool = True, without: Collection[str] = ()) -> DueSchedules:
        """See `aioqueue.abc.SupportsSchedules.due_schedules`."""
        return await self._schedules.due(limit, cron=cron, without=without)

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        """See `aioqueue.abc.SupportsSchedules.tick`."""
        results, told = await self._schedules.tick(ticks)
        for notification in told:
            self._tell(notification)
        return results

    async def recompute_schedules(self, names: Collection[str] | None = None) -> int:
        """See `aioqueue.abc.SupportsSchedules.recompute_schedules`."""
        forgotten = await self._schedules.recompute(names)
        self._tell(Notification(schedules=forgotten > 0))
        return forgotten

    async def list_schedules(self, limit: int, cursor: str | None = None) -> SchedulePage:
        """See `aioqueue.abc.SupportsSchedules.list_schedules`."""
        return await self._schedules.page(limit, cursor)

    async def fetch_schedules(self, names: Sequence[str]) -> Sequence[StoredSchedule | None]:
        """See `aioqueue.abc.SupportsSchedules.fetch_schedules`."""
        return await self._schedules.fetch(names)

    async def pause_schedules(self, names: Sequence[str], reason: str, by: str) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsSchedules.pause_schedules`."""
        return await self._schedules.pause(names, reason, by)

    async def resume_schedules(self, names: Sequence[str]) -> Sequence[bool]:
        """See `aioqueue.abc.SupportsSchedules.resume_schedules`."""
        there, resumed = await self._schedules.resume(names)
        self._tell(Notification(schedules=resumed))
        return there

    async def delete_schedules(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """See `aioqueue.abc.SupportsSchedules.delete_schedules`."""
        return await self._schedules.delete(names)
