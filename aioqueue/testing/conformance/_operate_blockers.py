"""The cases of `Store.delete` and `Store.retry` about jobs that wait for others, and for which others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    insert_one,
    job,
    listening,
    settlement,
    start_chain,
    start_one,
    states_of,
    written,
)
from aioqueue.testing.conformance._waiting import (
    after,
    caused,
    complete,
    fail,
    settled_after,
    start_blocker,
    tend_all,
    told,
    waiting_for,
    waits_for,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness

__all__ = ["deleting", "looking", "retrying"]

deleting = Subject("delete_blockers")
retrying = Subject("retry_blockers")
looking = Subject("list_blockers")


@deleting()
async def one_that_others_wait_for_stays(harness: Harness) -> None:
    """In any state, by any step's id, whether they need its output or only its end; its neighbours are deleted."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    blocked = await insert_one(store, after(job("blocked"), blocker.id))
    ready, later = await insert_one(store, job("ready")), await insert_one(store, job("later", delay=HOUR))
    first, last = await start_chain(store, lease_id, 2)
    waited_for = (blocker.id, blocked, ready, later, first.id)
    for each in waited_for:
        await insert_one(store, after(job("needs"), each))
        await insert_one(store, settled_after(job("takes"), each))
    plain = await insert_one(store, job())
    ids = (*waited_for, last.id, plain)
    equal(list(await store.delete(ids)), [Changed.BLOCKS] * 6 + [Changed.DONE], "the results")
    check(None not in await states_of(store, *ids[:-1]), "what others wait for must stay")


@deleting()
async def one_that_nobody_waits_for_any_more(harness: Harness) -> None:
    """Once it has told all of them it can go, whatever became of them; so can one whose dependents were deleted."""
    store = harness.store
    done, waited_for = await start_blocker(store), await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), done.id))
    gone = await insert_one(store, after(job("waits"), waited_for.id))
    await complete(store, done)
    equal(list(await store.delete([done.id])), [Changed.DONE], "after its end")
    await expect_state(store, waits, JobState.READY)
    equal(list(await store.delete([gone])), [Changed.DONE], "one that waits")
    equal(await waiting_for(store, waited_for.id), [], "who waits")
    equal(list(await store.delete([waited_for.id])), [Changed.DONE], "one for which nobody waits any more")


@deleting()
async def one_that_waits_holds_up_nothing(harness: Harness) -> None:
    """After a dependent was deleted, its blockers end as if it had never been."""
    store = harness.store
    blocker = await start_blocker(store)
    gone, stays = (
        await insert_one(store, after(job("waits"), blocker.id)),
        await insert_one(store, after(job("waits"), blocker.id)),
    )
    await store.delete([gone])
    equal(await waits_for(store, gone), [], "what a deleted one waits for")
    await complete(store, blocker)
    equal(await states_of(store, gone, stays), [None, JobState.READY], "the states")


@deleting()
async def with_all_that_wait_for_it(harness: Harness) -> None:
    """With `cascade` those go too, and those that wait for them, however they do; others stay."""
    store = harness.store
    blocker, other = await start_blocker(store), await start_blocker(store)
    one, two = after(job("one"), blocker.id, other.id), settled_after(job("two"), blocker.id)
    behind, last = after(job("behind"), one.id), settled_after(job("last"), two.id, other.id)
    stays = after(job("stays"), other.id)
    await store.insert([one, two, behind, last, stays])
    equal(list(await store.delete([blocker.id], cascade=True)), [Changed.DONE], "the result")
    await tend_all(store)
    equal(await states_of(store, blocker.id, one.id, two.id, behind.id, last.id), [None] * 5, "what's left")
    equal(await waiting_for(store, other.id), [stays.id], "who waits for the other blocker")
    await complete(store, other)
    await expect_state(store, stays.id, JobState.READY)


@deleting()
async def a_cascade_takes_whole_chains(harness: Harness) -> None:
    """A continuation that waits is deleted with the steps before it; in portions too."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    steps = await start_chain(store, lease_id, 2)
    new = after(job("next"), blocker.id)
    await written(store, settlement(steps[-1], SettlementKind.CONTINUED, next=new))
    many = [after(job("many"), blocker.id) for _ in range(120)]
    behind = [after(job("behind"), each.id) for each in many]
    await store.insert([*many, *behind])
    equal(list(await store.delete([blocker.id], cascade=True)), [Changed.DONE], "the result")
    await tend_all(store)
    ids = [blocker.id, new.id, *(each.id for each in steps), *(each.id for each in (*many, *behind))]
    equal(set(await states_of(store, *ids)), {None}, "what's left")


@deleting()
async def a_cascade_leaves_what_has_its_output(harness: Harness) -> None:
    """Those that were told before don't wait any more: they stay, and have the output."""
    store = harness.store
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), blocker.id))
    await complete(store, blocker, b"5")
    equal(list(await store.delete([blocker.id], cascade=True)), [Changed.DONE], "the result")
    await tend_all(store)
    claimed = await claim_one(store, await store.open_lease("w", HOUR), "waits")
    equal((claimed.id, told(claimed)), (waits, [(blocker.id, ChainEnd.COMPLETED, b"5")]), "what it's told")


@deleting(Capability.NAMES_FINISHED)
async def what_a_cascade_takes_is_told(harness: Harness) -> None:
    """Whoever waits for the result of one that goes along hears of it."""
    store = harness.store
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), blocker.id))
    with listening(store, finished=True) as heard:
        await store.delete([blocker.id], cascade=True)
        await tend_all(store)
        await heard.wait_for_end(waits)


# -- retrying -------------------------------------------------------------------------------------------------------


@retrying()
async def in_a_state_that_isnt_an_end(harness: Harness) -> None:
    """A blocked job is in the wrong state; so it is to be run now."""
    store = harness.store
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), blocker.id))
    equal(list(await store.retry([waits])), [Changed.WRONG_STATE], "a retry")
    equal(list(await store.run_now([waits])), [Changed.WRONG_STATE], "run now")
    await expect_state(store, waits, JobState.BLOCKED)


@retrying()
async def one_that_failed_through_a_blocker(harness: Harness) -> None:
    """It can't be retried while its blocker has failed; once that lives again it's blocked again, and runs after it."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), blocker.id))
    await fail(store, blocker)
    equal(list(await store.retry([waits])), [Changed.BLOCKER_FAILED], "while its blocker has failed")
    await expect_state(store, waits, JobState.FAILED)
    equal(list(await store.retry([blocker.id])), [Changed.DONE], "the blocker")
    await expect_state(store, waits, JobState.FAILED)
    equal(list(await store.retry([waits])), [Changed.DONE], "once its blocker lives again")
    found = await expect_state(store, waits, JobState.BLOCKED)
    equal((found.open_blockers, found.finished_at, found.outcome), (1, None, None), "open blockers, end, outcome")
    caused(found, blocker.id)
    equal(await waiting_for(store, blocker.id), [waits], "who waits")
    await complete(store, await claim_one(store, lease_id, "blocker"), b"5")
    equal(told(await claim_one(store, lease_id, "waits")), [(blocker.id, ChainEnd.COMPLETED, b"5")], "what it's told")


@retrying()
async def with_those_that_failed_through_it(harness: Harness) -> None:
    """With `cascade` they live again, level by level, behind what they wait for; nothing else does."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker, broken = await start_blocker(store), await start_blocker(store)
    one = after(job("one"), blocker.id)
    two = after(job("two"), one.id)
    both = after(job("both"), blocker.id, broken.id)
    await store.insert([one, two, both])
    await fail(store, blocker)
    await fail(store, broken)
    await tend_all(store)
    equal(list(await store.retry([blocker.id], cascade=True)), [Changed.DONE], "the result")
    states = [JobState.READY, JobState.BLOCKED, JobState.BLOCKED, JobState.FAILED]
    equal(await states_of(store, blocker.id, one.id, two.id, both.id), states, "the states")
    for name in ("blocker", "one", "two"):
        await complete(store, await claim_one(store, lease_id, name))
    equal(await states_of(store, two.id, both.id), [JobState.COMPLETED, JobState.FAILED], "the states in the end")


@retrying()
async def a_cascade_leaves_those_whose_key_another_has(harness: Harness) -> None:
    """A job that failed through it, and whose unique key an unfinished one has by now, stays; what waits for it, too."""
    store = harness.store
    blocker = await start_blocker(store)
    one = after(job("one", key="k", unique=Unique()), blocker.id)
    behind, other = after(job("behind"), one.id), after(job("other"), blocker.id)
    await store.insert([one, behind, other])
    await fail(store, blocker)
    await tend_all(store)
    await insert_one(store, job("one", key="k", unique=Unique()))
    equal(list(await store.retry([blocker.id], cascade=True)), [Changed.DONE], "the result")
    states = [JobState.FAILED, JobState.FAILED, JobState.BLOCKED]
    equal(await states_of(store, one.id, behind.id, other.id), states, "the states")


@retrying()
async def several_with_those_that_failed_through_both(harness: Harness) -> None:
    """A job that waits for two failed ones lives again when both do, in one call."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two = await start_blocker(store), await start_blocker(store)
    both = await insert_one(store, after(job("both"), one.id, two.id))
    await fail(store, one)
    await fail(store, two)
    await tend_all(store)
    equal(list(await store.retry([one.id, two.id], cascade=True)), [Changed.DONE] * 2, "the results")
    equal((await expect_state(store, both, JobState.BLOCKED)).open_blockers, 2, "open blockers")
    for claimed in await store.claim(lease_id, ["blocker"], 2):
        await complete(store, claimed)
    await expect_state(store, both, JobState.READY)


@retrying()
async def one_that_ran_and_failed_itself(harness: Harness) -> None:
    """Its blockers have completed: it's ready at once, and has their outputs again; `cascade` of them leaves it alone."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker, broken = await start_blocker(store), await start_blocker(store)
    waits = await insert_one(store, settled_after(after(job("waits"), blocker.id), broken.id))
    await complete(store, blocker, b"5")
    await fail(store, broken)
    await fail(store, await claim_one(store, lease_id, "waits"), "my own fault")
    equal(list(await store.retry([broken.id], cascade=True)), [Changed.DONE], "a retry of what it took either way")
    await expect_state(store, waits, JobState.FAILED)
    await fail(store, await claim_one(store, lease_id, "blocker"))
    equal(list(await store.retry([waits])), [Changed.DONE], "the result")
    ends = [(blocker.id, ChainEnd.COMPLETED, b"5"), (broken.id, ChainEnd.FAILED, None)]
    equal(told(await claim_one(store, lease_id, "waits")), ends, "what it's told again")


@retrying()
async def one_of_whose_blockers_lives_again(harness: Harness) -> None:
    """A job that took a failure, and failed, waits again if that chain has been retried meanwhile."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    broken = await start_blocker(store)
    waits = await insert_one(store, settled_after(job("waits"), broken.id))
    await fail(store, broken)
    await fail(store, await claim_one(store, lease_id, "waits"))
    await store.retry([broken.id])
    equal(list(await store.retry([waits])), [Changed.DONE], "the result")
    equal((await expect_state(store, waits, JobState.BLOCKED)).open_blockers, 1, "open blockers")
    await complete(store, await claim_one(store, lease_id, "blocker"), b"6")
    equal(told(await claim_one(store, lease_id, "waits")), [(broken.id, ChainEnd.COMPLETED, b"6")], "what it's told")


@retrying()
async def what_was_told_before_stays_told(harness: Harness) -> None:
    """A job that can run since it takes a failure still sees that, though the chain was retried before it started."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    broken = await start_blocker(store)
    waits = await insert_one(store, settled_after(job("waits"), broken.id))
    await fail(store, broken, "boom")
    await store.retry([broken.id])
    await tend_all(store)
    claimed = await claim_one(store, lease_id, "waits")
    equal((claimed.id, told(claimed)), (waits, [(broken.id, ChainEnd.FAILED, None)]), "what it's told")
    check("boom" in claimed.blockers[0].cause, f"the cause must tell why: {claimed.blockers[0].cause!r}")


@retrying()
async def those_that_come_later_wait_for_the_new_end(harness: Harness) -> None:
    """A chain that was retried is waited for as any other, by what is stored then."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    broken = await start_blocker(store)
    before = await insert_one(store, settled_after(job("before", delay=HOUR), broken.id))
    await fail(store, broken)
    await store.retry([broken.id])
    late = await insert_one(store, after(job("late"), broken.id))
    await expect_state(store, late, JobState.BLOCKED)
    await tend_all(store)
    await expect_state(store, late, JobState.BLOCKED)
    equal(await waiting_for(store, broken.id), [late], "who waits")
    await complete(store, await claim_one(store, lease_id, "blocker"), b"6")
    equal(told(await claim_one(store, lease_id, "late")), [(broken.id, ChainEnd.COMPLETED, b"6")], "what it's told")
    await expect_state(store, before, JobState.SCHEDULED)


@retrying()
async def one_whose_blocker_is_gone(harness: Harness) -> None:
    """What it needed was deleted: it can't be retried; one that takes the end either way can, and is told so."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker = await start_blocker(store)
    needs, takes = (
        await insert_one(store, after(job("needs"), blocker.id)),
        await insert_one(store, settled_after(job("takes"), blocker.id)),
    )
    await fail(store, blocker)
    await fail(store, await claim_one(store, lease_id, "takes"))
    await store.delete([blocker.id])
    await tend_all(store)
    equal(list(await store.retry([needs, takes])), [Changed.BLOCKER_FAILED, Changed.DONE], "the results")
    claimed = await claim_one(store, lease_id, "takes")
    check(claimed.blockers[0].end is not ChainEnd.COMPLETED, f"what it's told: {claimed.blockers!r}")


# -- looking --------------------------------------------------------------------------------------------------------


@looking()
async def what_a_job_waits_for(harness: Harness) -> None:
    """In the order of their places, with the type and state of each chain's step that counts, in pages; nothing of others."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, _ = await start_chain(store, lease_id, 2, job("step"))
    ready = await insert_one(store, job("ready"))
    done = await start_one(store, lease_id, job("done"))
    waits = await insert_one(store, settled_after(after(job("waits"), first.id, ready), done.id))
    await complete(store, done)
    found = list(await store.list_blockers(waits, 10))
    shown = [(each.ordinal, each.chain_id, each.settled, each.resolved, each.type, each.state) for each in found]
    expected = [
        (0, first.id, False, False, "step", JobState.RUNNING),
        (1, ready, False, False, "ready", JobState.READY),
        (2, done.id, True, True, "done", JobState.COMPLETED),
    ]
    equal(shown, expected, "what is listed")
    equal(list(await store.list_blockers(waits, 2)), found[:2], "the first page")
    equal(list(await store.list_blockers(waits, 2, after=1)), found[2:], "the second page")
    equal(list(await store.list_blockers(ready, 10)), [], "what a plain job waits for")


@looking()
async def of_a_chain_that_is_gone(harness: Harness) -> None:
    """A blocker of which nothing is left is listed without its type and state."""
    store = harness.store
    blocker = await start_blocker(store)
    waits = await insert_one(store, after(job("waits"), blocker.id))
    await complete(store, blocker)
    await store.delete([blocker.id])
    (found,) = await store.list_blockers(waits, 10)
    equal((found.chain_id, found.resolved, found.type, found.state), (blocker.id, True, None, None), "what is listed")


@looking()
async def who_waits_for_a_chain(harness: Harness) -> None:
    """Unfinished jobs that weren't told, by their ids, so many at most."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    blocker, other = await start_blocker(store), await start_blocker(store)
    new = [after(job("waits"), blocker.id, other.id) for _ in range(3)]
    first = after(job("first"), blocker.id)
    await store.insert([*new, first])
    found = list(await store.list_dependents(blocker.id, 10))
    equal([(each.job_id, each.ordinal) for each in found], [(each.id, 0) for each in (*new, first)], "who waits")
    equal({(each.type, each.state) for each in found}, {("blocker", JobState.RUNNING)}, "the chain that they wait for")
    equal(list(await store.list_dependents(blocker.id, 2)), found[:2], "two of them")
    await complete(store, blocker)
    equal(list(await store.list_dependents(blocker.id, 10)), [], "who waits after its end")
    equal([each.ordinal for each in await store.list_dependents(other.id, 10)], [1] * 3, "who waits for the other")
    await complete(store, await claim_one(store, lease_id, "first"))
