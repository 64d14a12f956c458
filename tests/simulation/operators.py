"""What operators do in a history: pause and resume types, keys, everything and schedules; put, run and delete schedules."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.abc import SupportsPauses
from aioqueue.errors import ScheduleError, StoreUnavailable
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from tests.simulation.deploys import call_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue import Client
    from tests.simulation.plan import PlannedAct

__all__ = ["Operators"]

_LOOKED = 17.0
"""Virtual seconds for which schedules still tick, and pauses hold, when nothing goes wrong any more."""

EXTRA = "extra"
"""The name of the schedule that is put at run time."""

_PEOPLE = ("ann", "bob")


class Operators:
    """See the module.

    Arguments:
        client: Theirs.
        now: The database's clock.
        note: Writes a line of the history.
        kept_quiet: Called once everything is resumed, and all schedules are paused.
    """

    def __init__(
        self, client: Client, now: Callable[[], datetime], note: Callable[[str], None], kept_quiet: Callable[[], None]
    ) -> None:
        self._client = client
        self._now = now
        self._note = note
        self._kept_quiet = kept_quiet

    def begin(self, group: asyncio.TaskGroup, acts: Sequence[PlannedAct], calm_since: float) -> None:
        """Do all of it, each at its time; and some time after the calm see to it that the history comes to its end."""
        for number, each in enumerate(acts):
            group.create_task(self._act(number, each))
        group.create_task(self._keep_quiet(calm_since + _LOOKED))

    async def _act(self, number: int, each: PlannedAct) -> None:
        """Do one thing, until it's done or can't be."""
        await asyncio.sleep(each.at)
        while True:
            self._note(f"act {number}: {each.act}")
            try:
                await self._do(number, each)
            except StoreUnavailable:
                if each.act == "run_now":  # nobody knows whether it was done
                    return
                await asyncio.sleep(0.5)
                continue
            except ScheduleError as error:
                self._note(f"act {number}: {error}")
            return

    async def _do(self, number: int, each: PlannedAct) -> None:
        by, about = _PEOPLE[each.which % 2], _about(each)
        if each.act.endswith("_schedule"):
            await self._change_a_schedule(each, by)
        elif each.act.startswith("pause"):
            await self._pause(each, by)
        elif each.act.startswith("resume"):
            await self._client.resume(*about[0], **about[1], by=None if each.which % 3 else by)
        elif each.schedule is not None:
            await self._client.schedules.put(EXTRA, call_of(each.schedule, 100 + number), **each.schedule.options)
        elif each.act == "delete":
            await self._client.schedules.delete(EXTRA)
        elif names := await self._names():
            await self._client.schedules.run_now(names[each.which % len(names)])

    async def _pause(self, each: PlannedAct, by: str) -> None:
        """Not by way of the client, which looks at the real clock when a pause has an end."""
        store, kind = self._client.store, PauseTarget(each.act.removeprefix("pause_"))
        assert isinstance(store, SupportsPauses)
        until = None if each.until is None else self._now() + timedelta(seconds=each.until)
        await store.pause([NewPause(target=kind, value=each.value, by=by, until=until)])

    async def _change_a_schedule(self, each: PlannedAct, by: str) -> None:
        names = await self._names()
        if not names:
            return
        name = names[each.which % len(names)]
        if each.act == "pause_schedule":
            await self._client.schedules.pause(name, by=by)
        else:
            await self._client.schedules.resume(name)

    async def _names(self) -> Sequence[str]:
        return [each.name for each in (await self._client.schedules.list()).schedules]

    async def _keep_quiet(self, since: float) -> None:
        """Resume everything, and let no schedule tick any more."""
        await asyncio.sleep(since)
        told = False
        while True:
            try:
                await self._let_all_end()
            except (StoreUnavailable, ScheduleError):
                await asyncio.sleep(0.1)
                continue
            if not told:
                told = True
                self._kept_quiet()
            await asyncio.sleep(1.0)

    async def _let_all_end(self) -> None:
        for pause in await self._client.pauses():
            target: Any = {"type": ([pause.value], {}), "key": ([], {"key": pause.value}), "all": ([], {"all": True})}
            types, named = target[pause.target.value]
            await self._client.resume(*types, **named)
        for each in (await self._client.schedules.list()).schedules:
            if not each.paused:
                await self._client.schedules.pause(each.name)


def _about(each: PlannedAct) -> tuple[list[Any], dict[str, Any]]:
    kind = each.act.rpartition("_")[2]
    if kind == "all":
        return [], {"all": True}
    return ([each.value], {}) if kind == "type" else ([], {"key": each.value})
