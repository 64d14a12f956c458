"""The cases of `SupportsGates` about looking: who runs at a gate, who waits, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, limit_of, member, rate_of, tenant, with_gates
from aioqueue.testing.conformance._pauses import until_in
from aioqueue.testing.conformance._tools import HOUR, check, equal, failure, job, near, settlement, written
from aioqueue.testing.conformance._waiting import complete, ending, fail
from aioqueue.vocabulary._gates import GateKind, GateRules, GateStatus
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("gate_statuses")


@subject()
async def a_limit_says_who_runs_and_waits(harness: Harness) -> None:
    """Each gate for itself, ten of those that run by their ids; gates where nobody is are empty."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 12)])
    rules = {"a": GateRules(type="a", limit=True, limit_by=BY_TENANT)}
    await store.insert(jobs := [job(payload=tenant("x")) for _ in range(15)])
    claimed = await Worker(store, rules).claim()
    one, other, unknown = await gated.gate_statuses(['job:a="x"', 'job:a="y"', "stripe"])
    equal((one.gate, one.kind, one.places, one.per), ('job:a="x"', GateKind.LIMIT, 12, None), "a limit")
    equal((one.count, one.waiting, len(one.running)), (12, 3, 10), "how many run, wait, and are named")
    check(set(one.running) <= {each.id for each in claimed} < {each.id for each in jobs}, f"who runs: {one.running!r}")
    equal(other, GateStatus(gate='job:a="y"', kind=GateKind.LIMIT, places=12), "one of another value")
    equal(unknown, GateStatus(gate="stripe", kind=GateKind.LIMIT), "one that isn't limited")


@subject()
async def a_rate_says_when_the_next_may_start(harness: Harness) -> None:
    """While none may start."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 2, HOUR)])
    worker = Worker(store, {"a": GateRules(type="a", rate=True)})
    await store.insert([job() for _ in range(3)])
    (status,) = await gated.gate_statuses(["rate:a"])
    equal((status.kind, status.places, status.per, status.next_at), (GateKind.RATE, 2, HOUR, None), "a rate before any start")
    equal(len(await worker.claim()), 2, "how many start")
    (status,) = await gated.gate_statuses(["rate:a"])
    equal((status.waiting, status.count, status.running), (1, 0, ()), "who waits and runs at a rate")
    if status.next_at is None:
        raise AssertionError("a rate that allows no start must say when it does")
    near(status.next_at, await until_in(store, HOUR / 2), "the time of the next start")


@subject()
async def a_rate_of_none_says_no_time(harness: Harness) -> None:
    """Where nothing is ever started."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 0, HOUR)])
    await store.insert([job()])
    equal(await Worker(store, {"a": GateRules(type="a", rate=True)}).ids(), [], "what starts")
    (status,) = await gated.gate_statuses(["rate:a"])
    equal((status.places, status.waiting, status.next_at), (0, 1, None), "a rate of none")


@subject()
async def a_sequence_says_whose_turn_it_is(harness: Harness) -> None:
    """Who runs; else whose turn it is; else whom it waits for."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    jobs = [job(sequence=member("s")), job(sequence=member("s", block=True)), job(sequence=member("s"))]
    await store.insert(jobs)
    worker = Worker(store)
    gate = "sequence=s"
    (status,) = await gated.gate_statuses([gate])
    equal((status.kind, status.head, status.blocked_by), (GateKind.SEQUENCE, jobs[0].id, None), "before the first one runs")
    claimed = await worker.one()
    equal(await worker.ids(), [], "what runs beside it")
    (status,) = await gated.gate_statuses([gate])
    equal((status.running, status.count, status.waiting), ((jobs[0].id,), 1, 2), "while the first one runs")
    equal((status.head, status.blocked_by), (None, None), "whose turn it is then")
    await complete(store, claimed)
    await fail(store, await worker.one())
    equal(await worker.ids(), [], "what runs after one that keeps it")
    (status,) = await gated.gate_statuses([gate])
    equal((status.head, status.blocked_by, status.waiting), (None, jobs[1].id, 1), "while it's kept")
    await gated.resume_sequences(["s"])
    (status,) = await gated.gate_statuses([gate])
    equal((status.head, status.blocked_by), (jobs[2].id, None), "after it was resumed")


@subject()
async def a_sequence_says_which_strict_member_is_awaited(harness: Harness) -> None:
    """Until it may run: those behind it wait for it."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    jobs = [job(sequence=member("s")), job(sequence=member("s", strict=True), delay=HOUR), job(sequence=member("s"))]
    await store.insert(jobs)
    worker = Worker(store)
    claimed = await worker.one()
    (status,) = await gated.gate_statuses(["sequence=s"])
    equal((status.running, status.head, status.awaited), ((jobs[0].id,), None, None), "while one before it runs")
    await complete(store, claimed)
    equal(await worker.ids(), [], "what runs before the strict one is due")
    (status,) = await gated.gate_statuses(["sequence=s"])
    equal((status.head, status.awaited, status.waiting), (None, jobs[1].id, 1), "who is awaited")
    await harness.age(HOUR * 2)
    (status,) = await gated.gate_statuses(["sequence=s"])
    equal((status.head, status.awaited), (jobs[1].id, None), "once it's due")


@subject()
async def kept_sequences_are_listed(harness: Harness) -> None:
    """By name, with the job that failed, also where it's a later one of its chain, and how many wait behind it."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    alone, first, free = job(sequence=member("t", block=True)), job(sequence=member("s", block=True)), job(sequence=member("u"))
    behind = [job(sequence=member(name, block=True)) for name in ("s", "s", "t", "u")]
    await store.insert([alone, first, free, *behind])
    worker = Worker(store)
    equal(list(await gated.kept_sequences()), [], "before anything has failed")
    claimed = {each.id: each for each in await worker.claim(10)}
    await fail(store, claimed[alone.id])
    await fail(store, claimed[free.id])
    await written(store, settlement(claimed[first.id], SettlementKind.CONTINUED, next=(step := job())))
    for each in await worker.claim():
        await (fail if each.id == step.id else complete)(store, each)
    told = [(each.name, each.blocked_by, each.waiting) for each in await gated.kept_sequences()]
    equal(told, [("s", step.id, 2), ("t", alone.id, 1)], "those that are kept")
    await store.end([ending(behind[0].id, SettlementKind.FAILED, error=failure())])
    told = [(each.name, each.blocked_by, each.waiting) for each in await gated.kept_sequences()]
    equal(told, [("s", step.id, 1), ("t", alone.id, 1)], "when another one of them has failed, too")
    await gated.resume_sequences(["s"])
    equal([each.name for each in await gated.kept_sequences()], ["t"], "after one has gone on")


@subject()
async def a_lane_says_who_waits(harness: Harness) -> None:
    """For its turn."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await store.insert([job(payload=tenant("x")) for _ in range(3)])
    await Worker(store, {"a": GateRules(type="a", fair_by=BY_TENANT)}).claim(1)
    (status,) = await gated.gate_statuses(['fair:a="x"'])
    equal((status.kind, status.waiting, status.places), (GateKind.FAIR, 2, None), "a lane")


@subject()
async def nothing_is_asked_for(harness: Harness) -> None:
    """The answer is empty then."""
    if (gated := with_gates(harness.store)) is None:
        return
    equal(list(await gated.gate_statuses([])), [], "no gates")
    equal(list(await gated.list_limits()), [], "no limits")
    equal(list(await gated.remove_limits([])), [], "none removed")
    equal(list(await gated.resume_sequences([])), [], "none resumed")
