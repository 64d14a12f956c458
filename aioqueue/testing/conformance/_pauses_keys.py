"""The cases of `SupportsPauses` about keys: what has a paused key is parked; a store that hasn't got it passes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import FINISHED, REPLACE, expect_held, expect_replaced
from aioqueue.testing.conformance._pauses import all_of_it, of_key, of_type, until_in
from aioqueue.testing.conformance._tools import (
    HOUR,
    about,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    listening,
    settlement,
    snapshot,
    start_one,
    states_of,
    written,
)
from aioqueue.testing.conformance._waiting import after, complete, ending, start_blocker, tend_all
from aioqueue.vocabulary._abilities import SupportsPauses
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE, PauseTarget

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

__all__ = ["claim_all", "park", "resume", "subject"]

subject = Subject("paused_keys")


async def claim_all(store: Store, lease_id: int, *types: str, dry_run: bool = False) -> list[ClaimedJob]:
    """Claim as a worker does: as long as something is due, though a claim may have got nothing since it has parked what it
    came to.
    """
    claimed: list[ClaimedJob] = []
    for _ in range(1000):
        claimed += await store.claim(lease_id, types, 100, dry_run=dry_run)
        if (await store.next_due(types)).job != 0:
            return claimed
    raise AssertionError("claims must come to an end of what is due")


async def park(store: Store, *new: NewJob) -> list[UUID]:
    """Insert jobs whose keys are paused, and let a claim come to them; they must be held then."""
    await store.insert(new)
    lease_id = await store.open_lease("parker", HOUR)
    claimed = await claim_all(store, lease_id, *{each.type for each in new})
    equal([each.id for each in claimed if each.id in {one.id for one in new}], [], "what is claimed of a paused key")
    ids = [each.id for each in new]
    equal(await states_of(store, *ids), [JobState.HELD] * len(ids), "the states of what a claim came to")
    await store.release(lease_id, [], end=True)
    return ids


async def resume(store: Store, *keys: str) -> None:
    """Lift pauses, and let upkeep bring back all that were parked."""
    assert isinstance(store, SupportsPauses)
    await store.resume(PauseTarget.KEY, keys)
    await tend_all(store)


async def _claimed_after_resume(store: Store, *ids: UUID) -> None:
    """Lift the pause of `k`: these must be what is claimed."""
    await resume(store, "k")
    claimed = await claim_all(store, await store.open_lease("w", HOUR), "a", "b")
    equal(sorted(each.id for each in claimed), sorted(ids), "what is claimed after the pause")


@subject()
async def it_is_held(harness: Harness) -> None:
    """A claim leaves a job with a paused key, and takes those behind it; it's held then, and says by what. Nothing of it counts
    as a start, and idle workers aren't woken for it.
    """
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    first, other, last = job(key="k", priority=1), job(key="l"), job(key="k", tags=("t",))
    plain = job()
    await base.insert([first, other, last, plain])
    await store.pause([of_key("k")])
    equal(await states_of(base, first.id), [JobState.READY], "the state before a claim has come to it")
    claimed = await claim_all(base, await base.open_lease("w", HOUR), "a")
    equal(sorted(each.id for each in claimed), sorted([other.id, plain.id]), "what is claimed")
    for each in (first, last):
        found = await expect_state(base, each.id, JobState.HELD)
        equal(found.held_by, f"{HELD_BY_PAUSE}k", "what holds it")
        equal((found.attempt, found.started_at, found.open_blockers, found.worker), (0, None, 0, None), "its attempts")
        equal((found.tags, found.priority, found.key), (each.tags, each.priority, "k"), "what it was inserted with")
    equal((await snapshot(base, other.id)).held_by, None, "what holds another one")
    equal((await base.next_due(["a"])).job, None, "seconds until a job is due")


@subject()
async def it_comes_back(harness: Harness) -> None:
    """When its key is resumed it's ready again, listeners hear of it, and its first attempt begins with the next claim."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k"), of_key("l")])
    job_id, other = await park(base, job(key="k"), job(key="l"))
    with listening(base) as heard:
        equal(await store.resume(PauseTarget.KEY, ["k"]), 1, "how many pauses were lifted")
        await heard.wait_for_type("a")
    found = await expect_state(base, job_id, JobState.READY)
    equal(found.held_by, None, "what holds it")
    claimed = await claim_one(base, await base.open_lease("w", HOUR))
    equal((claimed.id, claimed.attempt, claimed.reschedules), (job_id, 1, 0), "its first attempt")
    await expect_state(base, other, JobState.HELD)


@subject()
async def many_come_back_in_portions(harness: Harness) -> None:
    """However many were parked, what lies behind them is claimed; all of them come back, some with the end of the pause, the
    others by upkeep, which says whether there are more.
    """
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    many = [job(key="k", priority=1) for _ in range(1200)]
    await base.insert(many)
    behind = await insert_one(base, job())
    lease_id = await base.open_lease("w", HOUR)
    equal([each.id for each in await claim_all(base, lease_id, "a")], [behind], "what is claimed")
    held = await base.list_ids(JobFilter(states=frozenset({JobState.HELD})), 2000)
    equal(len(held.ids), len(many), "how many are held")
    equal([each.waiting for each in await store.list_pauses()], [len(many)], "how many wait")
    equal((await tend_all(base)).resumed, 0, "how many come back while the key is paused")
    await store.resume(PauseTarget.KEY, ["k"])
    at_once = len(await claim_all(base, lease_id, "a"))
    check(0 < at_once < len(many), f"a bounded portion must come back with the end of the pause, not {at_once}")
    equal((await tend_all(base)).resumed, len(many) - at_once, "how many come back by upkeep")
    equal(at_once + len(await claim_all(base, lease_id, "a")), len(many), "how many were claimed")
    equal((await tend_all(base)).resumed, 0, "how many come back after all have")


@subject()
async def a_pause_that_ends_by_itself(harness: Harness) -> None:
    """Upkeep finds what was parked when the pause is over; idle workers are asked to look then."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k", until=await until_in(base, 600)), of_key("l")])
    job_id, other = await park(base, job(key="k"), job(key="l"))
    about((await base.next_due(["a"])).job, 600, "seconds until the pause ends", within=60)
    equal((await tend_all(base)).resumed, 0, "how many come back before its end")
    await harness.age(601)
    equal((await tend_all(base)).resumed, 1, "how many come back after its end")
    equal(await states_of(base, job_id, other), [JobState.READY, JobState.HELD], "the states")


@subject()
async def two_reasons(harness: Harness) -> None:
    """While another person's pause of the key holds it stays parked; back while its type is paused it isn't claimed."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k", "ann"), of_key("k", "bob")])
    (job_id,) = await park(base, job(key="k"))
    await store.pause([of_type("a")])
    await store.resume(PauseTarget.KEY, ["k"], by="ann")
    equal((await tend_all(base)).resumed, 0, "how many come back while another pause holds")
    await expect_state(base, job_id, JobState.HELD)
    await store.resume(PauseTarget.KEY, ["k"], by="bob")
    await tend_all(base)
    await expect_state(base, job_id, JobState.READY)
    lease_id = await base.open_lease("w", HOUR)
    equal(await claim_all(base, lease_id, "a"), [], "what is claimed while the type is paused")
    await store.resume(PauseTarget.TYPE, ["a"])
    equal([each.id for each in await claim_all(base, lease_id, "a")], [job_id], "what is claimed then")


@subject()
async def what_runs_goes_on(harness: Harness) -> None:
    """A running job with the key ends as usual; its retry, and its chain's next job, are parked when a claim comes to them."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    lease_id = await base.open_lease("w", HOUR)
    retried = await start_one(base, lease_id, job(key="k"))
    continued = await start_one(base, lease_id, job(key="k"))
    await store.pause([of_key("k")])
    await written(base, settlement(retried, SettlementKind.RETRIED, error=failure()))
    following = job("b")
    await written(base, settlement(continued, SettlementKind.CONTINUED, next=following))
    equal(await claim_all(base, lease_id, "a", "b"), [], "what is claimed")
    equal(await states_of(base, retried.id, following.id), [JobState.HELD] * 2, "the states")
    found = await snapshot(base, retried.id)
    equal((found.attempt, len(found.errors)), (1, 1), "the attempts and errors of the one that is retried")
    await _claimed_after_resume(base, retried.id, following.id)


@subject()
async def it_still_expires(harness: Harness) -> None:
    """The time within which it must have been started goes on while it's parked."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    late, other = await park(base, job(key="k", expires=60), job(key="k", expires=HOUR))
    await harness.age(120)
    equal((await tend_all(base)).expired, 1, "how many have expired")
    found = await expect_state(base, late, JobState.CANCELLED)
    equal((found.last_error and found.last_error.type, found.held_by), ("Expired", None), "why, and what holds it")
    await expect_state(base, other, JobState.HELD)


@subject()
async def it_may_be_ended(harness: Harness) -> None:
    """It's cancelled, deleted, and ended from outside as a pending one is; those that wait for it are told."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    cancelled, deleted, ended = await park(base, job(key="k"), job(key="k"), job(key="k"))
    waiting = after(job("b"), ended)
    await base.insert([waiting])
    equal(list(await base.cancel([cancelled], "enough")), [Cancellation.CANCELLED], "what becomes of a request")
    equal(list(await base.delete([deleted])), [Changed.DONE], "what becomes of a deletion")
    equal(list(await base.end([ending(ended)])), [True], "what becomes of an ending")
    states = await states_of(base, cancelled, deleted, ended, waiting.id)
    equal(states, [JobState.CANCELLED, None, JobState.COMPLETED, JobState.READY], "the states")
    await _claimed_after_resume(base, waiting.id)


@subject()
async def it_may_be_due_at_another_time(harness: Harness) -> None:
    """It's rescheduled and brought forward as a pending one is, and still isn't claimed while its key is paused; after that
    it's due when it was said.
    """
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    moved, back, forward = await park(base, job(key="k"), job(key="k"), job(key="k"))
    equal(list(await base.reschedule([moved, back], delay=HOUR)), [Changed.DONE] * 2, "what becomes of a new time")
    equal(list(await base.run_now([back, forward])), [Changed.DONE] * 2, "what becomes of bringing them forward")
    equal(await claim_all(base, await base.open_lease("w", HOUR), "a"), [], "what is claimed")
    await _claimed_after_resume(base, back, forward)
    found = await expect_state(base, moved, JobState.SCHEDULED)
    equal(found.held_by, None, "what holds the one that is due later")


@subject()
async def its_unique_key_is_held(harness: Harness) -> None:
    """It keeps its unique key; and another one takes its place, if that's asked for."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    (holder,) = await park(base, job(key="k", unique=FINISHED))
    await expect_held(base, job(key="k", unique=FINISHED), holder, "while the holder is parked")
    await expect_replaced(base, job(key="k", unique=REPLACE, payload=b'{"n":1}'), holder, "while the holder is parked")
    equal(await claim_all(base, await base.open_lease("w", HOUR), "a"), [], "what is claimed")
    await _claimed_after_resume(base, holder)
    equal((await snapshot(base, holder)).payload, b'{"n":1}', "its arguments")


@subject()
async def a_retry_by_hand(harness: Harness) -> None:
    """A finished job with a paused key is retried as usual, and parked by the next claim."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    claimed = await start_one(base, await base.open_lease("w", HOUR), job(key="k"))
    await written(base, settlement(claimed, SettlementKind.FAILED, error=failure()))
    await store.pause([of_key("k")])
    equal(list(await base.retry([claimed.id])), [Changed.DONE], "what becomes of it")
    await expect_state(base, claimed.id, JobState.READY)
    equal(await claim_all(base, claimed.lease_id, "a"), [], "what is claimed")
    await expect_state(base, claimed.id, JobState.HELD)
    await _claimed_after_resume(base, claimed.id)


@subject()
async def what_waits_for_others_is_blocked(harness: Harness) -> None:
    """A job with a paused key that waits for a chain is blocked, and the pause's end doesn't free it. Once it waits for nothing
    it's parked, as others are.
    """
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    blocker = await start_blocker(base)
    waiting = after(job(key="k"), blocker.id)
    await base.insert([waiting])
    await store.pause([of_key("k")])
    await resume(base, "k")
    found = await expect_state(base, waiting.id, JobState.BLOCKED)
    equal((found.open_blockers, found.held_by), (1, None), "for how many it waits, and what holds it")
    await store.pause([of_key("k")])
    await complete(base, blocker)
    equal(await claim_all(base, await base.open_lease("w", HOUR), "a"), [], "what is claimed")
    await expect_state(base, waiting.id, JobState.HELD)
    await _claimed_after_resume(base, waiting.id)


@subject()
async def it_is_seen(harness: Harness) -> None:
    """Listings by state and numbers know held jobs, apart from blocked ones; so does whoever looks at what waits for them."""
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    (held,) = await park(base, job(key="k"))
    blocked = after(job(), held)
    await base.insert([blocked])
    for state, expected in ((JobState.HELD, held), (JobState.BLOCKED, blocked.id)):
        found = await base.list(JobFilter(states=frozenset({state})), 10)
        equal([(each.id, each.state) for each in found.jobs], [(expected, state)], f"what is {state}")
        ids = await base.list_ids(JobFilter(states=frozenset({state})), 10)
        equal(list(ids.ids), [expected], f"ids of what is {state}")
    both = await base.list(JobFilter(states=frozenset({JobState.HELD, JobState.BLOCKED})), 10)
    equal({each.id for each in both.jobs}, {held, blocked.id}, "what is held or blocked")
    counts = (await base.stats()).types["a"].counts
    equal((counts.get(JobState.HELD), counts.get(JobState.BLOCKED)), (1, 1), "how many are held, and blocked")
    equal([each.state for each in await base.list_blockers(blocked.id, 10)], [JobState.HELD], "the state of what is waited for")
    found_by_key = await base.find(["a"], "k")
    equal(found_by_key and (found_by_key.id, found_by_key.state), (held, JobState.HELD), "what is found by the key")


@subject()
async def waiting_ones_are_counted(harness: Harness) -> None:
    """Of a key's pause those that are parked and those that a claim hasn't come to yet; both wait for pauses of all, and of
    their type, too.
    """
    store = harness.store
    if not isinstance(store, SupportsPauses):
        return
    base = harness.store
    await store.pause([of_key("k")])
    await park(base, job(key="k"), job(key="k"))
    await base.insert([job(key="k"), job(key="k", delay=HOUR), job(key="l"), job("b")])
    await store.pause([all_of_it(), of_type("a")])
    expected = {PauseTarget.KEY: 3, PauseTarget.TYPE: 4, PauseTarget.ALL: 5}
    equal({each.target: each.waiting for each in await store.list_pauses()}, expected, "how many wait")
