"""Schedules: stored, changed, looked at, and their ticks decided."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aioqueue.sqlite._schedules_change import delete_schedules, pause_schedules, recompute_schedules, resume_schedules
from aioqueue.sqlite._schedules_look import due_schedules, fetch_schedules, list_schedules
from aioqueue.sqlite._schedules_put import put_schedules, reconcile_schedules
from aioqueue.sqlite._schedules_tick import decide_ticks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from aioqueue.sqlite._connections_access import Reader, Writer
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

__all__ = ["Schedules"]


class Schedules:
    """Schedules of one open store, as `aioqueue.abc.SupportsSchedules` promises.

    Arguments:
        writer: Where they're written.
        looks: Where is looked which are due; listings don't come in its way.
        reader: Where they're listed.
    """

    def __init__(self, writer: Writer, looks: Reader, reader: Reader) -> None:
        self._writer = writer
        self._looks = looks
        self._reader = reader

    async def put(self, schedules: Sequence[NewSchedule]) -> Sequence[bool]:
        """Store schedules that have no owner."""
        return await self._writer.write(lambda connection: put_schedules(connection, schedules))

    async def reconcile(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """Make these the schedules of their owner."""
        return await self._writer.write(lambda connection: reconcile_schedules(connection, generation, schedules, live))

    async def due(self, limit: int, *, cron: bool, without: Collection[str]) -> DueSchedules:
        """See which ticks are due."""
        return await self._looks.read(functools.partial(due_schedules, limit=limit, cron=cron, without=without))

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        """Decide ticks, all or none."""
        return await self._writer.write(lambda connection: decide_ticks(connection, ticks)) if ticks else []

    async def recompute(self, names: Collection[str] | None) -> int:
        """Forget next ticks, so that they're worked out again."""
        return await self._writer.write(lambda connection: recompute_schedules(connection, names))

    async def list(self, limit: int, cursor: str | None) -> SchedulePage:
        """One page, by name."""
        return await self._reader.read(functools.partial(list_schedules, limit=limit, cursor=cursor))

    async def fetch(self, names: Sequence[str]) -> Sequence[StoredSchedule | None]:
        """Schedules, in the order of the names."""
        return await self._reader.read(functools.partial(fetch_schedules, names=names))

    async def pause(self, names: Sequence[str], reason: str, by: str) -> Sequence[bool]:
        """Decide no ticks of these any more."""
        return await self._writer.write(lambda connection: pause_schedules(connection, names, reason, by))

    async def resume(self, names: Sequence[str]) -> Sequence[bool]:
        """Decide ticks of these again."""
        return await self._writer.write(lambda connection: resume_schedules(connection, names))

    async def delete(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """Remove schedules that no live generation has."""
        return await self._writer.write(lambda connection: delete_schedules(connection, names))
