"""The cases of `SupportsSchedules.reconcile_schedules`: what a registry's code says; a store that hasn't got it passes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._schedules_tools import (
    as_owned,
    decide,
    expect_schedule,
    names_of,
    put_one,
    schedule,
    scheduled_job,
    tick_of,
    tick_one,
)
from aioqueue.testing.conformance._tools import HOUR, check, equal
from aioqueue.vocabulary._abilities import SupportsSchedules
from aioqueue.vocabulary._schedules import Generation, Reconciled, ScheduleChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._schedules import NewSchedule

__all__ = ["subject"]

subject = Subject("generations")

OLD = Generation(owner="shop", digest="old")
NEW = Generation(owner="shop", digest="new")

SUPERSEDED = Reconciled(current=False)
REFUSED = Reconciled(current=False, refused=True)


def _owned(*names: str, every: float = 60.0, owner: str = "shop") -> list[NewSchedule]:
    return [replace(as_owned(schedule(f"{owner}/{name}"), owner), every=every) for name in names]


async def _reconcile(
    store: SupportsSchedules, generation: Generation, schedules: Sequence[NewSchedule], live: float = HOUR
) -> Reconciled:
    """What became of it, with the names in order."""
    found = await store.reconcile_schedules(generation, schedules, live)
    return replace(found, changed=tuple(sorted(found.changed)), removed=tuple(sorted(found.removed)))


def _current(changed: Sequence[str] = (), removed: Sequence[str] = (), taken: Sequence[str] = ()) -> Reconciled:
    return Reconciled(current=True, changed=tuple(changed), removed=tuple(removed), taken=tuple(taken))


@subject()
async def the_code_says_what_there_is(harness: Harness) -> None:
    """What is new is stored, what has changed is changed, what isn't in the code any more is removed; the rest stays."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    answer = await _reconcile(store, OLD, _owned("a", "b", "c"))
    equal(answer, _current(["shop/a", "shop/b", "shop/c"]), "what becomes of the first")
    for name in ("shop/a", "shop/b"):
        await decide(store, name, job=True)
    before = await store.fetch_schedules(["shop/a", "shop/b"])
    following = [*_owned("a"), replace(_owned("b")[0], overlap="skip"), *_owned("d")]
    answer = await _reconcile(store, NEW, following)
    equal(answer, _current(["shop/b", "shop/d"], ["shop/c"]), "what becomes of the next")
    equal(await names_of(store), ["shop/a", "shop/b", "shop/d"], "what there is")
    assert before[1] is not None
    expected = [before[0], replace(before[1], definition=following[1], version=before[1].version + 1)]
    equal(list(await store.fetch_schedules(["shop/a", "shop/b"])), expected, "those that were there")


@subject()
async def the_same_again_changes_nothing(harness: Harness) -> None:
    """Each worker says the same, again and again: only that it lives is noted."""
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsSchedules) or not isinstance(second, SupportsSchedules):
        return
    await _reconcile(store, OLD, _owned("a", "b"))
    await decide(store, "shop/a", job=True)
    await store.pause_schedules(["shop/b"], "too loud", "ann")
    before = (await store.list_schedules(10)).schedules
    equal([await _reconcile(each, OLD, _owned("b", "a")) for each in (second, store)], [_current()] * 2, "what becomes of it")
    equal((await store.list_schedules(10)).schedules, before, "the schedules")


@subject()
async def one_without_schedules(harness: Harness) -> None:
    """A registry that has none any more has its last ones removed; one that never had any changes nothing."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    equal(await _reconcile(store, OLD, []), _current(), "what becomes of one without any")
    await _reconcile(store, NEW, _owned("a"))
    later = Generation(owner="shop", digest="empty")
    equal(await _reconcile(store, later, []), _current(removed=["shop/a"]), "what becomes of one that has none any more")
    equal(await names_of(store), [], "what there is")


@subject()
async def others_are_left_alone(harness: Harness) -> None:
    """Neither schedules that were put at run time nor those of other registries are touched; where one of them has the name,
    that one stays, and the code's isn't stored, which is said.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await put_one(store, schedule("shop/taken"))
    await _reconcile(store, Generation(owner="other", digest="1"), [*_owned("a", owner="other"), *_owned("x", owner="other")])
    before = (await store.list_schedules(10)).schedules
    mine = [*_owned("taken", "a"), replace(_owned("x", owner="other")[0], owner="shop", overlap="skip")]
    taken = ["other/x", "shop/taken"]
    equal(await _reconcile(store, OLD, mine), _current(["shop/a"], taken=taken), "what becomes of one whose names are taken")
    equal(await _reconcile(store, NEW, []), _current(removed=["shop/a"]), "what becomes of one without any")
    equal((await store.list_schedules(10)).schedules, before, "the others")
    await store.delete_schedules(["shop/taken"])
    answer = await _reconcile(store, NEW, mine)
    equal(answer, _current(["shop/a", "shop/taken"], taken=["other/x"]), "what is stored once its name is free")


@subject()
async def a_rolling_deploy(harness: Harness) -> None:
    """Once a worker of newer code lives, those of the older one, however often they say so or are started again, change
    nothing.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await _reconcile(store, OLD, _owned("a", "b"))
    equal(await _reconcile(store, NEW, _owned("b", "c")), _current(["shop/c"], ["shop/a"]), "what becomes of the newer")
    before = (await store.list_schedules(10)).schedules
    for _ in range(2):
        equal(await _reconcile(store, OLD, _owned("a", "b")), SUPERSEDED, "what becomes of the older")
        equal(await _reconcile(store, NEW, _owned("b", "c")), _current(), "what becomes of the newer again")
    equal((await store.list_schedules(10)).schedules, before, "the schedules")


@subject()
async def a_rollback(harness: Harness) -> None:
    """Once no worker of the newer code has said for long enough that it lives, the older one's schedules come back; and the
    newer one's, when it's deployed again.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await _reconcile(store, OLD, _owned("a"), HOUR * 100)
    await _reconcile(store, NEW, _owned("b"), 90)
    await harness.age(60)
    equal(await _reconcile(store, OLD, _owned("a"), HOUR * 100), SUPERSEDED, "while the newer one lives")
    await _reconcile(store, NEW, _owned("b"), 90)
    await harness.age(60)
    equal(await _reconcile(store, OLD, _owned("a"), HOUR * 100), SUPERSEDED, "while the newer one goes on to live")
    await harness.age(60)
    equal(await _reconcile(store, OLD, _owned("a"), HOUR * 100), _current(["shop/a"], ["shop/b"]), "once it doesn't")
    equal(await _reconcile(store, NEW, _owned("b"), 90), _current(["shop/b"], ["shop/a"]), "the newer one again")


@subject()
async def release_numbers(harness: Harness) -> None:
    """A higher number is newer, whichever was seen first, and any number is newer than none: so a rollback needn't wait."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    second = replace(OLD, digest="2", release=2)
    equal(await _reconcile(store, second, _owned("two")), _current(["shop/two"]), "release 2")
    equal(await _reconcile(store, replace(OLD, digest="1", release=1), _owned("one")), SUPERSEDED, "release 1, seen later")
    equal(await _reconcile(store, OLD, _owned("none")), SUPERSEDED, "one without a number, seen last")
    back = replace(OLD, digest="1", release=3)
    equal(await _reconcile(store, back, _owned("one")), _current(["shop/one"], ["shop/two"]), "release 3, as release 1 was")
    equal(await _reconcile(store, second, _owned("two")), SUPERSEDED, "release 2 again")
    large = replace(OLD, digest="large", release=20261129135243)
    equal(await _reconcile(store, large, _owned("one", "l")), _current(["shop/l"]), "a number as large as a date")


@subject()
async def a_number_that_is_taken(harness: Harness) -> None:
    """Other definitions under the same number are refused, whoever lives, and change nothing, now or later."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await _reconcile(store, replace(OLD, release=1), _owned("a"), 60)
    await harness.age(120)
    other = replace(NEW, release=1)
    equal(await _reconcile(store, other, _owned("b")), REFUSED, "other definitions with this number")
    equal(await _reconcile(store, other, _owned("b")), REFUSED, "the same again")
    equal(await names_of(store), ["shop/a"], "what there is")
    equal(await _reconcile(store, replace(OLD, release=1), _owned("a")), _current(), "the first one again")
    equal(await _reconcile(store, replace(other, owner="x"), _owned("b", owner="x")), _current(["x/b"]), "another registry's")


@subject()
async def removed_code_fires_no_more(harness: Harness) -> None:
    """What was worked out for a schedule that isn't in the code any more, or for an older definition, isn't decided."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await _reconcile(store, OLD, _owned("a", "b"))
    now = (await store.due_schedules(1)).now
    names = ["shop/a", "shop/b"]
    ticks = [tick_of(await expect_schedule(store, name), None, scheduled_job(name, now)) for name in names]
    await _reconcile(store, NEW, _owned("a", every=90.0))
    equal([(await tick_one(store, each)).decided for each in ticks], [False, False], "whether each is decided")


@subject()
async def what_live_code_owns_is_not_deleted(harness: Harness) -> None:
    """Deleting a schedule by hand that workers would bring back is refused, also while only older ones live; once no worker of
    its registry does, it's done.
    """
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await _reconcile(store, NEW, _owned("a"), 60)
    await put_one(store, schedule("free"))
    asked = await store.delete_schedules(["shop/a", "free"])
    equal(list(asked), [ScheduleChange.OWNED, ScheduleChange.DONE], "what becomes of each")
    equal(await names_of(store), ["shop/a"], "what is left")
    await harness.age(120)
    equal(list(await store.delete_schedules(["shop/a"])), [ScheduleChange.DONE], "what becomes of it once nobody has its code")
    equal(await _reconcile(store, NEW, _owned("a")), _current(["shop/a"]), "what a worker says that lives again")


@subject()
async def it_may_be_paused(harness: Harness) -> None:
    """What code owns is paused and resumed by hand; the pause outlasts workers, and other definitions."""
    store = harness.store
    if not isinstance(store, SupportsSchedules):
        return
    await _reconcile(store, OLD, _owned("a"))
    equal(list(await store.pause_schedules(["shop/a"], "too loud", "ann")), [True], "whether it's there")
    await _reconcile(store, NEW, _owned("a", every=90.0))
    stored = await expect_schedule(store, "shop/a")
    equal((stored.paused, stored.reason, stored.by), (True, "too loud", "ann"), "its pause under another definition")
    await store.resume_schedules(["shop/a"])
    check(not (await expect_schedule(store, "shop/a")).paused, "it must be resumed")


@subject()
async def workers_that_start_together(harness: Harness) -> None:
    """Of several that say the same at the same moment, each change is made by exactly one; of two generations the one that was
    seen last counts, and nothing is mixed.
    """
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsSchedules) or not isinstance(second, SupportsSchedules):
        return
    stores = (store, second)
    names = [str(number) for number in range(8)]
    answers = await asyncio.gather(*(_reconcile(stores[number % 2], OLD, _owned(*names)) for number in range(6)))
    changed = sorted(name for each in answers for name in each.changed)
    equal(changed, [f"shop/{name}" for name in names], "what each has stored")
    generations = [(NEW, _owned("new")), (replace(NEW, digest="other"), _owned("other"))]
    await asyncio.gather(*(_reconcile(stores[number % 2], *generations[number % 2]) for number in range(6)))
    answers = [await _reconcile(store, *each) for each in generations]
    equal(sorted(each.current for each in answers), [False, True], "whether each is the current one")
    current = generations[[each.current for each in answers].index(True)][1]
    equal(await names_of(store), [each.name for each in current], "what there is")
