"""The cases of `Store.end`: what happens meanwhile, and in transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import BlockerCycle, BlockerNotFound, StoreContended
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    OnPurposeError,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    raises,
    refused,
    rolled_back,
    settle_one,
    settlement,
    start,
    start_one,
)
from aioqueue.testing.conformance._waiting import (
    after,
    complete,
    ending,
    ends_well,
    start_blocker,
    told,
)
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Settlement

__all__ = ["subject"]

subject = Subject("end")

CONTINUED, FAILED = SettlementKind.CONTINUED, SettlementKind.FAILED


@subject()
async def a_dead_workers_job(harness: Harness) -> None:
    """Nobody recovers what was ended from outside; a settlement about an orphan comes too late."""
    store = harness.store
    one, two = await start(store, await store.open_lease("dies", HOUR), job(), job())
    await store.end([ending(one.id)])
    await harness.age(2 * HOUR)
    (taken,) = await store.take_expired(10)
    equal(taken.id, two.id, "what is recovered")
    await store.end([ending(two.id)])
    await refused(store, settlement(taken, SettlementKind.RETRIED, error=failure()), LostReason.COMPLETED, orphaned=True)


@subject()
async def one_of_several_at_once_counts(harness: Harness) -> None:
    """Of several endings of one job, and its worker's own, exactly one is written."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    for _ in range(3):
        claimed = await start_one(store, lease_id)
        won: list[bytes] = []

        async def end(where: Store, output: bytes, job_id: UUID = claimed.id, won: list[bytes] = won) -> None:
            if (await where.end([ending(job_id, output=output)]))[0]:
                won.append(output)

        async def settle(what: Settlement, won: list[bytes] = won) -> None:
            while (result := await settle_one(store, what)).busy:
                await anyio.lowlevel.checkpoint()
            if result.lost is None:
                won.append(b"9")

        async with anyio.create_task_group() as group:
            for place in range(4):
                group.start_soon(end, (store, second)[place % 2], str(place).encode())
            group.start_soon(settle, ends_well(claimed, b"9"))
        equal(won, [(await expect_state(store, claimed.id, JobState.COMPLETED)).output_json], "who has won")


@subject()
async def in_a_transaction(harness: Harness) -> None:
    """It's so once the transaction commits, for those that wait as well; a rollback leaves all as it was."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    waits = await insert_one(store, after(job("waits"), claimed.id))
    with rolled_back():
        async with store.transaction() as transaction:
            equal(list(await transaction.end([ending(claimed.id)])), [True], "the result")
            equal(list(await transaction.end([ending(claimed.id)])), [False], "a second one")
            raise OnPurposeError
    await expect_state(store, claimed.id, JobState.RUNNING)
    await expect_state(store, waits, JobState.BLOCKED)
    async with store.transaction() as transaction:
        await transaction.end([ending(claimed.id, output=b"7")])
        await expect_state(second, claimed.id, JobState.RUNNING)
        await expect_state(second, waits, JobState.BLOCKED)
    equal((await expect_state(second, claimed.id, JobState.COMPLETED)).output_json, b"7", "the output")
    equal(told(await claim_one(second, lease_id, "waits")), [(claimed.id, ChainEnd.COMPLETED, b"7")], "what it's told")
    await refused(store, ends_well(claimed, b"8"), LostReason.COMPLETED)


@subject()
async def in_a_transaction_what_is_refused_leaves_it_as_it_was(harness: Harness) -> None:
    """After BlockerNotFound or BlockerCycle the transaction can go on."""
    store = harness.store
    first, other = await insert_one(store, job()), await insert_one(store, job())
    async with store.transaction() as transaction:
        await transaction.end([ending(other)])
        bad = ending(first, CONTINUED, next=after(job("next"), new_id()), children=(job("child"),))
        await raises(BlockerNotFound, transaction.end([bad]), "an unknown blocker")
        bad = replace(bad, next=after(job("next"), first))
        await raises(BlockerCycle, transaction.end([bad]), "a chain that would wait for itself")
    await expect_state(store, other, JobState.COMPLETED)
    await expect_state(store, first, JobState.READY)
    equal(list(await store.claim(await store.open_lease("w", HOUR), ["child"], 1)), [], "a child of what was refused")


@subject(Capability.LOCKS_ROWS)
async def a_locked_row_is_contended(harness: Harness) -> None:
    """Somebody's lock is waited for, briefly; then nothing of the call was written."""
    store = harness.store
    locked, neighbour = await insert_one(store, job()), await insert_one(store, job())
    async with harness.locked(locked):
        await raises(StoreContended, store.end([ending(neighbour), ending(locked)]), "an ending of a locked job")
    for job_id in (locked, neighbour):
        await expect_state(store, job_id, JobState.READY)
    equal(list(await store.end([ending(locked)])), [True], "once it's free")


@subject()
async def what_failed_outside_can_be_retried(harness: Harness) -> None:
    """It begins anew, behind those that it has waited for, if they haven't ended."""
    store = harness.store
    blocker = await start_blocker(store)
    plain, waits = await insert_one(store, job()), await insert_one(store, after(job("waits"), blocker.id))
    await store.end([ending(plain, FAILED), ending(waits, FAILED)])
    await store.retry([plain, waits])
    await expect_state(store, plain, JobState.READY)
    equal((await expect_state(store, waits, JobState.BLOCKED)).open_blockers, 1, "open blockers")
    await complete(store, blocker, b"5")
    claimed = await claim_one(store, await store.open_lease("w", HOUR), "waits")
    equal(told(claimed), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what it's told")
