"""The cases of `SupportsGates` about rates: so many starts in a time, by the database's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, expect_held, rate_of, tenant, with_gates
from aioqueue.testing.conformance._tools import HOUR, about, equal, failure, insert_one, job, settlement, written
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("rates")

RATED = {"a": GateRules(type="a", rate=True)}
MINUTE = 60.0


@subject()
async def no_more_start_than_that(harness: Harness) -> None:
    """At once as many as its burst, then one with each next token; those that wait are held, and come in their order."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 60, HOUR, 3)])
    await store.insert(jobs := [job() for _ in range(8)])
    worker = Worker(store, RATED)
    ids = [each.id for each in jobs]
    equal(await worker.ids(), ids[:3], "what starts at once")
    await expect_held(store, "rate:a", *ids[3:])
    about((await worker.due()).job, MINUTE, "seconds until the next token", within=MINUTE / 2)
    await harness.age(1.5 * MINUTE)
    equal(await worker.ids(), ids[3:4], "what starts after a minute and a half")
    await harness.age(MINUTE)
    equal(await worker.ids(), ids[4:5], "what starts after two and a half")
    await harness.age(2 * MINUTE)
    equal(await Worker(await harness.second_store(), RATED).ids(), ids[5:7], "what starts after four and a half, elsewhere")


@subject()
async def a_start_that_has_ended_has_cost_its_token(harness: Harness) -> None:
    """How long jobs run, and how they end, is of no concern."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 2)])
    await store.insert([job() for _ in range(4)])
    worker = Worker(store, RATED)
    one, other = await worker.claim()
    await complete(store, one)
    await store.delete([other.id])
    equal(await worker.ids(), [], "what starts after both have ended")


@subject()
async def each_attempt_costs_one(harness: Harness) -> None:
    """A retry starts anew, with a token of its own."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 60, HOUR, 1)])
    job_id = await insert_one(store, job())
    worker = Worker(store, RATED)
    claimed = await worker.one()
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=0.0, error=failure()))
    equal(await worker.ids(), [], "what starts at once")
    await expect_held(store, "rate:a", job_id)
    await harness.age(1.5 * MINUTE)
    equal(await worker.ids(), [job_id], "what starts after a minute and a half")


@subject()
async def workers_are_woken_for_the_next_token(harness: Harness) -> None:
    """The time of the next start that is allowed is known while somebody waits for it, and not before or after."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 2, HOUR, 1)])
    worker = Worker(store, RATED)
    first = await insert_one(store, job())
    equal(await worker.ids(), [first], "what starts at once")
    equal((await worker.due()).job, None, "seconds until there is something to do while nobody waits")
    second = await insert_one(store, job())
    equal(await worker.ids(), [], "what starts then")
    about((await worker.due()).job, HOUR / 2, "seconds until the next token")
    await harness.age(HOUR * 0.6)
    equal((await worker.due()).job, 0.0, "seconds until it when it's there")
    equal(await worker.ids(), [second], "what starts with it")
    equal((await worker.due()).job, None, "seconds until there is something to do in the end")


@subject()
async def each_value_has_its_own(harness: Harness) -> None:
    """Where an argument tells them apart."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 1)])
    rules = {"a": GateRules(type="a", rate=True, rate_by=BY_TENANT)}
    await store.insert(jobs := [job(payload=tenant(name)) for name in ("x", "y", "x")])
    equal(sorted(await Worker(store, rules).ids()), sorted(each.id for each in jobs[:2]), "what starts")
    await expect_held(store, 'rate:a="x"', jobs[2].id)


@subject()
async def unused_time_is_not_saved_beyond_the_burst(harness: Harness) -> None:
    """After a long while without any start no more start at once than the burst says."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 60, HOUR, 2)])
    worker = Worker(store, RATED)
    await store.insert([job(), job()])
    equal(len(await worker.claim()), 2, "how many start at first")
    await harness.age(HOUR / 2)
    await store.insert([job() for _ in range(5)])
    equal(len(await worker.claim()), 2, "how many start at once after half an hour")


@subject()
async def a_changed_one_counts_from_then(harness: Harness) -> None:
    """None start at a rate of none; one that is raised, or removed, lets those that wait start."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 0, HOUR, 1)])
    await store.insert(jobs := [job() for _ in range(4)])
    worker = Worker(store, RATED)
    equal(await worker.ids(), [], "what starts at a rate of none")
    equal((await worker.due()).job, None, "seconds until there is something to do")
    await gated.put_limits([rate_of("a", 60, HOUR, 1)])
    equal(await worker.ids(), [jobs[0].id], "what starts when it's raised")
    await gated.remove_limits(["rate:a"])
    equal(sorted(await worker.ids()), sorted(each.id for each in jobs[1:]), "what starts when it's removed")


@subject()
async def what_has_no_slot_costs_nothing(harness: Harness) -> None:
    """Tokens are spent for those that a claim takes, and for no others."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 3)])
    await store.insert(jobs := [job() for _ in range(5)])
    worker = Worker(store, RATED)
    equal([await worker.ids(1) for _ in range(4)], [[each.id] for each in jobs[:3]] + [[]], "what starts, one by one")
