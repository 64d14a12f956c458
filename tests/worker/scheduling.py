"""Schedules of tests, and a store in memory whose verbs can be made to fail or hang."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected, StoreContended, StoreUnavailable
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._schedule_template import encode_template
from aioqueue.vocabulary._schedules import NewSchedule, StoredSchedule, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue import Call
    from aioqueue.abc import SupportsSchedules
    from aioqueue.vocabulary._schedules import DecidedTick, Tick, Ticked

__all__ = ["Troubled", "decided", "definition", "enqueued", "known", "outcomes", "stored"]


class Troubled(MemoryStore):
    """Counts its verbs. Raises, or hangs, in those that a test names, as often as that says.

    Attributes:
        troubles_of: By verb, what its next calls raise, or wait for.
        called: How often each verb was called.
        refused, contended, hanging, away: Names of job types: what `tick` does with a batch that has one of them.
        batches: The names of the schedules in each call of `tick`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.troubles_of: dict[str, list[Exception | asyncio.Event]] = {}
        self.called: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.contended: set[str] = set()
        self.hanging: set[str] = set()
        self.away: set[str] = set()
        self.batches: list[list[str]] = []

    async def perform(self, verb: str, work: Callable[[], Any]) -> Any:
        self.called[verb] += 1
        if self.troubles_of.get(verb):
            trouble = self.troubles_of[verb].pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            await trouble.wait()
        return await super().perform(verb, work)

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        self.batches.append([each.name for each in ticks])
        types = {job.type for each in ticks for job in each.jobs}
        if types & self.hanging:
            await asyncio.Event().wait()
        if types & self.away:
            raise StoreUnavailable("out of memory")
        if types & self.contended:
            raise StoreContended("somebody holds the key")
        if types & self.refused:
            raise RowRejected("a trigger says no")
        return await super().tick(ticks)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and have workers look."""
        self.advance(seconds)
        self.database.tell(Notification(schedules=True))


def definition(call: Call[Any], name: str = "", *, every: float | None = None, **more: Any) -> NewSchedule:
    """A schedule of a call, each minute unless it's said otherwise."""
    job = call.to_new_job(webhook=None)
    if call.tells_nobody:
        job = replace(job, webhook="")
    given = {"owner": None, "every": 60.0 if every is None and "cron" not in more else every, **more}
    return NewSchedule(name=name or job.type, job_type=job.type, template=encode_template(job), **given)


async def stored(store: SupportsSchedules, name: str) -> StoredSchedule:
    """A schedule as it's stored."""
    (found,) = await store.fetch_schedules([name])
    assert found is not None, name
    return found


async def outcomes(store: SupportsSchedules, name: str) -> list[tuple[str, str, int]]:
    """What became of its newest ticks, the oldest first: how, why, and of how many."""
    ticks = (await stored(store, name)).ticks
    return [(each.outcome.name.lower(), each.reason, each.count) for each in reversed(ticks)]


async def decided(store: SupportsSchedules, name: str, count: int = 1) -> list[DecidedTick]:
    """Wait until so many of its ticks were decided. Returns them, the oldest first."""
    while len(found := (await stored(store, name)).ticks) < count:
        await asyncio.sleep(0)
    return list(reversed(found))


async def known(store: SupportsSchedules, *names: str) -> None:
    """Wait until the next ticks of these were worked out."""
    for name in names:
        while (await stored(store, name)).next_at is None:
            await asyncio.sleep(0)


def enqueued(ticks: Sequence[DecidedTick]) -> list[DecidedTick]:
    return [each for each in ticks if each.outcome is TickOutcome.ENQUEUED]
