"""The cases of `Store.settle` about chains that go on with a job that waits for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import BlockerCycle, BlockerNotFound
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    settle_one,
    settlement,
    start,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    completed,
    fail,
    failed,
    settled_after,
    start_blocker,
    tend_all,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, NewJob, Settlement, SettleResult

__all__ = ["subject"]

subject = Subject("settle_next_blockers")


def _goes_on(claimed: ClaimedJob, new: NewJob, *children: NewJob) -> Settlement:
    return settlement(claimed, SettlementKind.CONTINUED, next=new, children=children)


async def _expect_cycle(store: Store, what: Settlement) -> None:
    result = await settle_one(store, what)
    check(isinstance(result.refused, BlockerCycle), f"the result must say BlockerCycle: {result!r}")
    equal((result.lost, result.busy), (None, False), "lost and busy")
    await expect_state(store, what.id, JobState.RUNNING)
    if what.next is not None:
        equal(list(await store.fetch([what.next.id])), [None], "the next job")


@subject()
async def it_waits_and_holds_the_chains_key(harness: Harness) -> None:
    """It's stored as blocked, in its chain, and runs when its blockers have completed; the unique key is the chain's on."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id, job(key="k", unique=Unique()))
    blocker = await start_blocker(store)
    new = after(job("next"), blocker.id)
    await written(store, _goes_on(first, new))
    found = await expect_state(store, new.id, JobState.BLOCKED)
    equal((found.chain_id, found.position, found.key, found.open_blockers), (first.id, 1, "k", 1), "chain, key, open blockers")
    equal(list(await store.insert([job(key="k", unique=Unique())])), [Inserted(first.id, created=False)], "who has the key")
    equal(await waiting_for(store, blocker.id), [new.id], "who waits")
    await complete(store, blocker, b"5")
    claimed = await claim_one(store, lease_id, "next")
    equal((claimed.chain_id, told(claimed)), (first.id, [(blocker.id, ChainEnd.COMPLETED, b"5")]), "what it's told")


@subject()
async def it_waits_for_children(harness: Harness) -> None:
    """Fan-out and fan-in of one chain: the children are stored with it, and it runs after them."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first = await start_one(store, lease_id)
    children = [job("child") for _ in range(3)]
    new = after(job("next"), *(each.id for each in children))
    await written(store, _goes_on(first, new, *children))
    equal((await expect_state(store, new.id, JobState.BLOCKED)).open_blockers, 3, "open blockers")
    for claimed in await store.claim(lease_id, ["child"], 3):
        await complete(store, claimed)
    await expect_state(store, new.id, JobState.READY)


@subject()
async def what_has_ended_counts_at_once(harness: Harness) -> None:
    """A next job behind what has completed is due; behind what has failed it fails, and its chain with it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start(store, lease_id, job(), job())
    waits = await insert_one(store, after(job("waits"), two.id))
    done, broken = await completed(store), await failed(store, "the first cause")
    good, bad = after(job("next"), done), after(job("next"), broken)
    await written(store, _goes_on(one, good))
    await expect_state(store, good.id, JobState.READY)
    await written(store, _goes_on(two, bad))
    caused(await expect_state(store, bad.id, JobState.FAILED), broken, "the first cause")
    await tend_all(store)
    caused(await expect_state(store, waits, JobState.FAILED), broken, "the first cause")


@subject()
async def its_chain_fails_with_its_blocker(harness: Harness) -> None:
    """While it waits a blocker fails: its chain has failed, and those that wait for that."""
    store = harness.store
    first = await start_one(store, await store.open_lease("w", HOUR))
    waits = await insert_one(store, after(job("waits"), first.id))
    blocker = await start_blocker(store)
    new = after(job("next"), blocker.id)
    await written(store, _goes_on(first, new))
    await fail(store, blocker, "the first cause")
    await tend_all(store)
    for job_id in (new.id, waits):
        caused(await expect_state(store, job_id, JobState.FAILED), blocker.id, "the first cause")
    (end,) = await store.fetch_ends([first.id])
    equal(end and end.state, JobState.FAILED, "how the chain ended")


@subject()
async def an_unknown_blocker(harness: Harness) -> None:
    """The settlement is refused: nothing of it is written, and its claim is still good."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed, neighbour = await start(store, lease_id, job(), job())
    unknown = new_id()
    bad, good = after(job("next"), unknown), job("next")
    first, second = await store.settle([_goes_on(claimed, bad), _goes_on(neighbour, good)])
    check(isinstance(first.refused, BlockerNotFound), f"the result must say BlockerNotFound: {first!r}")
    equal(getattr(first.refused, "blocker_id", None), unknown, "the id in it")
    equal((first.lost, first.busy, second.lost, second.busy), (None, False, None, False), "the results")
    equal(list(await store.fetch([bad.id])), [None], "the next job")
    await expect_state(store, claimed.id, JobState.RUNNING)
    await expect_state(store, good.id, JobState.READY)
    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))


@subject()
async def a_chain_that_would_wait_for_itself(harness: Harness) -> None:
    """By its own id or a step's, with or without the output, directly or through others: BlockerCycle, and nothing of it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await _expect_cycle(store, _goes_on(claimed, after(job("next"), claimed.id)))
    await _expect_cycle(store, _goes_on(claimed, settled_after(job("next"), claimed.id)))
    one = after(job("waits"), claimed.id)
    two = after(job("waits"), one.id)
    await store.insert([one, two])
    await _expect_cycle(store, _goes_on(claimed, after(job("next"), two.id)))
    child = after(job("child"), claimed.id)
    await _expect_cycle(store, _goes_on(claimed, after(job("next"), child.id), child))
    equal(list(await store.fetch([child.id])), [None], "the child")
    await written(store, _goes_on(claimed, job("next")))
    equal(await waiting_for(store, claimed.id), [one.id], "who waits for it in the end")


@subject()
async def chains_that_would_wait_for_each_other(harness: Harness) -> None:
    """Whoever comes second is refused, in one batch too."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two, three = await start(store, lease_id, job(), job(), job())
    await written(store, _goes_on(one, after(job("next"), two.id)))
    await written(store, _goes_on(two, after(job("next"), three.id)))
    await _expect_cycle(store, _goes_on(three, after(job("next"), one.id)))
    left, right = await start(store, lease_id, job(), job())
    results = await store.settle([_goes_on(left, after(job("next"), right.id)), _goes_on(right, after(job("next"), left.id))])
    equal(_refusals(results), 1, "how many of the two are refused")


@subject()
async def chains_that_would_wait_for_each_other_at_the_same_moment(harness: Harness) -> None:
    """Settled in several stores at once, a ring of chains never closes: one of them is refused, and the others go on."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    for _ in range(3):
        ring = await start(store, lease_id, *(job() for _ in range(4)))
        results: list[SettleResult] = []

        async def go_on(where: Store, claimed: ClaimedJob, other: ClaimedJob, results: list[SettleResult] = results) -> None:
            what = _goes_on(claimed, after(job("next"), other.id))
            result = await settle_one(where, what)
            while result.busy:
                result = await settle_one(where, what)
            results.append(result)

        async with anyio.create_task_group() as group:
            for place, claimed in enumerate(ring):
                group.start_soon(go_on, (store, second)[place % 2], claimed, ring[(place + 1) % 4])
        equal(_refusals(results), 1, "how many of a ring are refused")


def _refusals(results: Sequence[SettleResult]) -> int:
    return sum(isinstance(each.refused, BlockerCycle) for each in results)


@subject()
async def repeating_it(harness: Harness) -> None:
    """After an unclear commit it answers as it did: the next job is there once, and waits for what it did."""
    store = harness.store
    first = await start_one(store, await store.open_lease("w", HOUR))
    blocker = await start_blocker(store)
    new = after(job("next"), blocker.id)
    for _ in range(3):
        await written(store, _goes_on(first, new))
    equal(await waits_for(store, new.id), [(blocker.id, False)], "what it waits for")
    equal((await expect_state(store, new.id, JobState.BLOCKED)).open_blockers, 1, "open blockers")
