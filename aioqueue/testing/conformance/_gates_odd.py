"""The cases of `SupportsGates` about odd rows: whether a claim can read them or not, they keep nobody from a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Fault, Subject
from aioqueue.testing.conformance._gates_tools import ONE_OF_A, Worker, limit_of, member, with_gates
from aioqueue.testing.conformance._tools import equal, insert_one, job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import NewJob

__all__ = ["subject"]

subject = Subject("odd_at_gates")

FAULTS = (Fault.PAYLOAD, Fault.ERRORS, Fault.TAGS)


async def _spoil(harness: Harness, jobs: Sequence[NewJob]) -> list[NewJob]:
    """Spoil each of them in another way; gives those for which that can be."""
    return [each for each, fault in zip(jobs, FAULTS, strict=True) if await harness.spoil(each.id, fault)]


async def _comes(worker: Worker, sound: NewJob) -> None:
    """Raise AssertionError unless a job is claimed once those before it are gone that can be read by a claim."""
    for _ in FAULTS:
        claimed = await worker.one()
        if claimed.id == sound.id:
            return
        await worker.store.delete([claimed.id])
    equal(await worker.ids(), [sound.id], "what runs after the odd ones")


@subject()
async def some_that_are_held_at_a_limit(harness: Harness) -> None:
    """When a place is left, the one behind them runs."""
    if (gated := with_gates(store := harness.store)) is None:
        return
    await gated.put_limits([limit_of("a", 1)])
    worker = Worker(store, ONE_OF_A)
    running = await insert_one(store, job())
    equal(await worker.ids(), [running], "what runs")
    odd, sound = [job(priority=1) for _ in FAULTS], job()
    await store.insert([*odd, sound])
    equal(await worker.ids(), [], "what is claimed beside it")
    spoilt = await _spoil(harness, odd)
    await store.delete([running, *(each.id for each in odd if each not in spoilt)])
    await _comes(worker, sound)


@subject()
async def some_that_come_first_in_a_sequence(harness: Harness) -> None:
    """The next one's turn comes."""
    if with_gates(store := harness.store) is None:
        return
    odd, sound = [job(sequence=member("s", strict=True)) for _ in FAULTS], job(sequence=member("s"))
    await store.insert([*odd, sound])
    spoilt = await _spoil(harness, odd)
    await store.delete([each.id for each in odd if each not in spoilt])
    await _comes(Worker(store), sound)
