"""The cases of `SupportsGates` about workers that have nothing to do: they sleep, though much is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._gates_tools import ONE_OF_A, Worker, limit_of, member, rate_of, with_gates
from aioqueue.testing.conformance._tools import HOUR, check, equal, insert_one, job
from aioqueue.testing.conformance._waiting import fail
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._pauses import NewPause, PauseTarget

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("idle_at_gates")


async def _sleeps(worker: Worker, why: str) -> None:
    """Raise AssertionError if the worker is told to claim again at once when a claim has given nothing."""
    for _ in range(2):
        equal(await worker.ids(), [], f"what is claimed {why}")
    due = (await worker.due()).job
    check(due is None or due > 1, f"a worker must not be woken at once {why}: {due!r}")


@subject()
async def at_a_limit_of_none(harness: Harness) -> None:
    """Nothing may run."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 0)])
    await store.insert([job(), job()])
    await _sleeps(Worker(store, ONE_OF_A), "at a limit of none")


@subject()
async def until_a_token_that_is_far_away(harness: Harness) -> None:
    """It's known when the next one may start, and it isn't asked for before that."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([rate_of("a", 1, 2 * HOUR)])
    worker = Worker(store, {"a": GateRules(type="a", rate=True)})
    await store.insert([job(), job()])
    equal(len(await worker.ids()), 1, "jobs that start")
    await _sleeps(worker, "before the next token")
    check(((await worker.due()).job or 0) < 3 * HOUR, "a worker must be woken when the next one may start")


@subject()
async def behind_a_failed_member(harness: Harness) -> None:
    """A sequence that somebody has to let go on."""
    if with_gates(store := harness.store) is None:
        return
    await store.insert([job(sequence=member("s", block=True)), job(sequence=member("s"))])
    worker = Worker(store)
    await fail(store, await worker.one())
    await _sleeps(worker, "behind a failed member")


@subject()
async def with_a_paused_type_at_a_free_gate(harness: Harness) -> None:
    """Those that wait there were let come when a place was left, and their type is paused."""
    store = harness.store
    if (gated := with_gates(store)) is None or not isinstance(store, SupportsPauses):
        return
    await gated.put_limits([limit_of("a", 1)])
    base, worker = harness.store, Worker(harness.store, ONE_OF_A)
    await base.insert([job(), job(), job(sequence=member("s")), job(sequence=member("s", strict=True))])
    (running,) = await worker.ids()
    await store.pause([NewPause(target=PauseTarget.TYPE, value="a")])
    await base.delete([running])
    await _sleeps(worker, "while the type is paused")
    await store.resume(PauseTarget.TYPE, ["a"])
    await base.tend(100)
    equal(len(await worker.ids()), 1, "jobs that run when the pause is over")


@subject()
async def with_a_paused_key_at_a_free_gate(harness: Harness) -> None:
    """What is let come is put aside for its key; the next one comes."""
    store = harness.store
    if (gated := with_gates(store)) is None or not isinstance(store, SupportsPauses):
        return
    await gated.put_limits([limit_of("a", 1)])
    base, worker = harness.store, Worker(harness.store, ONE_OF_A)
    running = await insert_one(base, job())
    equal(await worker.ids(), [running], "what runs")
    await base.insert([job(key="k", priority=1), job(key="k", priority=1), other := job()])
    equal(await worker.ids(), [], "what is claimed while one runs")
    await store.pause([NewPause(target=PauseTarget.KEY, value="k")])
    await base.delete([running])
    equal(await worker.ids(), [other.id], "what is claimed while the key is paused")
    await _sleeps(worker, "while the key is paused")
