"""The cases of `Store.insert` about jobs that are only stored since others of their batch wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import BlockerNotFound
from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import FINISHED, RAISE, REPLACE, duplicate, expect_created
from aioqueue.testing.conformance._tools import HOUR, equal, insert_one, job, settlement, start_one, written
from aioqueue.testing.conformance._waiting import after, waits_for
from aioqueue.vocabulary._job import Inserted, SettlementKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import NewJob

__all__ = ["subject"]

subject = Subject("unique_implied")


async def _stored(store: Store, *ids: UUID) -> list[bool]:
    return [each is not None for each in await store.fetch(ids)]


async def _inserted(store: Store, *jobs: NewJob) -> Sequence[Inserted]:
    try:
        return await store.insert(jobs)
    except BlockerNotFound as error:
        raise AssertionError(f"what is needed must be stored: {error}") from error


@subject()
async def of_a_job_whose_key_is_held(harness: Harness) -> None:
    """They aren't stored, through any number of levels; those are for which somebody else waits, or that were given."""
    store = harness.store
    holder = await insert_one(store, job(key="k", unique=FINISHED))
    deep, shared, given = job("deep", implied=True), job("shared", implied=True), job("given")
    middle = after(job("middle", implied=True), deep.id, shared.id)
    unused = after(job(key="k", unique=FINISHED), middle.id, given.id)
    other = after(job("other"), shared.id)
    batch = [deep, shared, given, middle, unused, other]
    results = await store.insert(batch)
    expected = [(deep.id, False), (shared.id, True), (given.id, True), (middle.id, False), (holder, False), (other.id, True)]
    equal([(each.id, each.created) for each in results], expected, "the results")
    equal(await _stored(store, *(each.id for each in batch)), [False, True, True, False, False, True], "what is stored")
    equal(await waits_for(store, other.id), [(shared.id, False)], "what the other one waits for")


@subject()
async def of_a_job_that_is_stored_or_replaces(harness: Harness) -> None:
    """They're stored with it, and waited for; nothing is where the call raises."""
    store = harness.store
    first, second, third = (job("child", implied=True) for _ in range(3))
    parent = after(job(key="k", unique=REPLACE), first.id)
    equal([each.created for each in await store.insert([first, parent])], [True, True], "a parent that is stored")
    results = await store.insert([second, after(job(key="k", unique=REPLACE), second.id)])
    equal([(each.id, each.created) for each in results], [(second.id, True), (parent.id, False)], "one that replaces")
    equal(await waits_for(store, parent.id), [(second.id, False)], "what it waits for")
    await duplicate(store, after(job(key="k", unique=RAISE), third.id), third)


@subject()
async def with_a_key_of_its_own(harness: Harness) -> None:
    """One that isn't stored takes no key, which is free for the next of the batch; one whose key is held needs nothing."""
    store = harness.store
    holder = await insert_one(store, job(key="k", unique=FINISHED))
    useless, wanted = job("child", key="c", unique=FINISHED, implied=True), job("child", key="c", unique=REPLACE)
    results = await store.insert([useless, after(job(key="k", unique=FINISHED), useless.id), wanted])
    expected = [(useless.id, False, False), (holder, False, False), (wanted.id, True, False)]
    equal([(each.id, each.created, each.replaced) for each in results], expected, "the results")
    deep = job("deep", implied=True)
    again = after(job("child", key="c", unique=FINISHED, implied=True), deep.id)
    parent = after(job(), again.id)
    results = await store.insert([deep, again, parent])
    equal(
        [(each.id, each.created) for each in results], [(deep.id, False), (wanted.id, False), (parent.id, True)], "the second"
    )
    equal(await waits_for(store, parent.id), [(wanted.id, False)], "what the parent waits for")
    unneeded = job("child", key="c", unique=REPLACE, implied=True, payload=b'{"n":9}')
    await store.insert([unneeded, after(job(key="k", unique=FINISHED), unneeded.id)])
    (found,) = await store.fetch([wanted.id])
    equal(found and found.payload, b"{}", "a waiting job whose place one would have taken that nobody needs")


@subject()
async def that_is_needed_after_all(harness: Harness) -> None:
    """Without what is left out another one may be stored, and need what was left out with it, which is stored then."""
    store = harness.store
    useless, child = (job("child", key=key, unique=FINISHED, implied=True) for key in ("k", "c"))
    parent = after(job("child", key="k", unique=FINISHED), child.id)
    results = await _inserted(store, useless, child, parent)
    expected = [(useless.id, False), (child.id, True), (parent.id, True)]
    equal([(each.id, each.created) for each in results], expected, "the results")
    equal(await waits_for(store, parent.id), [(child.id, False)], "what the parent waits for")
    useless, child = (job("child", key=key, unique=FINISHED, implied=True) for key in ("l", "d"))
    deep = job("deep", implied=True)
    parent, other = after(job("child", key="l", unique=FINISHED), child.id), job("child", key="d", unique=FINISHED)
    results = await _inserted(store, useless, deep, after(child, deep.id), parent, other)
    # Whichever of both has the key, since they're given together: the other stands for it.
    has = child if results[2].created else other
    created = [(useless.id, False), (deep.id, has is child), (has.id, has is child), (parent.id, True), (has.id, has is other)]
    equal([(each.id, each.created) for each in results], created, "the results, if another wants its key")
    equal(await waits_for(store, parent.id), [(has.id, False)], "what that parent waits for")


@subject()
async def in_a_transaction(harness: Harness) -> None:
    """As without one; it goes on afterwards."""
    store = harness.store
    holder = await insert_one(store, job(key="k", unique=FINISHED))
    useless, before, later = job("child", key="c", unique=FINISHED, implied=True), job("before"), job("later")
    async with store.transaction() as transaction:
        await transaction.insert([before])
        results = await transaction.insert([useless, after(job(key="k", unique=FINISHED), useless.id)])
        equal(list(results), [Inserted(useless.id, created=False), Inserted(holder, created=False)], "the results")
        await transaction.insert([later])
    equal(await _stored(store, useless.id, before.id, later.id), [False, True, True], "what is stored")
    await expect_created(store, job("child", key="c", unique=FINISHED), "with the key of the one that wasn't")


@subject()
async def among_the_children_of_a_settlement(harness: Harness) -> None:
    """Those are stored for which the chain's next job waits, or another child that is stored; the others aren't."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    await insert_one(store, job("keyed", key="k", unique=FINISHED))
    claimed = await start_one(store, lease_id)
    for_next, useless, for_child = (job(name, implied=True) for name in ("for next", "useless", "for child"))
    keyed, child = after(job("keyed", key="k", unique=FINISHED), useless.id), after(job("child"), for_child.id)
    following = after(job("next"), for_next.id)
    children = (for_next, useless, keyed, for_child, child)
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=following, children=children))
    expected = [True, False, False, True, True, True]
    equal(await _stored(store, *(each.id for each in children), following.id), expected, "what is stored")
    last = await start_one(store, lease_id, job("last"))
    await written(store, settlement(last, SettlementKind.COMPLETED, output=b"1", children=(unused := job("u", implied=True),)))
    equal(await _stored(store, unused.id), [False], "a child that nobody waits for")
