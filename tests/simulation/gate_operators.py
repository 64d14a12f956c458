"""What operators do to limits, sequences and the jobs at them in a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.operators import Operators
from tests.simulation.themes_gates import SEQUENCES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue import Client, JobHandle
    from tests.simulation.gates import GateChecker
    from tests.simulation.plan import PlannedAct

__all__ = ["GateOperators"]

_IN_THE_END = 3
"""Places and starts that each limit has, so that all comes to its end."""


class GateOperators(Operators):
    """See the module.

    Arguments:
        client, now, note, kept_quiet: As of `Operators`.
        handles: Of all jobs of the plan.
        checker: Told of chains that somebody wants to delete.
    """

    def __init__(
        self,
        client: Client,
        now: Callable[[], datetime],
        note: Callable[[str], None],
        kept_quiet: Callable[[], None],
        handles: Sequence[asyncio.Future[Any]],
        checker: GateChecker,
    ) -> None:
        super().__init__(client, now, note, kept_quiet)
        self._handles = handles
        self._checker = checker

    async def _do(self, number: int, each: PlannedAct) -> None:
        if each.act == "limit":
            await self._client.limits.put(each.value, each.number)
        elif each.act == "rate":
            await self._client.limits.put_rate("rated", each.number, per=3.0)
        elif each.act == "unlimit":
            await self._client.limits.remove(each.value)
        elif each.act == "go_on":
            await self._client.sequences.resume(each.value)
        elif each.act.startswith("job_"):
            await self._do_to_a_job(each)
        else:
            await super()._do(number, each)

    async def _do_to_a_job(self, each: PlannedAct) -> None:
        stored: list[JobHandle[str]] = [future.result() for future in self._handles if future.done()]
        handles = [handle for handle in stored if self._checker.lives(handle.id) is not (each.act == "job_retry")]
        if not handles:
            return
        handle = handles[each.which % len(handles)]
        if each.act == "job_now":
            await self._client.run_now(handle)
        elif each.act == "job_later":
            await self._client.reschedule(handle, delay=float(each.number))
        elif each.act == "job_retry":
            await self._client.retry(handle)
        else:
            self._checker.deleting.add(handle.id)
            await self._client.delete(handle)

    async def _let_all_end(self) -> None:
        await super()._let_all_end()
        for stored in await self._client.limits.list():
            if stored.places == _IN_THE_END:
                continue
            if stored.per is not None:
                await self._client.limits.put_rate("rated", _IN_THE_END, per=3.0)
            else:
                await self._client.limits.put(stored.name, _IN_THE_END)
        for name in SEQUENCES:
            await self._client.sequences.resume(name)
