"""The cases of `SupportsGates` about limits as rows: what code defines, what people change, and what that does to jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._gates_tools import (
    ONE_BY_TENANT,
    ONE_OF_A,
    Worker,
    expect_held,
    limit_of,
    rate_of,
    tenant,
    with_gates,
)
from aioqueue.testing.conformance._tools import equal, insert_one, job, listening
from aioqueue.testing.conformance._waiting import complete, tend_all
from aioqueue.vocabulary._gates import GateRules, LimitKind, NewLimit

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._abilities import SupportsGates

__all__ = ["subject"]

subject = Subject("limit_changes")


async def _stored(gated: SupportsGates) -> list[tuple[str, int, bool, bool]]:
    return [(each.name, each.places, each.defined, each.changed) for each in await gated.list_limits()]


@subject()
async def a_raised_one_lets_the_waiting_in(harness: Harness) -> None:
    """At once, as many as it has places more; listeners hear of it."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert(jobs := [job() for _ in range(6)])
    worker = Worker(store, ONE_OF_A)
    equal(len(await worker.claim()), 1, "how many run at first")
    with listening(store) as heard:
        await gated.put_limits([limit_of("a", 4)])
        await heard.wait(lambda each: each.gates or each.types is None, "a limit that was changed")
    equal((await worker.due()).job, 0.0, "seconds until there is something to do")
    equal(await worker.ids(), [each.id for each in jobs[1:4]], "what comes then")


@subject()
async def a_lowered_one_admits_none_until_fewer_run(harness: Harness) -> None:
    """What runs goes on."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 3)])
    await store.insert(jobs := [job() for _ in range(5)])
    worker = Worker(store, ONE_OF_A)
    running = await worker.claim()
    await gated.put_limits([limit_of("a", 1)])
    for each in running[:2]:
        await complete(store, each)
        equal(await worker.ids(), [], "what is claimed while as many run as may, or more")
    await complete(store, running[2])
    equal(await worker.ids(), [jobs[3].id], "what is claimed after that")


@subject()
async def a_removed_one_limits_nothing(harness: Harness) -> None:
    """All that wait come, at the gates of all its values."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert(jobs := [job(payload=tenant(name)) for name in ("x", "y", "x", "y", "x")])
    worker = Worker(store, ONE_BY_TENANT)
    equal(len(await worker.claim()), 2, "how many run at first")
    equal(list(await gated.remove_limits(["job:a", "job:b"])), [True, False], "which were there")
    equal(sorted(await worker.ids()), sorted(each.id for each in jobs[2:]), "what comes then")
    equal(await _stored(gated), [], "the limits")


@subject()
async def a_raised_one_lets_in_at_each_value(harness: Harness) -> None:
    """Each value has as many places."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert(jobs := [job(payload=tenant(name)) for name in ("x", "y", "x", "y", "x")])
    worker = Worker(store, ONE_BY_TENANT)
    equal(len(await worker.claim()), 2, "how many run at first")
    await gated.put_limits([limit_of("a", 2)])
    equal(sorted(await worker.ids()), sorted(each.id for each in jobs[2:4]), "what comes then")


@subject()
async def types_share_one(harness: Harness) -> None:
    """A shared limit counts those of all its types."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    rules = {name: GateRules(type=name, shared="stripe") for name in ("a", "b")}
    await gated.put_limits([NewLimit(name="stripe", places=2)])
    await store.insert(jobs := [job("a"), job("b"), job("a", priority=3), job("b", priority=3)])
    worker = Worker(store, rules)
    claimed = await worker.claim()
    equal([each.id for each in claimed], [jobs[0].id, jobs[1].id], "what runs")
    await expect_held(store, "stripe", jobs[2].id, jobs[3].id)
    await complete(store, claimed[1])
    equal(len(await Worker(store, {"a": rules["a"]}).claim()), 1, "how many come then of one type")
    equal(await Worker(store, {"b": rules["b"]}).ids(), [], "what comes of the other one")


@subject()
async def it_counts_what_ran_before_it(harness: Harness) -> None:
    """One that is stored while jobs run at its gate, unlimited, counts them."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    worker = Worker(store, ONE_OF_A)
    await store.insert([job(), job()])
    equal(len(await worker.claim()), 2, "how many run without a limit")
    await gated.put_limits([limit_of("a", 2)])
    third = await insert_one(store, job())
    equal(await worker.ids(), [], "what runs with it")
    await expect_held(store, "job:a", third)


@subject()
async def what_people_change_stays(harness: Harness) -> None:
    """Code that says the same as the last time doesn't undo it; code that says something else does."""
    if (gated := with_gates(harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 3), NewLimit(name="stripe", places=5)], defined=True)
    equal(await _stored(gated), [("job:a", 3, True, False), ("stripe", 5, True, False)], "what code has stored")
    await gated.put_limits([limit_of("a", 1)])
    equal((await _stored(gated))[0], ("job:a", 1, True, True), "one that somebody has changed")
    await gated.put_limits([limit_of("a", 3)], defined=True)
    equal((await _stored(gated))[0], ("job:a", 1, True, True), "one that code says again")
    await gated.put_limits([limit_of("a", 4)], defined=True)
    equal((await _stored(gated))[0], ("job:a", 4, True, False), "one of which code says something else")


@subject()
async def people_have_their_own(harness: Harness) -> None:
    """What no code has defined is theirs; after code has defined it, it's as that says."""
    if (gated := with_gates(harness.store)) is None:
        return
    await gated.put_limits([NewLimit(name="stripe", places=1)])
    await gated.put_limits([NewLimit(name="stripe", places=2)])
    equal(await _stored(gated), [("stripe", 2, False, False)], "what people have stored")
    await gated.put_limits([NewLimit(name="stripe", places=7)], defined=True)
    equal(await _stored(gated), [("stripe", 7, True, False)], "what code has defined")
    await gated.remove_limits(["stripe"])
    await gated.put_limits([NewLimit(name="stripe", places=7)], defined=True)
    equal(await _stored(gated), [("stripe", 7, True, False)], "what code has defined after somebody has removed it")


@subject()
async def they_are_listed(harness: Harness) -> None:
    """By name, with what they count, how many run at them, and how many wait, at all their values together."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("b", 2, 60.0, 4), limit_of("a", 1)])
    rules = {**ONE_BY_TENANT, "b": GateRules(type="b", rate=True)}
    await store.insert([job(payload=tenant(name)) for name in ("x", "y", "x", "x")] + [job("b") for _ in range(5)])
    equal(len(await Worker(store, rules).claim()), 6, "how many run")
    places, starts = await gated.list_limits()
    equal(
        (places.name, places.kind, places.places, places.per, places.burst), ("job:a", LimitKind.PLACES, 1, None, None), "one"
    )
    equal((places.running, places.waiting), (2, 2), "who runs and waits at it")
    equal(
        (starts.name, starts.kind, starts.places, starts.per, starts.burst), ("rate:b", LimitKind.STARTS, 2, 60.0, 4), "a rate"
    )
    equal((starts.running, starts.waiting), (0, 1), "who runs and waits at it")


@subject()
async def stores_on_one_database_share_them(harness: Harness) -> None:
    """What one process changes counts for the claims of another at once, and what runs there counts, too."""
    if (gated := with_gates(store := harness.store)) is None or (
        second := with_gates(other := await harness.second_store())
    ) is None:
        return
    worker, far = Worker(store, ONE_OF_A), Worker(other, ONE_OF_A)
    await store.insert([job() for _ in range(4)])
    await second.put_limits([limit_of("a", 1)])
    equal(len(await worker.claim(1)), 1, "how many run here")
    equal(await far.ids(), [], "what runs there")
    await gated.put_limits([limit_of("a", 2)])
    equal(len(await far.claim()), 1, "how many run there")
    equal((await gated.list_limits())[0].running, 2, "how many run")


@subject(Capability.LOCKS_ROWS)
async def upkeep_finds_who_was_passed_over(harness: Harness) -> None:
    """One that somebody had locked when a place became free isn't waited for, and comes later."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert(jobs := [job(), job()])
    worker = Worker(store, ONE_OF_A)
    claimed = await worker.one()
    async with harness.locked(jobs[1].id):
        await complete(store, claimed)
        equal(await worker.ids(), [], "what is claimed while it's locked")
    await tend_all(store)
    equal(await worker.ids(), [jobs[1].id], "what is claimed after that")
