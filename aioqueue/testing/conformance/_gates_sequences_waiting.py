"""The cases of `SupportsGates` about sequences in strict order, and about those that a failed member keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import BY_TENANT, Worker, expect_held, member, tenant, with_gates
from aioqueue.testing.conformance._tools import (
    HOUR,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    settlement,
    written,
)
from aioqueue.testing.conformance._waiting import after, complete, fail, start_blocker
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._job import JobState, SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["blocking", "strict"]

strict = Subject("strict_sequences")
blocking = Subject("blocking_sequences")

STRICT = member("s", strict=True)
BLOCKING = member("s", block=True)
AT_S = "sequence=s"


@strict()
async def nobody_passes_a_retry(harness: Harness) -> None:
    """Those behind a member that waits for its next attempt wait, too."""
    if with_gates(store := harness.store) is None:
        return
    first, second = job(sequence=STRICT), job(sequence=STRICT)
    await store.insert([first, second])
    claimed = await Worker(store).one()
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR / 2, error=failure()))
    worker = Worker(store)
    equal(await worker.ids(), [], "what runs meanwhile")
    await expect_held(store, AT_S, second.id)
    await harness.age(HOUR * 0.75)
    equal(await worker.in_turn(2), [first.id, second.id], "the order")


@strict()
async def nobody_passes_a_future_one(harness: Harness) -> None:
    """Those behind a member that isn't due yet wait, too; if it's cancelled, they go on."""
    if with_gates(store := harness.store) is None:
        return
    future, second, third = job(sequence=STRICT, delay=HOUR / 2), job(sequence=STRICT), job(sequence=STRICT)
    await store.insert([future, second, third])
    worker = Worker(store)
    equal(await worker.ids(), [], "what runs before the first one is due")
    await store.cancel([future.id], "no")
    equal(await worker.in_turn(2), [second.id, third.id], "the order after that")


@strict()
async def nobody_passes_one_that_waits_for_others(harness: Harness) -> None:
    """Those behind a member that waits for another chain's end wait, too."""
    if with_gates(store := harness.store) is None:
        return
    blocker = await start_blocker(store)
    first, second = after(job(sequence=STRICT), blocker.id), job(sequence=STRICT)
    await store.insert([first, second])
    worker = Worker(store)
    equal(await worker.ids(), [], "what runs while the first one waits")
    await complete(store, blocker)
    equal(await worker.in_turn(2), [first.id, second.id], "the order")


@strict()
async def one_that_isnt_strict_lets_others_pass(harness: Harness) -> None:
    """Each member says for itself whether those behind it wait."""
    if with_gates(store := harness.store) is None:
        return
    loose, second = job(sequence=member("s"), delay=HOUR), job(sequence=STRICT, delay=HOUR)
    third = job(sequence=STRICT)
    await store.insert([loose, third])
    await insert_one(store, second)
    worker = Worker(store)
    claimed = await worker.one()
    equal(claimed.id, third.id, "what passes")
    last = await insert_one(store, job(sequence=member("s")))
    await complete(store, claimed)
    equal(await worker.ids(), [], "what passes a strict one")
    await expect_held(store, AT_S, last)


@strict()
async def a_failed_one_is_over(harness: Harness) -> None:
    """Nobody waits for what has failed for good."""
    if with_gates(store := harness.store) is None:
        return
    first, second = job(sequence=STRICT), job(sequence=STRICT)
    await store.insert([first, second])
    worker = Worker(store)
    await fail(store, await worker.one())
    equal(await worker.ids(), [second.id], "what runs after that")


@strict()
async def types_say_so(harness: Harness) -> None:
    """For the jobs of a type whose sequences are strict it's as if each call said so."""
    if with_gates(store := harness.store) is None:
        return
    rules = {"a": GateRules(type="a", sequence_by=BY_TENANT, strict=True)}
    first, second = job(payload=tenant("x")), job(payload=tenant("x"))
    await insert_one(store, first)
    await insert_one(store, second)
    claimed = await Worker(store, rules).one()
    equal(claimed.id, first.id, "what runs")
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=HOUR / 2, error=failure()))
    equal(await Worker(store, rules).ids(), [], "what runs meanwhile")
    await expect_held(store, 'sequence=a="x"', second.id)


async def _failed(store: Store) -> tuple[UUID, UUID, UUID]:
    """A failed member that keeps its sequence, and two that wait behind it."""
    jobs = [job(sequence=BLOCKING) for _ in range(3)]
    await store.insert(jobs)
    await fail(store, await Worker(store).one())
    equal(await Worker(store).ids(), [], "what runs behind one that has failed")
    await expect_held(store, AT_S, jobs[1].id, jobs[2].id)
    return jobs[0].id, jobs[1].id, jobs[2].id


@blocking()
async def a_failed_member_keeps_it(harness: Harness) -> None:
    """Until somebody says that it's to go on; listeners hear of that."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    _, second, third = await _failed(store)
    equal(list(await gated.resume_sequences(["t"])), [False], "another sequence")
    with listening(store) as heard:
        equal(list(await gated.resume_sequences(["s"])), [True], "the sequence")
        await heard.wait(lambda each: each.gates or each.types is None, "a sequence that goes on")
    equal(list(await gated.resume_sequences(["s"])), [False], "the sequence, a second time")
    equal(await Worker(store).in_turn(2), [second, third], "the order after that")


@blocking()
async def a_retry_lets_it_go_on(harness: Harness) -> None:
    """The member that has failed comes first, and if it fails again, it keeps the sequence again."""
    if with_gates(store := harness.store) is None:
        return
    first, second, third = await _failed(store)
    equal(list(await store.retry([first])), [Changed.DONE], "what became of the retry")
    worker = Worker(store)
    claimed = await worker.one()
    equal(claimed.id, first, "what runs first")
    await fail(store, claimed)
    equal(await worker.ids(), [], "what runs when it has failed again")
    await store.retry([first])
    equal(await worker.in_turn(3), [first, second, third], "the order in the end")


@blocking()
async def a_deletion_lets_it_go_on(harness: Harness) -> None:
    """Of the member that has failed, by whomever."""
    if with_gates(store := harness.store) is None:
        return
    first, second, third = await _failed(store)
    await store.delete([first])
    equal(await Worker(store).in_turn(2), [second, third], "the order")


@blocking()
async def a_row_that_is_gone_lets_it_go_on(harness: Harness) -> None:
    """The failed member's row was deleted with SQL."""
    if with_gates(store := harness.store) is None:
        return
    first, second, third = await _failed(store)
    await harness.erase(first)
    equal(await Worker(store).in_turn(2), [second, third], "the order")


@blocking()
async def one_that_was_cancelled_keeps_nobody(harness: Harness) -> None:
    """Nor does one that has completed: only what has failed for good."""
    if with_gates(store := harness.store) is None:
        return
    jobs = [job(sequence=BLOCKING) for _ in range(3)]
    await store.insert(jobs)
    worker = Worker(store)
    claimed = await worker.one()
    await store.cancel([claimed.id], "no")
    await written(store, settlement(claimed, SettlementKind.CANCELLED, error=failure()))
    equal(await worker.in_turn(2), [jobs[1].id, jobs[2].id], "the order after one that was cancelled")


@blocking()
async def it_keeps_those_that_come_later(harness: Harness) -> None:
    """A job that is inserted into a sequence that is kept waits, too; other sequences go on."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    _, second, third = await _failed(store)
    last, other = job(sequence=member("s")), job(sequence=member("t"))
    await store.insert([last, other])
    worker = Worker(store)
    claimed = await worker.one()
    equal(claimed.id, other.id, "what runs")
    await complete(store, claimed)
    await expect_state(store, last.id, JobState.HELD)
    await gated.resume_sequences(["s"])
    equal(await worker.in_turn(3), [second, third, last.id], "the order after that")


@blocking()
async def a_lost_worker_keeps_it(harness: Harness) -> None:
    """One that fails since its worker was lost at the last attempt keeps its sequence like any other."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert([job(sequence=BLOCKING), second := job(sequence=BLOCKING)])
    await Worker(store).one()
    await harness.age(2 * HOUR)
    (taken,) = await store.take_expired(10)
    await written(store, settlement(taken, SettlementKind.FAILED, error=failure()), orphaned=True)
    equal(await Worker(store).ids(), [], "what runs after that")
    await expect_held(store, AT_S, second.id)
