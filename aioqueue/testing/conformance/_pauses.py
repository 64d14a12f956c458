"""The cases of `SupportsPauses` about types, and about everything; a store that hasn't got it passes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    lease_thread,
    listening,
    near,
    settlement,
    start,
    start_one,
    states_of,
    take_one,
    written,
)
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._pauses import NewPause, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._pauses import Pause

__all__ = ["all_of_it", "of_key", "of_type", "subject", "until_in"]

subject = Subject("pauses")


def of_type(name: str, by: str = "ann", *, until: datetime | None = None, reason: str = "") -> NewPause:
    """A pause of a type."""
    return NewPause(target=PauseTarget.TYPE, value=name, by=by, until=until, reason=reason)


def of_key(key: str, by: str = "ann", *, until: datetime | None = None, reason: str = "") -> NewPause:
    """A pause of a key."""
    return NewPause(target=PauseTarget.KEY, value=key, by=by, until=until, reason=reason)


def all_of_it(by: str = "ann", *, until: datetime | None = None) -> NewPause:
    """A pause of everything."""
    return NewPause(target=PauseTarget.ALL, by=by, until=until)


async def until_in(store: Store, seconds: float) -> datetime:
    """So many seconds from the database's now."""
    standing = await store.standing(await insert_one(store, job("clock", delay=HOUR * 1000)), [])
    return (datetime.now(UTC) if standing is None else standing.now) + timedelta(seconds=seconds)


async def _types_claimed(store: Store, lease_id: int, *types: str) -> list[str]:
    return sorted(each.type for each in await store.claim(lease_id, types, 100))


def _told(pauses: Sequence[Pause]) -> list[tuple[PauseTarget, str, str, str]]:
    return [(each.target, each.value, each.by, each.reason) for each in pauses]


@subject()
async def a_paused_type_is_left_alone(harness: Harness) -> None:
    """No worker starts jobs of it, whenever they were enqueued and whatever their priority, and those of other types go on;
    after it was resumed they start as if nothing had been.
    """
    store, second = harness.store, await harness.second_store()
    if not isinstance(store, SupportsPauses) or not isinstance(second, SupportsPauses):
        return
    lease_id = await harness.store.open_lease("w", HOUR)
    before, urgent, other, alike = job("a"), job("a", priority=1), job("b"), job("ab")
    await harness.store.insert([before, urgent, other, alike])
    await second.pause([of_type("a")])
    later = await insert_one(harness.store, job("a"))
    equal(await _types_claimed(harness.store, lease_id, "a", "A", "ab", "b"), ["ab", "b"], "types of what is claimed")
    equal(await states_of(harness.store, before.id, urgent.id, later), [JobState.READY] * 3, "the states of the others")
    equal(await second.resume(PauseTarget.TYPE, ["a"]), 1, "how many pauses were lifted")
    claimed = await harness.store.claim(lease_id, ["a"], 100)
    equal([each.id for each in claimed], [urgent.id, before.id, later], "what is claimed then, in order")
    equal([(each.attempt, each.reschedules) for each in claimed], [(1, 0)] * 3, "their attempts")


@subject()
async def everything_is_paused(harness: Harness) -> None:
    """While all is paused nothing is started, of whatever type, for whichever lease."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    lease_id, extra = [await harness.store.open_lease("w", HOUR) for _ in range(2)]
    await harness.store.insert([job("a"), job("b", priority=1)])
    await store.pause([all_of_it()])
    equal(list(await harness.store.claim(lease_id, ["a", "b"], 100, leases={"b": extra})), [], "what is claimed")
    equal(list(await harness.store.claim(lease_id, ["a", "b"], 100, dry_run=True)), [], "what is claimed as dry runs")
    equal(await store.resume(PauseTarget.ALL, [""]), 1, "how many pauses were lifted")
    equal(await _types_claimed(harness.store, lease_id, "a", "b"), ["a", "b"], "types of what is claimed then")


@subject()
async def what_runs_goes_on(harness: Harness) -> None:
    """What was started before is renewed, settled, given back and recovered; what becomes pending with it waits."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    lease_id = await base.open_lease("w", HOUR)
    done, retried, continued, given_back = await start(base, lease_id, job(), job(), job(), job())
    lost = await base.open_lease("lost", 60)
    orphan = await start_one(base, lost)
    await store.pause([of_type("a"), all_of_it()])
    async with lease_thread(base) as thread:
        renewal = await thread.renew(lease_id, held=[each.claim for each in (done, retried, continued, given_back)])
        equal((renewal.valid, len(renewal.lost), len(renewal.asked_to_stop)), (True, 0, 0), "a renewal")
    await written(base, settlement(done, SettlementKind.COMPLETED, output=b"1"))
    await written(base, settlement(retried, SettlementKind.RETRIED, error=failure()))
    following = job("a")
    await written(base, settlement(continued, SettlementKind.CONTINUED, next=following))
    await base.release(lease_id, [given_back.claim])
    await harness.age(120)
    taken = await take_one(base)
    equal(taken.id, orphan.id, "what is recovered")
    await written(base, settlement(taken, SettlementKind.RETRIED, error=failure()), orphaned=True)
    await base.open_lease("other", HOUR)
    equal(await states_of(base, done.id), [JobState.COMPLETED], "the state of what has completed")
    waiting = [retried.id, following.id, given_back.id, orphan.id]
    equal(await states_of(base, *waiting), [JobState.READY] * 4, "the states of what waits")
    equal(list(await base.claim(await base.open_lease("w", HOUR), ["a"], 100)), [], "what is claimed")


@subject()
async def it_ends_by_itself(harness: Harness) -> None:
    """A pause with an end is over then, without anybody doing anything; one whose end lies in the past is over at once."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await base.insert([job("a"), job("b"), job("c")])
    past, future = await until_in(base, -1), await until_in(base, 600)
    await store.pause([of_type("a", until=future), of_type("b", until=past), of_type("c")])
    lease_id = await base.open_lease("w", HOUR * 10)
    equal(await _types_claimed(base, lease_id, "a", "b", "c"), ["b"], "types of what is claimed")
    equal([each.value for each in await store.list_pauses()], ["a", "c"], "what is paused")
    await harness.age(601)
    equal(await _types_claimed(base, lease_id, "a", "b", "c"), ["a"], "types of what is claimed after the end")
    equal([each.value for each in await store.list_pauses()], ["c"], "what is paused after the end")


@subject()
async def idle_workers_are_not_woken(harness: Harness) -> None:
    """A paused backlog isn't due for a worker that waits, but when the pause ends by itself it's asked to look."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await base.insert([job("a"), job("b", delay=HOUR)])
    await store.pause([of_type("a")])
    equal((await base.next_due(["a"])).job, None, "seconds until a job of a paused type")
    about((await base.next_due(["a", "b"])).job, HOUR, "seconds until one of several types", within=60)
    await store.resume(PauseTarget.TYPE, ["a"])
    equal((await base.next_due(["a"])).job, 0.0, "seconds until a job after it was resumed")
    await store.pause([all_of_it()])
    equal((await base.next_due(["a", "b"])).job, None, "seconds until a job while all is paused")
    await store.pause([all_of_it(until=await until_in(base, 900))])
    about((await base.next_due(["a"])).job, 900, "seconds until the pause of all ends", within=60)
    await store.resume(PauseTarget.ALL, [""])
    await store.pause([of_type("a", until=await until_in(base, 1800))])
    about((await base.next_due(["a"])).job, 1800, "seconds until the pause of the type ends", within=60)


@subject()
async def each_person_pauses(harness: Harness) -> None:
    """Pauses of several people stand beside each other, and hold until the last one is lifted; each may lift only their own."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    lease_id = await base.open_lease("w", HOUR)
    await base.insert([job("a")])
    await store.pause([of_type("a", "ann", reason="one"), of_type("a", "bob", reason="two")])
    expected = [(PauseTarget.TYPE, "a", "ann", "one"), (PauseTarget.TYPE, "a", "bob", "two")]
    equal(_told(await store.list_pauses()), expected, "what is paused")
    equal(await store.resume(PauseTarget.TYPE, ["a"], by="ann"), 1, "how many of hers were lifted")
    equal(await store.resume(PauseTarget.TYPE, ["a"], by="ann"), 0, "how many were lifted by a second time")
    equal(await _types_claimed(base, lease_id, "a"), [], "what is claimed while another one holds")
    await store.pause([of_type("a", "ann")])
    equal(await store.resume(PauseTarget.TYPE, ["a", "b"]), 2, "how many of everybody's were lifted")
    equal(await _types_claimed(base, lease_id, "a"), ["a"], "what is claimed then")


@subject()
async def the_later_counts(harness: Harness) -> None:
    """Of two pauses of the same person for the same target the later one does, with its reason and its end."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    end = await until_in(harness.store, 600)
    await store.pause([of_type("a", reason="first")])
    (first,) = await store.list_pauses()
    await store.pause([of_type("a", reason="second", until=end)])
    (second,) = await store.list_pauses()
    equal((second.reason, second.until), ("second", end), "the reason and the end")
    check(second.at >= first.at, f"it must be since {first.at} or later, not {second.at}")
    await store.pause([of_type("a")])
    equal([(each.reason, each.until) for each in await store.list_pauses()], [("", None)], "the reason and the end of a third")


@subject()
async def they_are_listed(harness: Harness) -> None:
    """By target, value and person, each as it was given, since when, and with the number of due jobs that wait for its end."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    equal(list(await store.list_pauses()), [], "what is paused")
    await base.insert([job("a"), job("a", key="k", priority=4), job("b", key="k"), job("a", delay=HOUR), job("c")])
    end = await until_in(base, 600)
    given = [
        of_type("b", "bob"),
        of_type("a", "bob", reason="r"),
        of_type("a", "ann", until=end),
        of_key("k"),
        all_of_it("zoe"),
    ]
    await store.pause(given)
    pauses = await store.list_pauses()
    expected = [
        (PauseTarget.ALL, "", "zoe", ""),
        (PauseTarget.KEY, "k", "ann", ""),
        (PauseTarget.TYPE, "a", "ann", ""),
        (PauseTarget.TYPE, "a", "bob", "r"),
        (PauseTarget.TYPE, "b", "bob", ""),
    ]
    equal(_told(pauses), expected, "what is paused")
    equal([each.waiting for each in pauses], [4, 2, 2, 2, 1], "how many due jobs wait for each")
    equal([each.until for each in pauses], [None, None, end, None, None], "when they end")
    for each in pauses:
        near(each.at, end, "since when it is", within=1200)


@subject()
async def only_what_is_named_is_lifted(harness: Harness) -> None:
    """Lifting a type's pause leaves that of a key with the same name, of other types, and of all; what isn't paused is none."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    await store.pause([of_type("a"), of_type("b"), of_key("a"), all_of_it()])
    equal(await store.resume(PauseTarget.TYPE, ["a", "nobody"]), 1, "how many were lifted")
    targets = [(each.target, each.value) for each in await store.list_pauses()]
    equal(targets, [(PauseTarget.ALL, ""), (PauseTarget.KEY, "a"), (PauseTarget.TYPE, "b")], "what is left")
    equal(await store.resume(PauseTarget.KEY, []), 0, "how many of none were lifted")
    await store.pause([])
    equal(len(await store.list_pauses()), 3, "how many are left")


@subject()
async def listeners_are_told_of_the_end(harness: Harness) -> None:
    """Who waits for jobs hears when a type, or everything, is resumed: that may be claimed at once."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    await store.pause([of_type("a"), all_of_it()])
    with listening(harness.store) as heard:
        await store.resume(PauseTarget.TYPE, ["a"])
        await heard.wait_for_type("a")
    with listening(harness.store) as heard:
        await store.resume(PauseTarget.ALL, [""])
        await heard.wait_for_type("anything")


@subject()
async def what_is_paused_may_expire(harness: Harness) -> None:
    """The time within which a job must have been started goes on while its type is paused."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    job_id = await insert_one(harness.store, job(expires=60))
    await store.pause([of_type("a")])
    await harness.age(120)
    await harness.store.tend(100)
    await expect_state(harness.store, job_id, JobState.CANCELLED)


@subject()
async def pauses_outlast_who_made_them(harness: Harness) -> None:
    """A store that is opened later finds them."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    await insert_one(harness.store, job())
    await store.pause([of_type("a", reason="maintenance")])
    third = harness.new_store()
    await third.open()
    try:
        assert isinstance(third, SupportsPauses)
        equal(_told(await third.list_pauses()), [(PauseTarget.TYPE, "a", "ann", "maintenance")], "what is paused")
        lease_id = await third.open_lease("w", HOUR)
        equal(list(await third.claim(lease_id, ["a"], 1)), [], "what is claimed")
        await third.resume(PauseTarget.TYPE, ["a"])
        await claim_one(third, lease_id)
    finally:
        await third.close()
