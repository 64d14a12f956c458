"""The cases of `SupportsGates` about how jobs come into sequences, and about members that never run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import Worker, member, with_gates
from aioqueue.testing.conformance._tools import (
    OnPurposeError,
    check,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    rolled_back,
    settlement,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import complete, ending, ends_well
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("sequence_doors")

S = member("s")
STRICT = member("s", strict=True)


@subject()
async def children_of_a_settlement(harness: Harness) -> None:
    """What is stored with the end of an attempt is in its sequence, in its order, behind what was there before."""
    if with_gates(store := harness.store) is None:
        return
    first = await insert_one(store, job(sequence=S))
    parent = await start_one(store, await store.open_lease("w", 3600), job("parent"))
    children = [job(sequence=S), job(sequence=S)]
    await written(store, settlement(parent, SettlementKind.COMPLETED, output=b"1", children=tuple(children)))
    equal(await Worker(store).in_turn(3), [first, *(each.id for each in children)], "the order")


@subject()
async def a_next_job_with_a_sequence(harness: Harness) -> None:
    """A chain that is in none may come into one with its next job."""
    if with_gates(store := harness.store) is None:
        return
    parent = await start_one(store, await store.open_lease("w", 3600), job("parent"))
    first = await insert_one(store, job(sequence=S))
    following = job(sequence=S)
    await written(store, settlement(parent, SettlementKind.CONTINUED, next=following))
    equal(await Worker(store).in_turn(2), [first, following.id], "the order")


@subject()
async def an_end_from_outside_with_a_next_job(harness: Harness) -> None:
    """Whoever lets a chain go on, it keeps its place."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert([first := job(sequence=S), second := job(sequence=S)])
    worker = Worker(store)
    equal((await worker.one()).id, first.id, "what runs")
    await store.end([ending(first.id, SettlementKind.CONTINUED, next=(following := job()))])
    equal(await worker.in_turn(2), [following.id, second.id], "the order")


@subject()
async def the_order_of_a_batch_counts_whatever_it_asks(harness: Harness) -> None:
    """Also where keys are looked at, ids chosen, or others replaced: one that is in it by that only has its place then."""
    if with_gates(store := harness.store) is None:
        return
    replaces = Unique(on_conflict="replace")
    asked = [(replaces, False), (Unique(window=600.0), False), (Unique(), False), (None, True), (None, False)] * 3
    for apart in (False, True):
        in_none, member_before = (job(key=f"{key} {apart}", unique=replaces) for key in "xy")
        await store.insert([in_none, replace(member_before, sequence=S)])
        jobs = [
            job(key=f"{number} {apart}", sequence=S, unique=unique, chosen_id=chosen)
            for number, (unique, chosen) in enumerate(asked)
        ][::-1]
        places = [job(key=f"{key} {apart}", unique=replaces, sequence=S) for key in "xy"]
        await store.insert([*jobs[:7], *places, *jobs[7:]], apart=apart)
        expected = [member_before, *jobs[:7], in_none, *jobs[7:]]
        equal(await Worker(store).in_turn(len(expected)), [each.id for each in expected], "the order")


@subject()
async def one_that_was_not_stored_keeps_nobody(harness: Harness) -> None:
    """Since its unique key was taken, since it was stored already, or since its transaction was rolled back."""
    if with_gates(store := harness.store) is None:
        return
    first = job(key="k", unique=Unique(), sequence=STRICT)
    await insert_one(store, first)
    (inserted,) = await store.insert([job(key="k", unique=Unique(), sequence=STRICT)])
    equal((inserted.id, inserted.created), (first.id, False), "one with the same key")
    with rolled_back():
        async with store.transaction() as tx:
            await tx.insert([job(sequence=STRICT)])
            raise OnPurposeError
    await store.insert([first], repeated=True)
    last = await insert_one(store, job(sequence=STRICT))
    worker = Worker(store)
    claimed = await worker.one()
    equal(claimed.id, first.id, "what runs first")
    await complete(store, claimed)
    (repeated,) = await store.insert([first], repeated=True)
    check(not repeated.created, "the first one must not be stored again")
    equal(await worker.ids(), [last], "what runs after it")


@subject()
async def one_that_expires_lets_the_next_come(harness: Harness) -> None:
    """The first one hasn't been started in time."""
    if with_gates(store := harness.store) is None:
        return
    late, second = job("late", sequence=S, expires=60.0), job(sequence=S)
    await store.insert([late, second])
    worker = Worker(store)
    equal(await worker.ids(), [], "what runs while it's the first one's turn")
    await harness.age(120)
    await store.tend(100)
    await expect_state(store, late.id, JobState.CANCELLED)
    equal(await worker.ids(), [second.id], "what runs after that")


@subject()
async def a_whole_batch_of_ends(harness: Harness) -> None:
    """Many sequences go on after one settlement of all that runs; a retry among them has its turn when it's due."""
    if with_gates(store := harness.store) is None:
        return
    names = [f"s{number}" for number in range(20)]
    firsts, seconds = ([job(sequence=member(name)) for name in names] for _ in range(2))
    await store.insert([*firsts, *seconds])
    worker = Worker(store)
    claimed = await worker.claim()
    equal(sorted(each.id for each in claimed), sorted(each.id for each in firsts), "what runs at first")
    again = settlement(claimed[0], SettlementKind.RETRIED, delay=600.0, error=failure())
    await store.settle([again, *(ends_well(each) for each in claimed[1:])])
    equal(sorted(await worker.ids()), sorted(each.id for each in seconds), "what runs after those")
