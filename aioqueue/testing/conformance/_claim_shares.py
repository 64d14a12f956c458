"""The cases of `Store.claim` about what each of several types gets of it: its turn, and no more than its quota."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import HOUR, equal, insert_one, job
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._pauses import NewPause, PauseTarget
from aioqueue.vocabulary._quota import Quota

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("shares")


@subject()
async def has_something_of_each_type_that_has_due_jobs(harness: Harness) -> None:
    """However many older jobs of another type there are; but none that is less urgent."""
    store = harness.store
    await store.insert([job("a") for _ in range(20)])
    await harness.age(10)
    await store.insert([alone := job("b"), job("c", priority=3), urgent := job("d", priority=1)])
    claimed = await store.claim(await store.open_lease("w", HOUR), ["a", "b", "c", "d"], 5)
    equal([each.type for each in claimed], ["d", "a", "a", "a", "b"], "the types, by urgency")
    equal([claimed[0].id, claimed[-1].id], [urgent.id, alone.id], "the most urgent one, and the one of its type")


@subject()
async def gives_types_their_turns_where_theres_room_for_one(harness: Harness) -> None:
    """Of those of one priority the type comes first that wasn't served for longest, and then whatever is due for longest."""
    store = harness.store
    for name in ("b", "a", "a", "a", "b", "c"):
        await insert_one(store, job(name))
        await harness.age(1)
    lease_id = await store.open_lease("w", HOUR)
    served = [(await store.claim(lease_id, ["a", "b", "c"], 1))[0].type for _ in range(6)]
    equal(served, ["b", "a", "c", "b", "a", "a"], "the types")


@subject()
async def takes_no_more_of_types_than_their_quota(harness: Harness) -> None:
    """Of several types together, whatever their priority; the others have what is left of the limit."""
    store = harness.store
    await store.insert([job("a", priority=1) for _ in range(4)] + [job("A") for _ in range(4)] + [job("b") for _ in range(9)])
    lease_id = await store.open_lease("w", HOUR)
    few, one = Quota(frozenset({"a", "A"}), 3), Quota(frozenset({"b"}), 1)
    claimed = await store.claim(lease_id, ["a", "A", "b"], 8, quotas=[few])
    equal(Counter(each.type for each in claimed), {"a": 3, "b": 5}, "the first claim")
    claimed = await store.claim(lease_id, ["a", "A", "b"], 8, quotas=[few, one])
    equal(Counter(each.type for each in claimed), {"a": 1, "A": 2, "b": 1}, "the second claim")
    claimed = await store.claim(lease_id, ["a", "A", "b"], 8)
    equal(Counter(each.type for each in claimed), {"A": 2, "b": 3}, "one without quotas")


@subject()
async def quotas_are_of_what_is_taken(harness: Harness) -> None:
    """Neither what isn't due nor what is paused uses them up."""
    store = harness.store
    if isinstance(store, SupportsPauses):
        await store.pause([NewPause(target=PauseTarget.KEY, value="k")])
    await store.insert([job("a", delay=60.0), job("a", key="k", priority=1), job("a", key="k", priority=1)])
    free = await insert_one(store, job("a"))
    lease_id = await store.open_lease("w", HOUR)
    claimed: list[UUID] = []
    for _ in range(3):  # what is parked may have been all that a claim came to
        claimed += [each.id for each in await store.claim(lease_id, ["a"], 5, quotas=[Quota(frozenset({"a"}), 1)])]
    equal(claimed[-1:], [free], "the one that may run")
