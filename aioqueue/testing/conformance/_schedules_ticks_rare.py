"""The cases of `SupportsSchedules.tick` about what is rare: jobs that are refused, ticks by hand, exact times."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._schedules_tools import (
    decide,
    expect_schedule,
    now_of,
    put_one,
    schedule,
    scheduled_job,
    tick_of,
    tick_one,
)
from aioqueue.testing.conformance._tools import (
    check,
    equal,
    raises,
    snapshot,
)
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._schedules import TickOutcome

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.testing.conformance._case import Harness

from aioqueue.testing.conformance._schedules_ticks import MINUTE, jobs_of_ticks

__all__ = ["subject"]

subject = Subject("ticks")


@subject()
async def a_job_that_is_refused(harness: Harness) -> None:
    """Where one job can't be stored nothing of the call is, and no schedule has moved: whoever decides leaves that one out."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    names = ["a", "bad", "c"]
    await store.put_schedules([schedule(name) for name in names])
    now, before = await now_of(store), await store.fetch_schedules(names)
    payloads = [b"{}", b"{broken", b"{}"]
    jobs = [scheduled_job(name, now, payload=payload) for name, payload in zip(names, payloads, strict=True)]
    ticks = [tick_of(each, now + MINUTE, new) for each, new in zip(before, jobs, strict=True) if each is not None]
    await raises(RowRejected, store.tick(ticks), "ticks of which one has a job that isn't JSON")
    equal(list(await store.fetch_schedules(names)), list(before), "the schedules after that")
    equal(await jobs_of_ticks(harness.store), [], "jobs after that")
    equal([each.decided for each in await store.tick([ticks[0], ticks[2]])], [True, True], "what becomes of the others")


@subject()
async def by_hand(harness: Harness) -> None:
    """What an operator runs stands beside the schedule's own ticks, also of a paused one: it moves neither its next tick nor
    its newest one. It's kept with them, once for each nominal time, and needs the same version.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    await decide(store, "s", job=True)
    await store.pause_schedules(["s"], "", "")
    before, now = await expect_schedule(store, "s"), await now_of(store)
    new = scheduled_job("s", now)
    tick = replace(tick_of(before, None, new), expected=now, by_hand=True)
    result = await tick_one(store, tick)
    equal((result.decided, [each.outcome for each in result.ticks]), (True, [TickOutcome.ENQUEUED]), "what became of it")
    expected = replace(before, last_chain=new.id, ticks=(*result.ticks, *before.ticks))
    equal(await expect_schedule(store, "s"), expected, "the schedule")
    again = await tick_one(store, replace(tick, jobs=(scheduled_job("s", now),)))
    equal((again.decided, [each.outcome for each in again.ticks]), (True, [TickOutcome.SKIPPED]), "what became of another")
    stale = await tick_one(store, replace(tick, version=before.version + 1, jobs=(scheduled_job("s", now + MINUTE),)))
    check(not stale.decided, "one of another version must not be decided")
    await store.resume_schedules(["s"])


@subject()
async def times_are_exact(harness: Harness) -> None:
    """Nominal times and next ticks are kept to the microsecond, in UTC, however far away."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    now = await now_of(store)
    moments: list[datetime] = [now.replace(year=year, month=3, day=1, microsecond=123457) for year in (1970, 2037, 2150)]
    for at in moments:
        stored, new = await expect_schedule(store, "s"), scheduled_job("s", at)
        await tick_one(store, tick_of(stored, at, new))
        after = await expect_schedule(store, "s")
        equal((after.next_at, after.last_at, after.ticks[0].nominal_time), (at, at, at), "its times")
        check(after.next_at is not None and after.next_at.utcoffset() == timedelta(0), "times must be in UTC")
        equal((await snapshot(harness.store, new.id)).nominal_time, at, "the job's nominal time")
