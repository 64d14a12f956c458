"""The cases of `SupportsGates` about turns: of a type whose values take turns none waits behind the backlog of another."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, limit_of, tenant, with_gates
from aioqueue.testing.conformance._tools import HOUR, about, check, equal, expect_state, insert_one, job, states_of
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._pauses import NewPause, PauseTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["subject"]

subject = Subject("fairness")

FAIR = {"a": GateRules(type="a", fair_by=BY_TENANT)}


def _tenants(claimed: Sequence[ClaimedJob]) -> Counter[bytes]:
    return Counter(each.payload for each in claimed)


@subject()
async def one_of_each_comes_before_the_second_of_any(harness: Harness) -> None:
    """However many jobs of another value are older."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert([job(payload=tenant("big")) for _ in range(30)])
    await harness.age(10)
    await store.insert([job(payload=tenant("small")), job(payload=tenant("little")), job(payload=tenant("little"))])
    worker = Worker(store, FAIR)
    claimed = await worker.claim(4)
    check(
        set(_tenants(claimed)) == {tenant("big"), tenant("small"), tenant("little")}, f"who's in the first claim: {claimed!r}"
    )
    rest = _tenants(await worker.claim(3))
    equal(rest[tenant("little")] + _tenants(claimed)[tenant("little")], 2, "how many of one with two have come")


@subject()
async def the_oldest_that_waits_for_its_turn_counts_as_ready(harness: Harness) -> None:
    """It's shown as held, and only the slots of workers keep it; what is held at a limit isn't late."""
    if (gates := with_gates(store := harness.store)) is None:
        return
    await gates.put_limits([limit_of("limited", 0)])
    first = [job(payload=tenant("big")), job(payload=tenant("big"), priority=3), job("limited")]
    await store.insert(first)
    await harness.age(HOUR)
    small = job(payload=tenant("small"))
    await store.insert([small, job("limited")])
    await Worker(store, {"limited": GateRules(type="limited", limit=True)}).claim()
    worker = Worker(store, FAIR)
    (claimed,) = await worker.claim(1)
    equal(claimed.id, first[0].id, "who is first")
    equal(await states_of(store, first[1].id, small.id), [JobState.HELD] * 2, "the states of what waits for its turn")
    stats = await store.stats()
    about(stats.types["a"].oldest_ready, HOUR, "the age of what waits for its turn")
    equal(stats.types["limited"].oldest_ready, None, "the age of what waits at a limit")


@subject()
async def a_round_goes_on_where_the_last_claim_ended(harness: Harness) -> None:
    """With fewer slots than values, each has had its turn after one round."""
    if with_gates(store := harness.store) is None:
        return
    names = ["t1", "t2", "t3", "t4", "t5", "t6"]
    await store.insert([job(payload=tenant(name)) for name in names for _ in range(5)])
    worker = Worker(store, FAIR)
    served: list[ClaimedJob] = []
    for _ in range(3):
        served += await worker.claim(2)
    equal(_tenants(served), Counter({tenant(name): 1 for name in names}), "who had a turn in a round")
    for _ in range(6):
        served += await worker.claim(1)
    equal(_tenants(served), Counter({tenant(name): 2 for name in names}), "who had a turn in two rounds")


@subject()
async def within_a_value_the_order_holds(harness: Harness) -> None:
    """By priority, and then by due time."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(payload=tenant("x"), priority=priority) for priority in (2, 1, 2, 3)]
    for each in jobs:
        await insert_one(store, each)
    worker = Worker(store, FAIR)
    order = [(await worker.claim(1))[0].id for _ in jobs]
    equal(order, [jobs[1].id, jobs[0].id, jobs[2].id, jobs[3].id], "the order")


@subject()
async def what_waits_for_its_turn_is_due(harness: Harness) -> None:
    """Workers don't sleep while something waits, and all of it comes in the end; future ones only when they're due."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert([job(payload=tenant(name)) for name in ("x", "x", "y", "x")])
    future = await insert_one(store, job(payload=tenant("z"), delay=HOUR / 2))
    worker = Worker(store, FAIR)
    await worker.claim(1)
    equal((await worker.due()).job, 0.0, "seconds until there is something to do")
    equal(len(await worker.claim()), 3, "how many come then")
    await expect_state(store, future, JobState.SCHEDULED)
    await harness.age(HOUR * 0.75)
    equal(await worker.ids(), [future], "what comes when it's due")


@subject()
async def a_limit_counts_behind_the_turn(harness: Harness) -> None:
    """Whose turn it is and has no place is held at the limit, and doesn't keep the others."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    rules = {"a": GateRules(type="a", limit=True, limit_by=BY_TENANT, fair_by=BY_TENANT)}
    await store.insert([job(payload=tenant(name)) for name in ("x", "x", "x", "y", "z")])
    worker = Worker(store, rules)
    claimed = await worker.claim(10)
    equal(_tenants(claimed), Counter(map(tenant, "xyz")), "who runs")
    for _ in range(2):
        await complete(store, next(each for each in claimed if each.payload == tenant("x")))
        claimed = await worker.claim(10)
        equal(_tenants(claimed), Counter([tenant("x")]), "who runs after one of them")


@subject()
async def turns_go_on_at_a_limit_of_all(harness: Harness) -> None:
    """A limit without values holds few of the type: one who comes later isn't behind the backlog of another there."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    rules = {"a": GateRules(type="a", limit=True, fair_by=BY_TENANT)}
    await store.insert([job(payload=tenant("big")) for _ in range(40)])
    await harness.age(10)
    worker = Worker(store, rules)
    running = await worker.claim(4)
    await store.insert([job(payload=tenant("small"))])
    for place in range(41):
        equal(len(running), 1, f"how many run at once, after {place}")
        if running[0].payload == tenant("small"):
            check(place < 12, f"who came later ran as number {place}")
        await complete(store, running[0])
        running = await worker.claim(4)
    equal(running, [], "what runs after all of them")


@subject()
async def a_paused_type_has_no_turn(harness: Harness) -> None:
    """What was sorted into turns before isn't started while its type is paused, nor are workers woken for it."""
    store = harness.store
    if with_gates(store) is None or not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await base.insert([job(payload=tenant(name)) for name in ("x", "x", "y")])
    worker = Worker(base, FAIR)
    await worker.claim(1)
    await store.pause([NewPause(target=PauseTarget.TYPE, value="a")])
    equal(await worker.ids(), [], "what is claimed while it's paused")
    equal((await worker.due()).job, None, "seconds until there is something to do")
    await store.resume(PauseTarget.TYPE, ["a"])
    equal(len(await worker.claim()), 2, "how many come after that")


@subject()
async def operators_may_end_what_waits_for_its_turn(harness: Harness) -> None:
    """It's cancelled and deleted, and expires, like what is ready."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(payload=tenant("x"), expires=each) for each in (None, None, None, 60.0, None)]
    await store.insert(jobs)
    worker = Worker(store, FAIR)
    equal(await worker.ids(1), [jobs[0].id], "what comes first")
    await store.cancel([jobs[1].id], "no")
    await store.delete([jobs[2].id])
    await harness.age(120)
    await store.tend(100)
    await expect_state(store, jobs[3].id, JobState.CANCELLED)
    equal(await worker.ids(), [jobs[4].id], "what is left")


@subject()
async def a_type_that_isnt_fair_any_more_leaves_none_behind(harness: Harness) -> None:
    """What waits for its turn when a later version of the code has no turns comes all the same."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert([job(payload=tenant("x")) for _ in range(3)])
    await Worker(store, FAIR).claim(1)
    worker = Worker(store, {}, ["a"])
    left = 2
    for _ in range(10):
        left -= len(await worker.claim())
        if not left:
            return
        await store.tend(100)
    raise AssertionError(f"{left} jobs still wait for a turn that nobody gives")
