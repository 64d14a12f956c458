"""The cases of `SupportsGates` about sequences with members whose types or keys are paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import Worker, expect_held, member, with_gates
from aioqueue.testing.conformance._tools import equal, job
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._pauses import NewPause, PauseTarget

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("paused_sequences")

S = member("s")
STRICT = member("s", strict=True)
TYPE_P = NewPause(target=PauseTarget.TYPE, value="p")
KEY_K = NewPause(target=PauseTarget.KEY, value="k")


def _pausing(harness: Harness) -> SupportsPauses | None:
    """The store, if it has pauses and gates."""
    store = harness.store
    return store if with_gates(harness.store) is not None and isinstance(store, SupportsPauses) else None


@subject()
async def a_paused_type_lets_others_pass(harness: Harness) -> None:
    """As one does that waits for its next attempt. When its pause is over it's the first again."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    await pausing.pause([TYPE_P])
    await store.insert([first := job("p", sequence=S), second := job(sequence=S), third := job(sequence=S)])
    worker = Worker(store, {}, ["a", "p"])
    claimed = await worker.one()
    equal(claimed.id, second.id, "what passes")
    await pausing.resume(PauseTarget.TYPE, ["p"])
    equal(await worker.ids(), [], "what runs beside it when the pause is over")
    await complete(store, claimed)
    equal(await worker.in_turn(2), [first.id, third.id], "the order after that")


@subject()
async def one_that_is_held_lets_others_pass(harness: Harness) -> None:
    """Its type is paused while it waits in the sequence; when the pause is over, and nobody else is there, it comes."""
    store = harness.store
    if (pausing := _pausing(harness)) is None or (gated := with_gates(store)) is None:
        return
    await store.insert([job(sequence=S), paused := job("p", sequence=S), third := job(sequence=S)])
    worker = Worker(store, {}, ["a", "p"])
    running = await worker.one()
    await pausing.pause([TYPE_P])
    await complete(store, running)
    (status,) = await gated.gate_statuses(["sequence=s"])
    equal(status.head, third.id, "whose turn is told")
    running = await worker.one()
    equal(running.id, third.id, "what passes")
    await complete(store, running)
    equal(await worker.ids(), [], "what runs while it's paused")
    await pausing.resume(PauseTarget.TYPE, ["p"])
    equal(await worker.ids(), [paused.id], "what runs when the pause is over, before any upkeep")


@subject()
async def one_that_has_come_lets_others_pass(harness: Harness) -> None:
    """Its type is paused when its turn has come, and nobody has claimed it yet."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    await store.insert([job(sequence=S), come := job("p", sequence=S), third := job(sequence=S)])
    worker, other = Worker(store, {}, ["a", "p"]), Worker(store)
    running = await worker.one()
    await complete(store, running)
    equal(await other.ids(), [], "what a worker claims that doesn't serve the type whose turn it is")
    await pausing.pause([TYPE_P])
    running = await other.one()
    equal(running.id, third.id, "what passes, before any upkeep")
    await pausing.resume(PauseTarget.TYPE, ["p"])
    await complete(store, running)
    equal(await worker.ids(), [come.id], "what runs after that")


@subject()
async def a_pause_of_all_that_is_over_lets_the_first_come(harness: Harness) -> None:
    """What was held before it comes at once, without upkeep."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    everything = NewPause(target=PauseTarget.ALL)
    await store.insert([job(sequence=S), second := job(sequence=S)])
    worker = Worker(store)
    running = await worker.one()
    await pausing.pause([everything])
    await complete(store, running)
    equal(await worker.ids(), [], "what runs while everything is paused")
    await pausing.resume(PauseTarget.ALL, [""])
    equal(await worker.ids(), [second.id], "what runs when the pause is over")


@subject()
async def a_pause_is_seen_in_many_sequences(harness: Harness) -> None:
    """Where their first members' type is paused the next ones come, in portions and without upkeep."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    names = [f"s{number:03}" for number in range(250)]
    await store.insert([job(sequence=member(name)) for name in names])
    worker, rest = Worker(store), Worker(store, {}, ["a", "b"])
    running = await worker.claim(500)
    await store.insert([job("p", sequence=member(name)) for name in names])
    await store.insert([job("b", sequence=member(name)) for name in names])
    equal(await Worker(store, {}, ["a", "b", "p"]).ids(500), [], "what runs beside them")
    for each in running:
        await complete(store, each)
    equal(await worker.ids(), [], "what a worker claims that doesn't serve the type whose turn it is")
    await pausing.pause([TYPE_P])
    equal(len(await rest.ids(500)), len(names), "how many pass")


@subject()
async def a_paused_key_lets_others_pass(harness: Harness) -> None:
    """When its pause is over it's the first again."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    await pausing.pause([KEY_K])
    await store.insert([first := job(key="k", sequence=S), second := job(sequence=S), third := job(sequence=S)])
    worker = Worker(store)
    claimed = await worker.one()
    equal(claimed.id, second.id, "what passes")
    await pausing.resume(PauseTarget.KEY, ["k"])
    await store.tend(100)
    equal(await worker.ids(), [], "what runs beside it when the pause is over")
    await expect_held(store, "sequence=s", first.id)
    await complete(store, claimed)
    equal(await worker.in_turn(2), [first.id, third.id], "the order after that")


@subject()
async def a_paused_key_that_nobody_serves_lets_others_pass(harness: Harness) -> None:
    """Also where no worker has come to the job with the key since it was paused."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    await pausing.pause([KEY_K])
    await store.insert([job("p", key="k", sequence=S), second := job(sequence=S)])
    equal(await Worker(store).ids(), [second.id], "what passes")


@subject()
async def nobody_passes_a_strict_one(harness: Harness) -> None:
    """Those behind a member whose type or key is paused wait, where it's strict."""
    store = harness.store
    if (pausing := _pausing(harness)) is None:
        return
    await pausing.pause([TYPE_P, KEY_K])
    jobs = [job("p", sequence=STRICT), job(key="k", sequence=STRICT), job(sequence=STRICT)]
    await store.insert(jobs)
    worker = Worker(store, {}, ["a", "p"])
    equal(await worker.ids(), [], "what runs while the first one's type is paused")
    await pausing.resume(PauseTarget.TYPE, ["p"])
    await store.tend(100)
    running = await worker.one()
    equal(running.id, jobs[0].id, "what runs then")
    await complete(store, running)
    equal(await worker.ids(), [], "what runs while the second one's key is paused")
    await pausing.resume(PauseTarget.KEY, ["k"])
    await store.tend(100)
    equal(await worker.in_turn(2), [jobs[1].id, jobs[2].id], "the order after that")
