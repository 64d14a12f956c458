"""The cases of `SupportsPrune.prune`; a store that hasn't got it passes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    end_as,
    equal,
    expect_state,
    insert_one,
    job,
    listening,
    start_one,
)
from aioqueue.vocabulary._abilities import SupportsPrune
from aioqueue.vocabulary._job import JobState, SettlementKind, StoredState

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["pruning"]

pruning = Subject("prune")

_ARCHIVED = (StoredState.COMPLETED, StoredState.CONTINUED, StoredState.FAILED, StoredState.CANCELLED)


async def _prune(
    store: Store, state: StoredState, older_than: float = 0.0, types: Collection[str] | None = None, limit: int = 100
) -> list[UUID]:
    """All portions of one state."""
    assert isinstance(store, SupportsPrune)
    removed: list[UUID] = []
    cursor: str | None = None
    while True:
        pruned = await store.prune(state, older_than, types, limit, cursor)
        removed += pruned.ids
        if (cursor := pruned.cursor) is None:
            return removed


@pruning()
async def only_finished_jobs_of_that_state(harness: Harness) -> None:
    """Each state alone; what hasn't finished is never removed."""
    store = harness.store
    if not isinstance(store, SupportsPrune):
        return
    lease_id = await store.open_lease("w", HOUR)
    live = [
        (await start_one(store, lease_id)).id,
        await insert_one(store, job(delay=HOUR)),
        await insert_one(store, job()),
    ]
    ended = {
        kind: await end_as(store, job("b"), kind)
        for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED)
    }
    for kind, state in zip(ended, (StoredState.COMPLETED, StoredState.FAILED, StoredState.CANCELLED), strict=True):
        equal(await _prune(store, state), [ended[kind]], f"what is pruned of {state.name}")
        equal(list(await store.fetch([ended[kind]])), [None], "what is left of it")
    for state in _ARCHIVED:
        equal(await _prune(store, state), [], f"what is left of {state.name}")
    equal([each and each.id for each in await store.fetch(live)], live, "unfinished jobs")


@pruning()
async def only_what_is_old_enough(harness: Harness) -> None:
    """What finished later than the given time ago stays, however long ago the job was made."""
    store = harness.store
    if not isinstance(store, SupportsPrune):
        return
    lease_id = await store.open_lease("w", 100 * HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(10 * HOUR)
    job_id = await end_as(store, job("b"), SettlementKind.FAILED)
    equal(await _prune(store, StoredState.FAILED, HOUR), [], "what is pruned that finished just now")
    await expect_state(store, job_id, JobState.FAILED)
    await expect_state(store, claimed.id, JobState.RUNNING)
    equal(await _prune(store, StoredState.FAILED), [job_id], "what is pruned of any age")


@pruning()
async def portions_look_at_no_more_than_the_limit(harness: Harness) -> None:
    """A portion is bounded by the jobs that it looks at, of whatever type; with its cursor the next one goes on."""
    store = harness.store
    if not isinstance(store, SupportsPrune):
        return
    ids = {await end_as(store, job(name), SettlementKind.COMPLETED): name for name in ("a", "b", "a", "c", "a", "b", "a", "c")}
    nothing = await store.prune(StoredState.COMPLETED, 0.0, ["nothing"], 3)
    equal((nothing.ids, nothing.cursor is None), ((), False), "a portion that finds none of its types")
    equal(len((await store.prune(StoredState.COMPLETED, 0.0, ["b", "c"], 3)).ids), 1, "b and c among the first three")
    await _prune(store, StoredState.COMPLETED, types=["b", "c"], limit=2)
    equal(await _left(store, ids), ["a"] * 4, "what is left")
    part = await store.prune(StoredState.COMPLETED, 0.0, None, 3)
    equal((list(part.ids), part.cursor is None), ([each for each in ids if ids[each] == "a"][:3], False), "a portion of three")
    await _prune(store, StoredState.COMPLETED, limit=3)
    equal(await _left(store, ids), [], "what is left at the end")


async def _left(store: Store, ids: dict[UUID, str]) -> list[str]:
    return [each.type for each in await store.fetch(list(ids)) if each is not None]


@pruning()
async def a_retried_job_stays(harness: Harness) -> None:
    """A job that was retried since it was seen isn't removed, though it finished long ago by then."""
    store = harness.store
    if not isinstance(store, SupportsPrune):
        return
    job_id = await end_as(store, job(), SettlementKind.FAILED)
    await store.retry([job_id])
    equal(await _prune(store, StoredState.FAILED), [], "what is pruned")
    await expect_state(store, job_id, JobState.READY)


@pruning(Capability.NAMES_FINISHED)
async def whoever_waits_is_told(harness: Harness) -> None:
    """Whoever waits in the store for the result of a job that is pruned hears of it."""
    store = harness.store
    if not isinstance(store, SupportsPrune):
        return
    job_id = await end_as(store, job(), SettlementKind.COMPLETED)
    with listening(store, finished=True) as heard:
        await _prune(store, StoredState.COMPLETED)
        await heard.wait_for_end(job_id)
