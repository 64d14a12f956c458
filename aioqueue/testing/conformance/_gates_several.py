"""The cases of `SupportsGates` about jobs with several gates: all of them have to be open, and none is kept for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import (
    BY_TENANT,
    Worker,
    expect_held,
    limit_of,
    member,
    rate_of,
    tenant,
    with_gates,
)
from aioqueue.testing.conformance._tools import equal, failure, job, settlement, written
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._gates import GateRules, NewLimit
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("several_gates")

S = member("s")


@subject()
async def one_that_is_held_at_one_takes_no_place_at_another(harness: Harness) -> None:
    """Neither of those before it nor of those behind it."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    rules = {"a": GateRules(type="a", limit=True, shared="x"), "b": GateRules(type="b", limit=True, shared="x")}
    await gated.put_limits([limit_of("a", 1), limit_of("b", 9), NewLimit(name="x", places=2)])
    await store.insert(jobs := [job("a"), job("a"), job("b", priority=3), job("b", priority=3)])
    worker = Worker(store, rules)
    claimed = await worker.claim()
    equal([each.id for each in claimed], [jobs[0].id, jobs[2].id], "what runs")
    await expect_held(store, "job:a", jobs[1].id)
    await expect_held(store, "x", jobs[3].id)
    await complete(store, claimed[1])
    equal(await worker.ids(), [jobs[3].id], "what runs after the other type's")
    await complete(store, claimed[0])
    equal(await worker.ids(), [jobs[1].id], "what runs after the first type's")


@subject()
async def a_sequence_comes_before_a_limit(harness: Harness) -> None:
    """A member whose turn it isn't leaves the places to others."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 2)])
    await store.insert(jobs := [job(sequence=S), job(sequence=S), job()])
    worker = Worker(store, {"a": GateRules(type="a", limit=True)})
    claimed = await worker.claim()
    equal([each.id for each in claimed], [jobs[0].id, jobs[2].id], "what runs")
    await expect_held(store, "sequence=s", jobs[1].id)
    await complete(store, claimed[0])
    equal(await worker.ids(), [jobs[1].id], "what runs after the first member")


@subject()
async def who_is_held_at_a_limit_has_spent_no_token(harness: Harness) -> None:
    """A rate is looked at last: only what starts costs something."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1), rate_of("a", 3)])
    await store.insert(jobs := [job() for _ in range(4)])
    worker = Worker(store, {"a": GateRules(type="a", limit=True, rate=True)})
    for each in jobs[:3]:
        claimed = await worker.one()
        equal(claimed.id, each.id, "what starts")
        await complete(store, claimed)
    equal(await worker.ids(), [], "what starts without a token")
    await expect_held(store, "rate:a", jobs[3].id)


@subject()
async def a_place_goes_on_to_who_can_use_it(harness: Harness) -> None:
    """One that was let come at a limit and is held at another one makes room for the next at the first."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    rules = {"a": GateRules(type="a", limit=True, limit_by=BY_TENANT, shared="x")}
    await gated.put_limits([limit_of("a", 1), NewLimit(name="x", places=1)])
    await store.insert(jobs := [job(payload=tenant(name)) for name in ("r", "x", "x", "y")])
    worker = Worker(store, rules)
    running = await worker.one()
    equal(running.id, jobs[0].id, "what runs")
    await gated.put_limits([NewLimit(name="x", places=2)])
    first = await worker.one()
    equal(first.id, jobs[1].id, "what runs when there's one more place")
    await complete(store, running)
    equal(await worker.ids(), [jobs[3].id], "what runs when another place is free, and the next one may not run")
    await complete(store, first)
    equal(await worker.ids(), [jobs[2].id], "what runs in the end")


@subject()
async def all_of_them_are_left_together(harness: Harness) -> None:
    """A retry frees its limit, its shared limit and its sequence."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    rules = {name: GateRules(type=name, limit=True, shared="x") for name in ("a", "b", "c")}
    await gated.put_limits([limit_of("a", 1), NewLimit(name="x", places=1)])
    first, alike, shared, behind = job("a", sequence=S), job("a"), job("b"), job("c", sequence=S)
    await store.insert([first, alike, shared, behind])
    worker = Worker(store, rules)
    claimed = await worker.one()
    await gated.put_limits([NewLimit(name="x", places=3)])
    equal(await worker.ids(), [shared.id], "what runs beside it")
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=600.0, error=failure()))
    equal(sorted(await worker.ids()), sorted([alike.id, behind.id]), "what runs when it has left")
