"""The cases of `SupportsSchedules` about storing, showing, pausing and removing; a store that hasn't got it passes them."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.errors import ScheduleOwned
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._schedules_tools import (
    as_owned,
    decide,
    due_names,
    expect_schedule,
    names_of,
    put_one,
    schedule,
    scheduled_job,
)
from aioqueue.testing.conformance._tools import HOUR, check, equal, listening, near, raises, states_of
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._schedules import Generation, NewSchedule, ScheduleChange, SkippedTicks

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._schedules import StoredSchedule

__all__ = ["subject"]

subject = Subject("schedules")


@subject()
async def one_is_stored(harness: Harness) -> None:
    """A new schedule is there as it was given, begins now, and has had no ticks; when its next one is, nobody knows yet."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    new = schedule("s", every=60.0)
    equal(list(await store.put_schedules([new])), [True], "whether it was stored")
    stored, now = await expect_schedule(store, "s"), (await store.due_schedules(1)).now
    equal((stored.definition, stored.name), (new, "s"), "its definition and name")
    near(stored.since, now, "since when its ticks count")
    equal(stored.anchor, stored.since, "from when its interval counts")
    equal((stored.next_at, stored.last_at, stored.last_chain, stored.ticks), (None, None, None, ()), "its ticks")
    equal((stored.paused, stored.reason, stored.by), (False, "", ""), "its pause")


@subject()
async def each_field_lasts(harness: Harness) -> None:
    """Whatever a definition says is there however it's looked at: no statement leaves a column out."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    new = NewSchedule(
        name="ein Bericht/täglich ☕",
        owner=None,
        job_type="reports.daily",
        template=b'{"payload":"{\\"a\\":\\"\\u00e9 \\\\u0000\\"}","type":"reports.daily"}',
        cron="*/5 9-17 * * MON-FRI",
        every=0.1 + 0.2,
        timezone="Australia/Lord_Howe",
        catch_up="all",
        grace=1.5,
        catch_up_limit=7,
        overlap="skip",
    )
    left_out = {each.name for each in fields(NewSchedule) if getattr(new, each.name) == each.default} - {"owner"}
    equal(left_out, set[str](), "fields of `NewSchedule` that this case doesn't give a value")
    await store.put_schedules([new])
    found = [await expect_schedule(store, new.name), *(await store.list_schedules(10)).schedules]
    found += (await store.due_schedules(10)).schedules
    equal([each.definition for each in found], [new] * 3, "its definition as fetched, listed and due")
    await store.reconcile_schedules(Generation(owner="shop", digest="1"), [replace(new, name="o", owner="shop")], HOUR)
    equal((await expect_schedule(store, "o")).definition, replace(new, name="o", owner="shop"), "that of an owner's")


@subject()
async def the_same_again_changes_nothing(harness: Harness) -> None:
    """A definition that is there already is left as it is, with all that has become of its ticks."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    await decide(store, "s", job=True)
    before = await expect_schedule(store, "s")
    equal(list(await store.put_schedules([schedule("s"), schedule("t")])), [False, True], "whether each was stored or changed")
    equal(await expect_schedule(store, "s"), before, "the one that was there")


@subject()
async def another_definition(harness: Harness) -> None:
    """What is there is changed: it's another version; its ticks, its pause, and when the next one is, stay."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    await decide(store, "s", job=True)
    await store.pause_schedules(["s"], "too loud", "ann")
    before = await expect_schedule(store, "s")
    for number, new in enumerate((schedule("s", overlap="skip"), schedule("s", template=b'{"other":1}')), before.version + 1):
        equal(list(await store.put_schedules([new])), [True], "whether it was changed")
        equal(await expect_schedule(store, "s"), replace(before, definition=new, version=number), "the schedule by then")


@subject()
async def another_timing_begins_anew(harness: Harness) -> None:
    """With another expression, interval or zone its next tick isn't known, and those that count begin now; the rest stays."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    timings = [
        schedule("s", every=90.0),
        schedule("s", every=None, cron="0 9 * * *"),
        schedule("s", every=None, cron="0 9 * * *", timezone="Asia/Tokyo"),
    ]
    await put_one(store, schedule("s", every=60.0))
    for new in timings:
        await decide(store, "s", job=True)
        before = await expect_schedule(store, "s")
        equal(list(await store.put_schedules([new])), [True], "whether it was changed")
        after = await expect_schedule(store, "s")
        check(after.since > before.since, f"since when its ticks count must be later than {before.since}, not {after.since}")
        equal(after.anchor, after.since, "from when its interval counts")
        expected = replace(before, definition=new, version=before.version + 1, next_at=None)
        equal(replace(after, since=before.since, anchor=before.anchor), expected, "the schedule, but for these")


@subject()
async def all_or_none(harness: Harness) -> None:
    """Where one of the names is that of a registry's schedule, which isn't changed beside its code, nothing is stored."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("kept"))
    await store.reconcile_schedules(Generation(owner="shop", digest="1"), [as_owned(schedule("shop/s"))], HOUR)
    before = await store.fetch_schedules(["kept", "shop/s"])
    batch = [schedule("new"), schedule("kept", overlap="skip"), schedule("shop/s", overlap="skip"), schedule("other")]
    await raises(ScheduleOwned, store.put_schedules(batch), "putting what a registry owns")
    equal(list(await store.fetch_schedules(["kept", "shop/s"])), list(before), "what was there")
    equal(await names_of(store), ["kept", "shop/s"], "all schedules")


@subject()
async def pages(harness: Harness) -> None:
    """They're listed by name, each once; with the database's time."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    names = [f"s{number}" for number in range(7)]
    await store.put_schedules([schedule(name) for name in reversed(names)])
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        page = await store.list_schedules(3, cursor)
        near(page.now, (await store.due_schedules(1)).now, "the database's time")
        seen += [each.name for each in page.schedules]
        cursor = page.cursor
        if cursor is None:
            break
    equal(seen, names, "the names")
    equal((await store.list_schedules(7)).cursor, None, "the cursor behind a page that has all of them")


@subject()
async def they_are_fetched_in_order(harness: Harness) -> None:
    """By exactly their names, in the order that was given; what isn't there is None."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    names = ["s", "S", "s ", "ß", "x" * 200]
    await store.put_schedules([schedule(name) for name in names])
    found = await store.fetch_schedules(["ß", "nobody", "s ", "S", "s", "s", "x" * 200])
    equal([each and each.name for each in found], ["ß", None, "s ", "S", "s", "s", "x" * 200], "the names")
    equal(list(await store.fetch_schedules([])), [], "nothing that was asked for")


@subject()
async def a_paused_one_has_no_ticks(harness: Harness) -> None:
    """A pause is kept with its reason and who asked for it, and a later one counts; nothing is due meanwhile. It's said of each
    name whether it's there.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("s"), schedule("t")])
    equal(list(await store.pause_schedules(["nobody", "s"], "too loud", "ann")), [False, True], "whether each is there")
    stored = await expect_schedule(store, "s")
    equal((stored.paused, stored.reason, stored.by), (True, "too loud", "ann"), "its pause")
    equal(await due_names(store), ["t"], "what is due")
    await store.pause_schedules(["s"], "still", "bob")
    stored = await expect_schedule(store, "s")
    equal((stored.paused, stored.reason, stored.by), (True, "still", "bob"), "its pause after another one")


@subject()
async def a_resumed_one_goes_on_from_then(harness: Harness) -> None:
    """Ticks count again from that moment, so its next one isn't known; one that wasn't paused is left as it is."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("s"), schedule("t")])
    for name in ("s", "t"):
        await decide(store, name, job=True)
    before, other = await expect_schedule(store, "s"), await expect_schedule(store, "t")
    await store.pause_schedules(["s"], "too loud", "ann")
    equal(list(await store.resume_schedules(["s", "t", "nobody"])), [True, True, False], "whether each is there")
    after = await expect_schedule(store, "s")
    check(after.since > before.since, f"since when its ticks count must be later than {before.since}, not {after.since}")
    check(after.version > before.version, "what was worked out before isn't decided any more: it's another version")
    expected = replace(before, since=after.since, version=after.version, next_at=None)
    equal(after, expected, "the schedule that was resumed")
    equal(await expect_schedule(store, "t"), other, "the one that wasn't paused")
    equal(await due_names(store), ["s"], "what is due")


@subject()
async def a_deleted_one_is_gone(harness: Harness) -> None:
    """With all that is kept of its ticks: one of the same name begins anew. Its jobs stay, and so do other schedules."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await store.put_schedules([schedule("s"), schedule("t")])
    (tick,) = await decide(store, "s", job=True)
    asked = await store.delete_schedules(["s", "nobody"])
    equal(list(asked), [ScheduleChange.DONE, ScheduleChange.NOT_FOUND], "what became of each")
    equal(await names_of(store), ["t"], "what is left")
    assert tick.chain_id is not None
    equal(await states_of(harness.store, tick.chain_id), [JobState.READY], "the state of its job")
    equal(list(await store.delete_schedules(["s"])), [ScheduleChange.NOT_FOUND], "what becomes of one that is gone")
    await put_one(store, schedule("s"))
    anew = await expect_schedule(store, "s")
    equal((anew.ticks, anew.last_at, anew.last_chain, anew.next_at), ((), None, None, None), "the ticks of one that is new")


@subject(Capability.TELLS_SCHEDULES)
async def listeners_are_told(harness: Harness) -> None:
    """Whoever decides ticks hears of what was stored, changed and resumed."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    for new in (schedule("s"), schedule("s", every=90.0)):
        with listening(harness.store) as heard:
            await store.put_schedules([new])
            await heard.wait(lambda each: each.schedules, "a schedule that was put")
    with listening(harness.store) as heard:
        await store.reconcile_schedules(Generation(owner="shop", digest="1"), [as_owned(schedule("shop/s"))], HOUR)
        await heard.wait(lambda each: each.schedules, "a registry's schedule")
    await store.pause_schedules(["s"], "", "")
    with listening(harness.store) as heard:
        await store.resume_schedules(["s"])
        await heard.wait(lambda each: each.schedules, "one that was resumed")


@subject()
async def next_ticks_are_forgotten(harness: Harness) -> None:
    """Where next ticks are to be worked out again they aren't known any more; those that are due, and of other names, are left.
    Nothing else is changed.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    for name, next_in in (("future", HOUR), ("other", HOUR), ("due", -60.0)):
        await put_one(store, schedule(name))
        await decide(store, name, next_in=next_in, job=True)
    for name in ("new", "untried"):
        await put_one(store, schedule(name))
    await decide(store, "untried", next_in=HOUR)
    names = ["due", "future", "new", "other", "untried"]
    before = {each.name: each for each in await store.fetch_schedules(names) if each is not None}
    equal(before["untried"].last_at, None, "the newest tick of one that never had any")
    asked = ["future", "due", "new", "nobody", "untried"]
    equal(await store.recompute_schedules(asked), 2, "how many are to be worked out again")
    forgotten = {name: replace(row, next_at=None, version=row.version + 1) for name, row in before.items()}
    expected = {**before, **{name: forgotten[name] for name in ("future", "untried")}}
    equal(await _by_name(store, names), expected, "the schedules by then")
    equal(await store.recompute_schedules(), 1, "how many of all are to be worked out again")
    expected |= {"other": forgotten["other"]}
    equal(await _by_name(store, names), expected, "the schedules by then")
    equal(await store.recompute_schedules([]), 0, "how many of none")


async def _by_name(store: SupportsSchedules, names: list[str]) -> dict[str, StoredSchedule]:
    return {each.name: each for each in await store.fetch_schedules(names) if each is not None}


@subject()
async def a_newest_tick_in_the_future_is_forgotten(harness: Harness) -> None:
    """Where the clock has jumped back, so that the newest tick lies ahead, ticks count from now on when they're worked out
    again; what is kept of them stays.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("s"))
    now = (await store.due_schedules(1)).now
    ahead = SkippedTicks(nominal_time=now + timedelta(days=3), count=1, reason="missed")
    await decide(store, "s", next_in=4 * 24 * HOUR, skipped=(ahead,))
    before = await expect_schedule(store, "s")
    equal(before.last_at, ahead.nominal_time, "the newest tick")
    equal(await store.recompute_schedules(), 1, "how many are to be worked out again")
    after = await expect_schedule(store, "s")
    assert after.last_at is not None
    near(after.last_at, now, "what counts as the newest tick by then")
    equal(after, replace(before, next_at=None, last_at=after.last_at, version=before.version + 1), "the schedule by then")
    await decide(store, "s", job=scheduled_job("s", now))
    equal([each.nominal_time for each in (await expect_schedule(store, "s")).ticks], [ahead.nominal_time, now], "its ticks")
