"""The cases of `SupportsSchedules.due_schedules` and `tick`; a store that hasn't got it passes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended
from aioqueue.store_rules._schedules import KEPT_TICKS
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._schedules_tools import (
    decide,
    due_names,
    expect_schedule,
    now_of,
    put_one,
    schedule,
    scheduled_job,
    tick_of,
    tick_one,
)
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    check,
    claim_one,
    equal,
    listening,
    near,
    snapshot,
    states_of,
)
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._origin import Origin
from aioqueue.vocabulary._schedules import DecidedTick, SkippedTicks, TickOutcome

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["MINUTE", "jobs_of_ticks", "subject"]

subject = Subject("ticks")

MINUTE = timedelta(minutes=1)


async def jobs_of_ticks(store: Store) -> list[UUID]:
    """The jobs of the type `tick` that there are, the oldest first."""
    page = await store.list_ids(JobFilter(types=frozenset({"tick"})), 1000)
    return sorted(page.ids)


@subject()
async def a_new_schedule_is_due(harness: Harness) -> None:
    """Until somebody has worked out when its next tick is there's something to do about it; then not before that."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    equal((await harness.store.next_due(["a"])).tick, None, "seconds until a tick, without any schedule")
    await put_one(store, schedule("s"))
    due = await store.due_schedules(10)
    equal([each.name for each in due.schedules], ["s"], "what is due")
    equal((await harness.store.next_due(["a"])).tick, 0.0, "seconds until there's something to decide")
    await decide(store, "s", next_in=HOUR)
    due = await store.due_schedules(10)
    equal(due.schedules, (), "what is due, once it's known")
    about(due.next_in, HOUR, "seconds until the next tick", within=60)
    about((await harness.store.next_due(["a"])).tick, HOUR, "seconds until the next tick, as an idle worker is told", within=60)


@subject()
async def what_is_due_comes_in_order(harness: Harness) -> None:
    """The earliest first; those that aren't known yet too; no more than asked for, and without those that don't count."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    for name, next_in in (("late", -100.0), ("later", -50.0), ("latest", -1.0), ("future", HOUR), ("further", HOUR * 5)):
        await put_one(store, schedule(name, cron="* * * * *" if name in ("later", "future") else None, every=None))
        await decide(store, name, next_in=next_in)
    equal(await due_names(store), ["late", "later", "latest"], "what is due")
    equal(await due_names(store, 2), ["late", "later"], "the first two")
    found = await store.due_schedules(10, without=["late", "future", "nobody"])
    equal([each.name for each in found.schedules], ["later", "latest"], "what is due without one")
    about(found.next_in, HOUR * 5, "seconds until the next tick of those that count", within=60)
    found = await store.due_schedules(10, cron=False)
    equal([each.name for each in found.schedules], ["late", "latest"], "what is due without expressions")
    about(found.next_in, HOUR * 5, "seconds until the next tick without expressions", within=60)
    equal([each.ticks for each in found.schedules], [(), ()], "their ticks, which nobody asks for")
    await put_one(store, schedule("new"))
    equal(sorted(await due_names(store)), ["late", "later", "latest", "new"], "what is due with one that is new")
    await store.pause_schedules(["late", "new"], "", "")
    equal(await due_names(store), ["later", "latest"], "what is due without those that are paused")


@subject()
async def nothing_is_waited_for(harness: Harness) -> None:
    """Neither paused schedules, nor those of which it was worked out that they have no further tick."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("paused"), schedule("never")])
    await store.pause_schedules(["paused"], "", "")
    result = await tick_one(store, tick_of(await expect_schedule(store, "never"), None))
    equal((result.decided, result.ticks), (True, ()), "what becomes of one that has no further tick")
    stale = await tick_one(
        store, tick_of(await expect_schedule(store, "never"), None, scheduled_job("never", await now_of(store)))
    )
    check(not stale.decided, "whoever takes that for a tick that isn't known yet decides nothing")
    due = await store.due_schedules(10)
    equal((due.schedules, due.next_in), ((), None), "what is due, and when something is")
    equal((await expect_schedule(store, "never")).next_at, None, "its next tick, as it's shown")
    equal((await harness.store.next_due(["a"])).tick, None, "seconds until a tick, as an idle worker is told")
    equal(await store.recompute_schedules(["never"]), 1, "how many are to be worked out again")
    equal(await due_names(store), ["never"], "what is due then")


@subject()
async def a_tick_enqueues(harness: Harness) -> None:
    """Its job is stored as given, due at once, and says which tick it's of; the schedule has its next tick, and what became of
    this one.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    before, now = await put_one(store, schedule("s")), await now_of(store)
    nominal, next_at = now - MINUTE, now + MINUTE
    new = scheduled_job("s", nominal, payload=b'{"n":1}', priority=1, tags=("t",), key="k")
    result = await tick_one(store, tick_of(before, next_at, new))
    (decided,) = result.ticks
    expected = DecidedTick(nominal_time=nominal, decided_at=decided.decided_at, outcome=TickOutcome.ENQUEUED, chain_id=new.id)
    equal((result.decided, decided), (True, expected), "what became of it")
    near(decided.decided_at, now, "when it was decided")
    after = await expect_schedule(store, "s")
    equal(after, replace(before, next_at=next_at, last_at=nominal, last_chain=new.id, ticks=(expected,)), "the schedule")
    stored = await snapshot(harness.store, new.id)
    equal((stored.state, stored.origin), (JobState.READY, Origin(schedule="s", nominal_time=nominal)), "its job")
    equal((stored.payload, stored.priority, stored.tags, stored.key), (b'{"n":1}', 1, ("t",), "k"), "what the job has")
    claimed = await claim_one(harness.store, await harness.store.open_lease("w", HOUR), "tick")
    equal((claimed.id, claimed.nominal_time), (new.id, nominal), "what a worker claims")


@subject()
async def its_job_may_be_due_later(harness: Harness) -> None:
    """A job with a delay is scheduled."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    new = scheduled_job("s", await now_of(store), delay=HOUR)
    await decide(store, "s", job=new)
    equal(await states_of(harness.store, new.id), [JobState.SCHEDULED], "the job's state")


@subject()
async def listeners_are_told_of_its_job(harness: Harness) -> None:
    """Workers that wait for jobs of its type hear of them."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    with listening(harness.store) as heard:
        await decide(store, "s", job=True)
        await heard.wait_for_type("tick")


@subject()
async def each_is_decided_once(harness: Harness) -> None:
    """Who has worked out the same tick, and comes second, decides nothing, and it's no error; nor is a repetition."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    stored, now = await put_one(store, schedule("s")), await now_of(store)
    first = tick_of(stored, now + MINUTE, scheduled_job("s", now))
    second = tick_of(stored, now + MINUTE, scheduled_job("s", now))
    answers = [(await tick_one(store, each)).decided for each in (first, second, first)]
    equal(answers, [True, False, False], "whether each was decided")
    equal(await jobs_of_ticks(harness.store), [first.jobs[0].id], "the jobs")


@subject()
async def who_comes_together(harness: Harness) -> None:
    """Of several who decide the same ticks at the same moment, in whatever order, each tick is decided by exactly one."""
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsSchedules) or not isinstance(second, SupportsSchedules):
        return
    names = [f"s{number}" for number in range(20)]
    await store.put_schedules([schedule(name) for name in names])
    found = await store.due_schedules(100)
    decided: dict[str, int] = dict.fromkeys(names, 0)

    async def decide_all(number: int) -> None:
        rows = found.schedules if number % 2 else found.schedules[::-1]
        ticks = [tick_of(each, found.now + MINUTE, scheduled_job(each.name, found.now)) for each in rows]
        left = ticks
        while left:
            here, left = left[:7], left[7:]
            try:
                results = await (store, second)[number % 2].tick(here)
            except StoreContended:  # another one takes long to decide them
                left = [*here, *left]
                continue
            for each, result in zip(here, results, strict=True):
                decided[each.name] += result.decided

    await asyncio.gather(*(decide_all(number) for number in range(6)))
    equal(decided, dict.fromkeys(names, 1), "by how many each was decided")
    jobs = [(await snapshot(harness.store, each)).origin for each in await jobs_of_ticks(harness.store)]
    equal(sorted(each.schedule or "" for each in jobs if each is not None), sorted(names), "the schedules of the jobs")


@subject()
async def only_as_it_was_read(harness: Harness) -> None:
    """Nothing is decided of a schedule that has another next tick or definition by then, was resumed, is paused, or is gone."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    names = ["moved", "changed", "resumed", "paused", "gone", "forgotten"]
    await store.put_schedules([schedule(name) for name in names])
    for name in names:
        await decide(store, name, next_in=HOUR)
    now = await now_of(store)
    ticks = [tick_of(await expect_schedule(store, name), now + MINUTE, scheduled_job(name, now)) for name in names]
    await decide(store, "moved", next_in=HOUR * 2)
    await store.put_schedules([schedule("changed", overlap="skip")])
    await store.pause_schedules(["resumed", "paused"], "", "")
    await store.resume_schedules(["resumed"])
    await store.delete_schedules(["gone"])
    await store.recompute_schedules(["forgotten"])
    before = await store.fetch_schedules(names)
    equal([(each.decided, each.ticks) for each in await store.tick(ticks)], [(False, ())] * 6, "what became of each")
    equal(list(await store.fetch_schedules(names)), list(before), "the schedules")
    equal(await jobs_of_ticks(harness.store), [], "jobs of ticks")


@subject()
async def what_was_worked_out_before_a_pause(harness: Harness) -> None:
    """It isn't decided after it, though the next tick was unknown then as it is now."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    stored, now = await put_one(store, schedule("s")), await now_of(store)
    await store.pause_schedules(["s"], "", "")
    await store.resume_schedules(["s"])
    result = await tick_one(store, tick_of(stored, now + MINUTE, scheduled_job("s", now)))
    check(not result.decided, "it must not be decided")


@subject()
async def what_was_worked_out_before_it_was_forgotten(harness: Harness) -> None:
    """A tick that was worked out while the next one was unknown isn't decided when it's unknown again: it may have been decided
    in between, together with more others than are kept.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    stored, now = await put_one(store, schedule("s")), await now_of(store)
    times = [now - number * MINUTE for number in range(KEPT_TICKS + 5, 0, -1)]
    first, second = ([scheduled_job("s", at) for at in times] for _ in range(2))
    check((await tick_one(store, tick_of(stored, now + 60 * MINUTE, *first))).decided, "the first must be decided")
    equal(await store.recompute_schedules(["s"]), 1, "how many are to be worked out again")
    check(not (await tick_one(store, tick_of(stored, now + 60 * MINUTE, *second))).decided, "the second must not be decided")
    equal(await jobs_of_ticks(harness.store), [each.id for each in first], "the jobs")


@subject()
async def what_was_worked_out_for_a_deleted_one(harness: Harness) -> None:
    """It isn't decided of another one that has got its name, though the next tick of neither is known."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    stored, now = await put_one(store, schedule("s")), await now_of(store)
    await store.delete_schedules(["s"])
    await put_one(store, schedule("s", every=90.0))
    for by_hand in (False, True):
        stale = replace(tick_of(stored, now + MINUTE, scheduled_job("s", now)), by_hand=by_hand)
        check(not (await tick_one(store, stale)).decided, "it must not be decided")


@subject()
async def they_stand_for_themselves(harness: Harness) -> None:
    """Of several in one call, those that come too late don't stop the others; the answers are in order."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    names = ["a", "b", "c", "d"]
    await store.put_schedules([schedule(name) for name in names])
    now = await now_of(store)
    ticks = [tick_of(await expect_schedule(store, name), now + MINUTE, scheduled_job(name, now)) for name in names]
    await decide(store, "b")
    await store.pause_schedules(["d"], "", "")
    equal([each.decided for each in await store.tick(ticks)], [True, False, True, False], "whether each was decided")
    equal(await jobs_of_ticks(harness.store), [ticks[0].jobs[0].id, ticks[2].jobs[0].id], "the jobs")
    equal(list(await store.tick([])), [], "what becomes of none")


@subject()
async def several_jobs_and_skipped_ones(harness: Harness) -> None:
    """Several missed ticks are enqueued together, in order, and it's kept how many weren't, and why."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    stored, now = await put_one(store, schedule("s")), await now_of(store)
    jobs = [scheduled_job("s", now - number * MINUTE) for number in (3, 2, 1)]
    skipped = SkippedTicks(nominal_time=now - 4 * MINUTE, count=1000, reason="over the limit")
    result = await tick_one(store, replace(tick_of(stored, now + MINUTE, *jobs), skipped=(skipped,)))
    outcomes = [(each.nominal_time, each.outcome, each.chain_id, each.count, each.reason) for each in result.ticks]
    expected = [
        *((new.origin and new.origin.nominal_time, TickOutcome.ENQUEUED, new.id, 1, "") for new in jobs),
        (skipped.nominal_time, TickOutcome.SKIPPED, None, 1000, "over the limit"),
    ]
    equal(outcomes, expected, "what became of them")
    after = await expect_schedule(store, "s")
    newest_first = sorted(result.ticks, key=lambda each: each.nominal_time, reverse=True)
    equal(list(after.ticks), newest_first, "what is kept of them, newest first")
    equal((after.last_at, after.last_chain), (now - MINUTE, jobs[-1].id), "the newest tick, and its chain")
    equal(await jobs_of_ticks(harness.store), [each.id for each in jobs], "the jobs")


@subject()
async def skipping_alone(harness: Harness) -> None:
    """A tick that only skips is kept, and moves the schedule on; its last chain stays."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    (first,) = await decide(store, "s", job=True)
    now = await now_of(store)
    missed = SkippedTicks(nominal_time=now, count=3, reason="missed")
    await decide(store, "s", next_in=HOUR, skipped=(missed,))
    after = await expect_schedule(store, "s")
    equal((after.last_at, after.last_chain), (now, first.chain_id), "the newest tick, and the last chain")
    equal([each.outcome for each in after.ticks], [TickOutcome.SKIPPED, TickOutcome.ENQUEUED], "what became of its ticks")


@subject()
async def the_newest_are_kept(harness: Harness) -> None:
    """Of each schedule so many ticks, newest first; another one's aren't forgotten for it."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("s"), schedule("other")])
    start = await now_of(store) - 1000 * MINUTE
    await decide(store, "other", skipped=(SkippedTicks(nominal_time=start, count=1, reason="missed"),))
    times = [start + number * MINUTE for number in range(KEPT_TICKS + 7)]
    for at in times[:5]:
        await decide(store, "s", job=scheduled_job("s", at))
    stored, jobs = await expect_schedule(store, "s"), [scheduled_job("s", at) for at in times[5:]]
    await tick_one(store, tick_of(stored, None, *jobs))
    kept = (await expect_schedule(store, "s")).ticks
    equal([each.nominal_time for each in kept], times[: -KEPT_TICKS - 1 : -1], "the nominal times of those that are kept")
    equal(len((await expect_schedule(store, "other")).ticks), 1, "another one's ticks")
    listed = {each.name: each.ticks for each in (await store.list_schedules(10)).schedules}
    equal((listed["s"], len(listed["other"])), (kept, 1), "their ticks as listed")


@subject()
async def one_was_enqueued_before(harness: Harness) -> None:
    """A nominal time that was enqueued isn't again, though it's worked out anew, such as after a clock has jumped back; what
    is kept of it stays.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    now = await now_of(store)
    (first,) = await decide(store, "s", job=scheduled_job("s", now))
    await store.recompute_schedules(["s"])
    again, later = scheduled_job("s", now), scheduled_job("s", now + MINUTE)
    stored = await expect_schedule(store, "s")
    result = await tick_one(store, tick_of(stored, now + 2 * MINUTE, again, later))
    outcomes = [(each.nominal_time, each.outcome, each.chain_id) for each in result.ticks]
    expected = [(now, TickOutcome.SKIPPED, None), (now + MINUTE, TickOutcome.ENQUEUED, later.id)]
    equal(outcomes, expected, "what became of both")
    check(result.ticks[0].reason, "it must say why it was skipped")
    after = await expect_schedule(store, "s")
    equal(after.ticks, (result.ticks[1], first), "what is kept")
    equal(await jobs_of_ticks(harness.store), [first.chain_id, later.id], "the jobs")
