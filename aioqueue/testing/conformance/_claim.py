"""The cases of `Store.claim`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio

from aioqueue.errors import LeaseLost
from aioqueue.testing.conformance._case import Fault, Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    equal,
    expect_state,
    failure,
    insert_one,
    job,
    lease_thread,
    near,
    raises,
    settlement,
    start,
    start_one,
    written,
)
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("claim")


@subject()
async def takes_by_priority_then_due_time_then_id_across_types(harness: Harness) -> None:
    """All that there's room for comes in one order over all types that are asked for."""
    store = harness.store
    late = await insert_one(store, job("a", priority=2))
    await harness.age(10)
    await store.insert(
        [
            second := job("b", priority=1),
            third := job("c", priority=1),
            last := job("a", priority=4),
            fourth := job("b", priority=2),
        ]
    )
    lease_id = await store.open_lease("w", HOUR)
    claimed = await store.claim(lease_id, ["c", "b", "a"], 10)
    equal(
        [each.id for each in claimed],
        [second.id, third.id, late, fourth.id, last.id],
        "the order by (priority, due time, id)",
    )


@subject()
async def prefers_the_longest_due_whatever_the_order_of_insertion(harness: Harness) -> None:
    """A job with an older due time comes first, even if its id is newer."""
    store = harness.store
    await store.insert([newer := job("a", delay=2 * HOUR), older := job("b", delay=HOUR)])
    await harness.age(3 * HOUR)
    lease_id = await store.open_lease("w", HOUR)
    (first,) = await store.claim(lease_id, ["a", "b"], 1)
    (second,) = await store.claim(lease_id, ["a", "b"], 1)
    equal([first.id, second.id], [older.id, newer.id], "the order by due time")


@subject()
async def takes_only_what_is_due(harness: Harness) -> None:
    """A scheduled job isn't taken before its time, and is taken after it."""
    store = harness.store
    await store.insert([now := job(), delayed := job(delay=HOUR), far := job(run_at=datetime(9999, 1, 1, tzinfo=UTC))])
    lease_id = await store.open_lease("w", 10 * HOUR)
    equal([each.id for each in await store.claim(lease_id, ["a"], 10)], [now.id], "what is due at once")
    await expect_state(store, delayed.id, JobState.SCHEDULED)
    await harness.age(HOUR / 2)
    equal(list(await store.claim(lease_id, ["a"], 10)), [], "what is due after half of the delay")
    await harness.age(HOUR)
    await expect_state(store, delayed.id, JobState.READY)
    equal([each.id for each in await store.claim(lease_id, ["a"], 10)], [delayed.id], "what is due after the delay")
    await expect_state(store, far.id, JobState.SCHEDULED)


@subject()
async def takes_only_the_types_it_is_asked_for(harness: Harness) -> None:
    """Jobs of unknown types are left for a worker that knows them."""
    store = harness.store
    await store.insert([unknown := job("unknown", priority=1), known := job("known")])
    lease_id = await store.open_lease("w", HOUR)
    equal([each.id for each in await store.claim(lease_id, ["known"], 10)], [known.id], "jobs of known types")
    equal(list(await store.claim(lease_id, [], 10)), [], "a claim of no types")
    equal(list(await store.claim(lease_id, ["UNKNOWN", "unknow%", "un"], 10)), [], "types that only look alike")
    found = await expect_state(store, unknown.id, JobState.READY)
    equal(found.attempt, 0, "attempts of a job that nobody knows")


@subject()
async def takes_at_most_the_limit(harness: Harness) -> None:
    """The limit holds over all types together."""
    store = harness.store
    await store.insert([job(name) for name in ("a", "b", "c") for _ in range(5)])
    lease_id = await store.open_lease("w", HOUR)
    equal(len(await store.claim(lease_id, ["a", "b", "c"], 7)), 7, "jobs with limit 7 of 15")
    equal(len(await store.claim(lease_id, ["a", "b", "c"], 100)), 8, "the rest")
    equal(len(await store.claim(lease_id, ["a", "b", "c"], 100)), 0, "nothing is left")


@subject()
async def many_types_are_claimed_at_once(harness: Harness) -> None:
    """A worker may know hundreds of types."""
    store = harness.store
    names = [f"type{number:03}" for number in range(300)]
    await store.insert([job(name) for name in names])
    lease_id = await store.open_lease("w", HOUR)
    claimed = await store.claim(lease_id, names, 1000)
    equal(sorted(each.type for each in claimed), names, "the types of what was claimed")


@subject()
async def gives_all_that_was_inserted(harness: Harness) -> None:
    """A claimed job carries what the worker needs, as it was inserted."""
    store = harness.store
    new = job(
        "naïve.☃",
        payload='{"text":"\\u0000 ☃ 😀","n":12345678901234567890}'.encode(),
        priority=3,
        expires=HOUR,
        max_attempts=7,
        retry=b'{"max_attempts":7}',
        timeout=2.5,
        key="schlüssel",
        tags=("ä", "b c", ""),
        metadata='{"tenant":"ü"}'.encode(),
    )
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, new)
    for name in ("id", "type", "payload", "priority", "max_attempts", "retry", "timeout", "key", "tags", "metadata"):
        equal(getattr(claimed, name), getattr(new, name), f"`{name}` of the claimed job")
    equal((claimed.attempt, claimed.claims, claimed.lease_id), (1, 1, lease_id), "attempt, claims and lease")
    equal((claimed.expired, claimed.reschedules), (False, 0), "expired and reschedules")
    for name, moment in (("created_at", claimed.created_at), ("run_at", claimed.run_at), ("started_at", claimed.started_at)):
        near(moment, datetime.now(UTC), name, within=24 * HOUR)
    check(claimed.run_at <= claimed.started_at, "a job can't start before it is due")


@subject()
async def no_limit_of_attempts_is_none(harness: Harness) -> None:
    """`max_attempts=None` stays None, as do the other absent options."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id, job(max_attempts=None))
    absent = (claimed.max_attempts, claimed.retry, claimed.timeout, claimed.key, claimed.tags)
    equal(absent, (None, None, None, None, ()), "options that weren't given")


@subject()
async def shows_the_job_as_running(harness: Harness) -> None:
    """A claimed job is running, with its worker's name and start."""
    store = harness.store
    lease_id = await store.open_lease("worker-7", HOUR)
    claimed = await start_one(store, lease_id)
    found = await expect_state(store, claimed.id, JobState.RUNNING)
    equal((found.worker, found.attempt, found.finished_at), ("worker-7", 1, None), "worker, attempt and end")
    equal(found.started_at, claimed.started_at, "the start")


@subject()
async def counts_each_attempt(harness: Harness) -> None:
    """The claim counts the attempt, before anything can crash."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start_one(store, lease_id)
    for number in (2, 3):
        await written(store, settlement(claimed, SettlementKind.RETRIED, delay=0))
        claimed = await claim_one(store, lease_id)
        equal((claimed.attempt, claimed.claims), (number, number), "attempt and claims")
        equal((await expect_state(store, claimed.id, JobState.RUNNING)).attempt, number, "the stored attempt")


@subject()
async def marks_expired_jobs(harness: Harness) -> None:
    """A job that wasn't started in time comes marked; one that was, or isn't due for as long, doesn't."""
    store = harness.store
    await store.insert(
        [
            gone := job("gone", expires=HOUR),
            fresh := job("fresh", expires=10 * HOUR),
            later := job("later", delay=2 * HOUR, expires=2 * HOUR),
            never := job("never"),
        ]
    )
    await harness.age(3 * HOUR)
    lease_id = await store.open_lease("w", HOUR)
    claimed = {each.id: each.expired for each in await store.claim(lease_id, ["gone", "fresh", "later", "never"], 10)}
    equal(claimed, {gone.id: True, fresh.id: False, later.id: False, never.id: False}, "what has expired")


@subject()
async def expiry_counts_until_the_first_start(harness: Harness) -> None:
    """A job that was started in time and comes back later isn't marked, whether it was retried or put off."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    one, two = await start(store, lease_id, job(expires=HOUR), job(expires=HOUR))
    equal((one.expired, two.expired), (False, False), "whether jobs that start in time have expired")
    await harness.age(2 * HOUR)
    await written(store, settlement(one, SettlementKind.RETRIED, delay=0, error=failure()))
    await written(store, settlement(two, SettlementKind.RESCHEDULED, delay=0))
    again = await store.claim(lease_id, ["a"], 10)
    equal({each.id: each.expired for each in again}, {one.id: False, two.id: False}, "whether they have at a second start")


@subject()
async def a_second_claim_of_an_expired_job(harness: Harness) -> None:
    """An expired job that was claimed and given back unstarted comes marked again; so does one that expired meanwhile."""
    store = harness.store
    lease_id = await store.open_lease("w", 100 * HOUR)
    late = await insert_one(store, job(expires=HOUR))
    await harness.age(2 * HOUR)
    in_time = await insert_one(store, job(expires=HOUR))
    first = {each.id: each for each in await store.claim(lease_id, ["a"], 10)}
    marked = {job_id: each.expired for job_id, each in first.items()}
    equal(marked, {late: True, in_time: False}, "what has expired at the first claim")
    await store.release(lease_id, [each.claim for each in first.values()])
    await harness.age(2 * HOUR)
    again = {each.id: each.expired for each in await store.claim(lease_id, ["a"], 10)}
    equal(again, {late: True, in_time: True}, "what has expired at the second claim")


@subject()
async def beside_a_job_that_is_never_due(harness: Harness) -> None:
    """An infinite due time: the job is never taken, can be seen, brought forward and deleted, and breaks nothing."""
    store = harness.store
    odd, gone = await insert_one(store, job(priority=1)), await insert_one(store, job(priority=1))
    for each in (odd, gone):
        if not await harness.spoil(each, Fault.DUE):
            return
    neighbour = await insert_one(store, job())
    lease_id = await store.open_lease("w", HOUR)
    equal([each.id for each in await store.claim(lease_id, ["a"], 10)], [neighbour], "what is claimed")
    await expect_state(store, odd, JobState.SCHEDULED)
    page = await store.list(JobFilter(), 10)
    equal({each.id for each in page.jobs}, {odd, gone, neighbour}, "what a listing shows")
    equal((await store.stats()).types["a"].counts.get(JobState.SCHEDULED), 2, "scheduled jobs that are counted")
    equal(list(await store.delete([gone])), [Changed.DONE], "its deletion")
    equal(list(await store.run_now([odd])), [Changed.DONE], "bringing it forward")
    equal((await claim_one(store, lease_id)).id, odd, "what is due then")


@subject()
async def types_with_a_lease_of_their_own(harness: Harness) -> None:
    """Jobs of the named types are taken for the named leases, all others for the first."""
    store = harness.store
    long, short = await store.open_lease("w", 10 * HOUR), await store.open_lease("w", HOUR)
    await store.insert([job("long"), job("quick", priority=1), job("quick", priority=3), job("other")])
    claimed = await store.claim(long, ["long", "quick", "other"], 10, leases={"quick": short})
    leases = [(each.type, each.lease_id) for each in claimed]
    expected = {("long", long), ("other", long), ("quick", short)}
    equal((len(leases), set(leases)), (4, expected), "the jobs, and the leases they were taken for")
    quick, again = (each for each in claimed if each.type == "quick")
    other = next(each for each in claimed if each.type == "other")
    await written(store, settlement(quick, SettlementKind.COMPLETED, output=b"1"))
    await written(store, settlement(other, SettlementKind.COMPLETED, output=b"1"))
    equal((await expect_state(store, again.id, JobState.RUNNING)).worker, "w", "the worker of the second quick one")
    async with lease_thread(store) as thread:
        equal((await thread.renew(short, HOUR)).unheld, (again.claim,), "what the second lease holds")
    await harness.age(2 * HOUR)
    equal([each.id for each in await store.take_expired(10)], [again.id], "what is lost when the second lease ends")


@subject()
async def needs_all_leases_that_are_named(harness: Harness) -> None:
    """If one of the leases isn't valid nothing is taken, for the others neither."""
    store = harness.store
    job_id = await insert_one(store, job())
    ended = await store.open_lease("w", HOUR)
    await harness.age(2 * HOUR)
    deleted, lease_id = await store.open_lease("w", HOUR), await store.open_lease("w", HOUR)
    await harness.delete_lease(deleted)
    for other in (ended, deleted, 1):
        await raises(LeaseLost, store.claim(lease_id, ["a"], 1, leases={"b": other}), "a claim for a lease that isn't valid")
        await raises(LeaseLost, store.claim(other, ["a"], 1, leases={"a": lease_id}), "a claim for a lease that isn't valid")
    equal((await expect_state(store, job_id, JobState.READY)).attempt, 0, "attempts after claims that were refused")
    await claim_one(store, lease_id)


@subject()
async def needs_a_valid_lease(harness: Harness) -> None:
    """An expired lease, a deleted one and an unknown one take nothing."""
    store = harness.store
    job_id = await insert_one(store, job())
    expired = await store.open_lease("w", HOUR)
    await harness.age(2 * HOUR)
    await raises(LeaseLost, store.claim(expired, ["a"], 1), "a claim with an expired lease")
    deleted = await store.open_lease("w", HOUR)
    await harness.delete_lease(deleted)
    await raises(LeaseLost, store.claim(deleted, ["a"], 1), "a claim with a deleted lease")
    await raises(LeaseLost, store.claim(deleted + 1000, ["a"], 1), "a claim with an unknown lease")
    found = await expect_state(store, job_id, JobState.READY)
    equal((found.attempt, found.worker), (0, None), "attempt and worker after claims that were refused")


@subject()
async def concurrent_claimers_never_share_a_job(harness: Harness) -> None:
    """Each job goes to exactly one claimer, over several connections."""
    stores = [harness.store, await harness.second_store()]
    ids = [inserted.id for inserted in await stores[0].insert([job(name) for name in ("a", "b") for _ in range(40)])]
    taken: list[UUID] = []

    async def work(store: Store, number: int) -> None:
        lease_id = await store.open_lease(f"w{number}", HOUR)
        idle = 0
        # A claimer may come back short while others have rows locked: what counts is that it finds the rest later.
        while idle < 3:
            claimed = await store.claim(lease_id, ["a", "b"], 3)
            taken.extend(each.id for each in claimed)
            idle = 0 if claimed else idle + 1

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(work, stores[number % 2], number)
    equal(len(taken), len(set(taken)), "jobs taken, against different jobs taken")
    equal(sorted(taken), sorted(ids), "the jobs taken")


@subject()
async def a_rescheduled_job_goes_behind_those_that_waited(harness: Harness) -> None:
    """What becomes pending now is due now, not when it was first due."""
    store = harness.store
    lease_id = await store.open_lease("w", 10 * HOUR)
    claimed = await start_one(store, lease_id)
    await harness.age(HOUR)
    waiting = await insert_one(store, job())
    await harness.age(HOUR)
    await written(store, settlement(claimed, SettlementKind.RETRIED, delay=0))
    equal([each.id for each in await store.claim(lease_id, ["a"], 5)], [waiting, claimed.id], "the order of claims")


@subject()
async def running_and_finished_jobs_are_left_alone(harness: Harness) -> None:
    """Only pending jobs are taken."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    one, two, three = await start(store, lease_id, job(), job(), job())
    await store.settle([settlement(one, SettlementKind.COMPLETED, output=b"1"), settlement(two, SettlementKind.FAILED)])
    other = await store.open_lease("other", HOUR)
    equal(list(await store.claim(other, ["a"], 10)), [], "a claim where nothing is pending")
    equal((await expect_state(store, three.id, JobState.RUNNING)).worker, "w", "the holder of the running one")
