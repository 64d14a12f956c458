"""The cases of `SupportsGates` about limits: never more at once, and no place that stays empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import ONE_BY_TENANT, ONE_OF_A, Worker, expect_held, limit_of, tenant, with_gates
from aioqueue.testing.conformance._tools import HOUR, check, equal, expect_state, insert_one, job, listening
from aioqueue.testing.conformance._waiting import complete, ends_well
from aioqueue.vocabulary._gates import By, GateRules
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._quota import Quota

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("limits")


@subject()
async def no_more_run_than_that(harness: Harness) -> None:
    """However many claims are made; the others are held at the gate, and say so. Nothing of it counts as a start."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 2)])
    await store.insert(jobs := [job() for _ in range(5)])
    equal([found.state for each in jobs if (found := (await store.fetch([each.id]))[0])], [JobState.READY] * 5, "at first")
    worker = Worker(store, ONE_OF_A)
    first = await worker.claim()
    equal([each.id for each in first], [each.id for each in jobs[:2]], "what runs")
    await expect_held(store, "job:a", *(each.id for each in jobs[2:]))
    found = await expect_state(store, jobs[2].id, JobState.HELD)
    equal((found.attempt, found.started_at, found.open_blockers, found.worker), (0, None, 0, None), "its attempts")
    equal(await Worker(store, ONE_OF_A).ids(), [], "what another worker claims")
    equal((await worker.due()).job, None, "seconds until there is something to do")


@subject()
async def a_place_that_is_left_is_taken(harness: Harness) -> None:
    """By the one that has waited for longest, in the order of claims: with the next claim, of whichever worker."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    first = await insert_one(store, job())
    worker = Worker(store, ONE_OF_A)
    claimed = await worker.one()
    later, urgent, latest = job(), job(priority=1), job()
    await store.insert([later, urgent, latest])
    equal(await worker.ids(), [], "what is claimed while one runs")
    with listening(await harness.second_store()) as heard:
        await complete(store, claimed)
        await heard.wait(lambda each: each.gates or each.types is None, "a gate that was left")
    equal((await worker.due()).job, 0.0, "seconds until there is something to do")
    other = Worker(await harness.second_store(), ONE_OF_A)
    equal([first, *await other.in_turn(3)], [first, urgent.id, later.id, latest.id], "the order")


@subject()
async def each_value_has_its_own(harness: Harness) -> None:
    """Where an argument tells them apart; absent, null, numbers and texts are different values."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    payloads = [b"{}", b'{"tenant": null}', b'{"tenant": 1}', b'{"tenant": "1"}', b'{"tenant": true}', tenant("acme")]
    await store.insert(jobs := [job(payload=each) for each in payloads] + [job(payload=each) for each in payloads])
    worker = Worker(store, ONE_BY_TENANT)
    claimed = await worker.claim()
    equal([each.id for each in claimed], [each.id for each in jobs[: len(payloads)]], "what runs")
    gates = ["job:a", "job:a=null", "job:a=1", 'job:a="1"', "job:a=true", 'job:a="acme"']
    for gate, waiting in zip(gates, jobs[len(payloads) :], strict=True):
        await expect_held(store, gate, waiting.id)
    await complete(store, claimed[-1])
    equal(await worker.ids(), [jobs[-1].id], "what runs after one of them")


@subject()
async def a_field_of_the_metadata_tells_them_apart(harness: Harness) -> None:
    """Where the rules say so: the arguments aren't looked at then."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    rules = {"a": GateRules(type="a", limit=True, limit_by=By("tenant", metadata=True))}
    one, other = job(metadata=tenant("one"), payload=tenant("x")), job(metadata=tenant("other"), payload=tenant("x"))
    again = job(metadata=tenant("one"), payload=tenant("y"))
    await store.insert([one, other, again])
    equal(sorted(await Worker(store, rules).ids()), sorted([one.id, other.id]), "what runs")
    await expect_held(store, 'job:a="one"', again.id)


@subject()
async def without_a_limit_all_run(harness: Harness) -> None:
    """A type's rules say where its jobs wait; how many may run says the stored limit, and without one any number may."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert(jobs := [job() for _ in range(4)])
    equal(await Worker(store, ONE_OF_A).ids(), [each.id for each in jobs], "what runs")


@subject()
async def nothing_runs_at_a_limit_of_none(harness: Harness) -> None:
    """They're held until it's raised."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 0)])
    await store.insert(jobs := [job(), job()])
    worker = Worker(store, ONE_OF_A)
    equal(await worker.ids(), [], "what runs")
    await expect_held(store, "job:a", *(each.id for each in jobs))
    await gated.put_limits([limit_of("a", 1)])
    equal(await worker.ids(), [jobs[0].id], "what runs after that")


@subject()
async def other_types_are_not_held_up(harness: Harness) -> None:
    """Whatever waits at the gates of one type, even if it's more urgent and there are many of them."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert([job("a", priority=1) for _ in range(250)])
    plain = await insert_one(store, job("b"))
    worker = Worker(store, ONE_OF_A, ["a", "b"])
    claimed = await worker.claim(5)
    equal([each.type for each in claimed], ["a", "b"], "the types of what runs")
    equal(claimed[1].id, plain, "the other one")


@subject()
async def what_has_no_slot_is_not_held(harness: Harness) -> None:
    """Those that could run stay ready if a claim, or their quota, has no room for them: another worker takes them."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 3)])
    await store.insert(jobs := [job() for _ in range(4)])
    worker = Worker(store, ONE_OF_A)
    equal(await worker.ids(1), [jobs[0].id], "what a claim for one slot takes")
    await expect_state(store, jobs[1].id, JobState.READY)
    lease_id = await worker.lease()
    some = await store.claim(lease_id, ["a"], 10, quotas=[Quota(frozenset({"a"}), 1)], gates=ONE_OF_A)
    equal([each.id for each in some], [jobs[1].id], "what a claim with a quota of one takes")
    equal(await Worker(await harness.second_store(), ONE_OF_A).ids(), [jobs[2].id], "what another worker takes")


@subject()
async def future_ones_and_retries_wait_without_a_place(harness: Harness) -> None:
    """They're scheduled until they're due, and then let through or held like others."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    future = await insert_one(store, job(delay=HOUR))
    now = await insert_one(store, job())
    worker = Worker(store, ONE_OF_A)
    claimed = await worker.one()
    equal(claimed.id, now, "what runs")
    await expect_state(store, future, JobState.SCHEDULED)
    await harness.age(2 * HOUR)
    other = Worker(store, ONE_OF_A)
    equal(await other.ids(), [], "what runs when the other one is due, too")
    await expect_held(store, "job:a", future)


@subject()
async def an_odd_row_holds_up_no_other(harness: Harness) -> None:
    """Where a payload can't be read there's no value, and those behind it at other gates run."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    odd, sound = job(payload=b'{"tenant": "\\u0000"}'), job(payload=tenant("t"))
    await store.insert([odd, sound])
    claimed = await Worker(store, ONE_BY_TENANT).ids()
    equal(sorted(claimed), sorted([odd.id, sound.id]), "what runs")


@subject()
async def values_are_told_apart_as_json(harness: Harness) -> None:
    """The order of an object's fields doesn't matter; long values differ like short ones, though the gate's name is short."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    long = "x" * 10_000
    values = ['{"p": 1, "q": 2}', '{"q": 2, "p": 1}', f'"{long}y"', f'"{long}z"', f'"{long}y"', "1", "1.0", str(10**30)]
    await store.insert(jobs := [job(payload=f'{{"tenant": {each}}}'.encode()) for each in values])
    claimed = await Worker(store, ONE_BY_TENANT).ids()
    equal(sorted(claimed), sorted(jobs[place].id for place in (0, 2, 3, 5, 6, 7)), "what runs")
    held = await expect_state(store, jobs[4].id, JobState.HELD)
    check(len(held.held_by or "") < 100, f"the name of a gate must be short: {held.held_by!r}")


@subject()
async def older_names_count_as_the_present_one(harness: Harness) -> None:
    """Jobs that are stored under an alias of their type wait at the same gates."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("new", 1)])
    rules = {name: GateRules(type="new", limit=True) for name in ("new", "old")}
    await store.insert(jobs := [job("old"), job("new")])
    worker = Worker(store, rules)
    claimed = await worker.one()
    other = next(each.id for each in jobs if each.id != claimed.id)
    await expect_held(store, "job:new", other)
    await complete(store, claimed)
    equal(await worker.ids(), [other], "what runs after that")


@subject()
async def claims_that_know_no_gates_leave_what_is_held(harness: Harness) -> None:
    """As those of code from before do."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert([job(), held := job()])
    worker = Worker(store, ONE_OF_A)
    await worker.one()
    equal(list(await store.claim(await worker.lease(), ["a"], 10)), [], "what such a claim gets")
    await expect_held(store, "job:a", held.id)


@subject()
async def dry_runs_are_limited_too(harness: Harness) -> None:
    """Those of a worker that only tries jobs count, and are held."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    await store.insert(jobs := [job(), job()])
    lease_id = await store.open_lease("dry", HOUR)
    claimed = await store.claim(lease_id, ["a"], 10, dry_run=True, gates=ONE_OF_A)
    equal([each.id for each in claimed], [jobs[0].id], "what such a claim gets")
    equal(await Worker(store, ONE_OF_A).ids(), [], "what another one gets")
    await expect_held(store, "job:a", jobs[1].id)


@subject()
async def a_more_urgent_one_takes_the_place(harness: Harness) -> None:
    """Who was let come when a place was left is held again if somebody more urgent has come meanwhile, and isn't forgotten."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    worker = Worker(store, ONE_OF_A)
    await insert_one(store, job())
    running = await worker.one()
    late = await insert_one(store, job(priority=3))
    equal(await worker.ids(), [], "what is claimed while one runs")
    await complete(store, running)
    urgent = await insert_one(store, job(priority=1))
    equal(await worker.in_turn(2), [urgent, late], "the order")


@subject()
async def many_places_are_left_at_once(harness: Harness) -> None:
    """As many as were left are taken, in bounded portions."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 230)])
    await store.insert([job() for _ in range(460)])
    worker = Worker(store, ONE_OF_A)
    running = await worker.claim(1000)
    equal(len(running), 230, "how many run at first")
    await store.settle([ends_well(each) for each in running])
    equal(len(await worker.claim(1000)), 230, "how many run after those")
