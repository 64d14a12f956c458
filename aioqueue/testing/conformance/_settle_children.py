"""The cases of `Store.settle` about jobs that are stored with an outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.errors import BlockerNotFound, WrongJobType
from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    raises,
    refused,
    settle_halving,
    settle_one,
    settlement,
    start,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import after, complete, ending, start_blocker, told, waits_for
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("settle_children")

COMPLETED = SettlementKind.COMPLETED


@subject()
async def are_stored_with_the_outcome(harness: Harness) -> None:
    """Each is a chain of its own, as a plain insert would store it, with any outcome."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for kind in (COMPLETED, SettlementKind.CONTINUED, SettlementKind.FAILED):
        claimed = await start_one(store, lease_id)
        children = (job("child", payload=b'{"n": 1}', tags=("t",), key="k"), job("later", delay=HOUR))
        await written(store, settlement(claimed, kind, children=children))
        found = await expect_state(store, children[0].id, JobState.READY)
        equal((found.chain_id, found.position, found.key, found.tags), (found.id, 0, "k", ("t",)), "chain, key, tags")
        equal(found.payload, b'{"n": 1}', "the payload")
        await expect_state(store, children[1].id, JobState.SCHEDULED)
        await store.delete([each.id for each in children])


@subject()
async def arent_stored_with_a_lost_claim(harness: Harness) -> None:
    """What a worker wanted to store that isn't the owner any more isn't stored."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    await store.release(lease_id, [claimed.claim])
    child = job("child")
    await refused(store, settlement(claimed, COMPLETED, output=b"1", children=(child,)), LostReason.TAKEN)
    equal(list(await store.fetch([child.id])), [None], "the child")


@subject()
async def a_successor_with_the_jobs_own_unique_key(harness: Harness) -> None:
    """The key of a job that ends is free for its child; that of one that continues isn't."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(key="k", unique=Unique()))
    child = job(key="k", unique=Unique())
    await written(store, settlement(claimed, COMPLETED, output=b"1", children=(child,)))
    await expect_state(store, child.id, JobState.READY)
    again = await claim_one(store, lease_id)
    late, following = job(key="k", unique=Unique()), job("next")
    await written(store, settlement(again, SettlementKind.CONTINUED, next=following, children=(late,)))
    equal(list(await store.fetch([late.id])), [None], "a child with the key of a chain that goes on")
    await expect_state(store, following.id, JobState.READY)


@subject()
async def a_unique_key_that_another_has(harness: Harness) -> None:
    """It isn't stored, and whatever waits for it waits for the chain that has its key."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    holder = await insert_one(store, job("child", key="k", unique=Unique()))
    claimed = await start_one(store, lease_id)
    child = job("child", key="k", unique=Unique())
    waits = after(job("waits"), child.id)
    await written(store, settlement(claimed, COMPLETED, output=b"1", children=(child, waits)))
    equal(list(await store.fetch([child.id])), [None], "the child")
    equal(await waits_for(store, waits.id), [(holder, False)], "what the other child waits for")


@subject()
async def may_wait_for_each_other_and_for_the_job_itself(harness: Harness) -> None:
    """For another child, for a job that runs elsewhere, and for the chain that stores them: that has ended, or goes on."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    other = await start_blocker(store)
    claimed = await start_one(store, lease_id)
    child = job("child")
    waits = after(job("waits"), child.id, other.id, claimed.id)
    await written(store, settlement(claimed, COMPLETED, output=b"7", children=(child, waits)))
    equal((await expect_state(store, waits.id, JobState.BLOCKED)).open_blockers, 2, "open blockers")
    await complete(store, await claim_one(store, lease_id, "child"), b"8")
    await complete(store, other, b"9")
    ends = [(child.id, ChainEnd.COMPLETED, b"8"), (other.id, ChainEnd.COMPLETED, b"9"), (claimed.id, ChainEnd.COMPLETED, b"7")]
    equal(told(await claim_one(store, lease_id, "waits")), ends, "what it's told")
    continues = await start_one(store, lease_id)
    behind, following = after(job("behind"), continues.id), job("next")
    await written(store, settlement(continues, SettlementKind.CONTINUED, next=following, children=(behind,)))
    await expect_state(store, behind.id, JobState.BLOCKED)
    await complete(store, await claim_one(store, lease_id, "next"))
    await expect_state(store, behind.id, JobState.READY)


@subject()
async def one_that_waits_for_nothing_there_refuses_the_outcome(harness: Harness) -> None:
    """Nothing of the settlement is written, its claim is still good, and its neighbours are written."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed, neighbour = await start(store, lease_id, job(), job())
    unknown, child = new_id(), job("child")
    bad = settlement(claimed, COMPLETED, output=b"1", children=(child, after(job("waits"), unknown)))
    good = settlement(neighbour, COMPLETED, output=b"2", children=(job("good"),))
    first, second = await store.settle([bad, good])
    check(isinstance(first.refused, BlockerNotFound), f"the result must say BlockerNotFound: {first!r}")
    equal((first.lost, first.busy, second.lost, second.busy, second.refused), (None, False, None, False, None), "the results")
    equal(list(await store.fetch([child.id])), [None], "a child of what was refused")
    await expect_state(store, claimed.id, JobState.RUNNING)
    await expect_state(store, neighbour.id, JobState.COMPLETED)
    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure()))


@subject()
async def one_that_cant_be_stored_refuses_the_outcome(harness: Harness) -> None:
    """A child that no row can hold costs its own settlement, and no other."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed, neighbour = await start(store, lease_id, job(), job())
    child = job("child")
    bad = settlement(claimed, COMPLETED, output=b"1", children=(child, job("bad", payload=b"{broken")))
    good = job("good")
    await settle_halving(store, [bad, settlement(neighbour, COMPLETED, output=b"2", children=(good,))])
    equal(list(await store.fetch([child.id])), [None], "a child of what was refused")
    await expect_state(store, claimed.id, JobState.RUNNING)
    await expect_state(store, neighbour.id, JobState.COMPLETED)
    await expect_state(store, good.id, JobState.READY)


@subject()
async def one_whose_chosen_id_is_another_types_refuses_the_outcome(harness: Harness) -> None:
    """It's about that settlement alone, which can be written without it; so is one whose next job's id is taken."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    there = await insert_one(store, job("there"))
    claimed, second, continued, neighbour, same = await start(store, lease_id, *(job() for _ in range(5)))
    child, chosen = job("child"), job("chosen", id=there, chosen_id=True)
    twice = [job(name, id=new_id(), chosen_id=True) for name in ("once", "twice")]
    twice[1] = replace(twice[1], id=twice[0].id)
    results = await store.settle(
        [
            settlement(claimed, COMPLETED, output=b"1", children=(child, chosen)),
            settlement(second, COMPLETED, output=b"1", children=(twice[0],)),
            settlement(continued, SettlementKind.CONTINUED, next=replace(chosen, type="next")),
            settlement(neighbour, COMPLETED, output=b"2", children=(job("there", id=there, chosen_id=True), job("good"))),
            settlement(same, COMPLETED, output=b"1", children=(twice[1],)),
        ]
    )
    for result, bad in ((results[0], chosen), (results[4], twice[1])):
        error = result.refused
        check(isinstance(error, WrongJobType) and error.job_id == bad.id, f"the result must say WrongJobType: {result!r}")
        check(str(bad.id) in str(error) and bad.type in str(error), f"the message must say which job: {error}")
    equal(
        [(each.lost, each.busy) for each in results],
        [(None, False)] * 2 + [(LostReason.ERROR, False)] + [(None, False)] * 2,
        "lost",
    )
    equal([each.refused for each in results[1:4]], [None] * 3, "what was refused of the others")
    equal([each is not None for each in await store.fetch([child.id, twice[0].id])], [False, True], "the children")
    states = [JobState.RUNNING, JobState.COMPLETED, JobState.RUNNING, JobState.COMPLETED, JobState.RUNNING]
    for each, state in zip((claimed, second, continued, neighbour, same), states, strict=True):
        await expect_state(store, each.id, state)
    equal((await expect_state(store, there, JobState.READY)).type, "there", "the type of the one that was there")
    await written(store, settlement(claimed, SettlementKind.RETRIED, error=failure(), children=(child,)))
    await raises(WrongJobType, store.end([ending(same.id, children=(twice[1],))]), "a job that is ended from outside")


@subject()
async def repeating_stores_no_second_one(harness: Harness) -> None:
    """After an unclear commit the settlement is repeated: no child begins again, though it has ended meanwhile."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    child = job("child")
    what = settlement(claimed, COMPLETED, output=b"1", children=(child,))
    await written(store, what)
    await complete(store, await claim_one(store, lease_id, "child"))
    equal((await settle_one(store, what)).lost, None, "the result of a repetition")
    await expect_state(store, child.id, JobState.COMPLETED)
    equal(list(await store.claim(lease_id, ["child"], 1)), [], "what may be claimed")


@subject()
async def with_an_orphans_outcome(harness: Harness) -> None:
    """What is written about a dead worker's job may have children as well."""
    store = harness.store
    await start_one(store, await store.open_lease("dies", HOUR))
    await harness.age(2 * HOUR)
    (taken,) = await store.take_expired(10)
    child = job("child")
    await written(store, settlement(taken, SettlementKind.FAILED, error=failure(), children=(child,)), orphaned=True)
    await expect_state(store, child.id, JobState.READY)


@subject(Capability.NAMES_TYPES)
async def are_told(harness: Harness) -> None:
    """Listeners hear of children that can run, and not of blocked ones."""
    store = harness.store
    claimed = await start_one(store, await store.open_lease("w", HOUR))
    blocker = await start_blocker(store)
    with listening(store) as heard:
        children = (after(job("blocked"), blocker.id), job("child"))
        await written(store, settlement(claimed, COMPLETED, output=b"1", children=children))
        await heard.wait_for_type("child")
        check("blocked" not in heard.named(), "nothing may be told of a child that is blocked")
