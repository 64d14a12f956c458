"""The cases of `Store.fetch` and `Store.list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Fault, Subject
from aioqueue.testing.conformance._tools import HOUR, check, end_as, equal, insert_one, job, raises, start_one
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Job

__all__ = ["fetching", "subject"]

fetching = Subject("fetch")
subject = Subject("list")

EVERYTHING = JobFilter()


async def _pages(store: Store, where: JobFilter, limit: int) -> list[Job]:
    jobs: list[Job] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await store.list(where, limit, cursor)
        check(len(page.jobs) <= limit, f"limit {limit} gave {len(page.jobs)}")
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            return jobs
    raise AssertionError("a listing must come to an end")


async def _every_state(harness: Harness) -> dict[JobState, UUID]:
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    return {
        JobState.COMPLETED: await end_as(store, job("done"), SettlementKind.COMPLETED),
        JobState.FAILED: await end_as(store, job("failed"), SettlementKind.FAILED),
        JobState.CANCELLED: await end_as(store, job("cancelled"), SettlementKind.CANCELLED),
        JobState.RUNNING: (await start_one(store, lease_id, job("running"))).id,
        JobState.SCHEDULED: await insert_one(store, job("scheduled", delay=HOUR)),
        JobState.READY: await insert_one(store, job("ready")),
    }


@fetching()
async def in_the_order_of_the_ids(harness: Harness) -> None:
    """Live, archived, unknown and repeated ids, each at its place."""
    store = harness.store
    states = await _every_state(harness)
    ids = [states[JobState.READY], new_id(), states[JobState.COMPLETED], states[JobState.RUNNING], states[JobState.READY]]
    found = await store.fetch(ids)
    equal([each and each.id for each in found], [ids[0], None, *ids[2:]], "the ids")


@fetching()
async def shows_every_state(harness: Harness) -> None:
    """The state as people see it."""
    states = await _every_state(harness)
    found = await harness.store.fetch(list(states.values()))
    equal([each and each.state for each in found], list(states), "the states")


@fetching()
async def many_at_once(harness: Harness) -> None:
    """Thousands of ids in one call."""
    store = harness.store
    new = [job() for _ in range(1500)]
    await store.insert(new)
    unknown = [new_id() for _ in range(1500)]
    found = await store.fetch([*unknown, *(each.id for each in new)])
    equal([each and each.id for each in found], [None] * 1500 + [each.id for each in new], "the ids")


@fetching()
async def odd_rows(harness: Harness) -> None:
    """A strange row is shown as well as it can be, among others."""
    await _odd(harness, lambda ids: harness.store.fetch(ids))


@subject()
async def newest_first_live_and_archived(harness: Harness) -> None:
    """All jobs in one order, by id, over pages of any size."""
    states = await _every_state(harness)
    expected = sorted(states.values(), reverse=True)
    jobs: list[Job] = []
    for limit in (1, 2, 3, 6, 100):
        jobs = await _pages(harness.store, EVERYTHING, limit)
        equal([each.id for each in jobs], expected, f"pages of {limit}")
    equal({each.id: each.state for each in jobs}, {job_id: state for state, job_id in states.items()}, "the states")
    page = await harness.store.list(EVERYTHING, 100)
    equal(page.cursor, None, "the cursor of the last page")


@subject()
async def nothing(harness: Harness) -> None:
    """An empty queue has one empty page."""
    page = await harness.store.list(EVERYTHING, 10)
    equal((tuple(page.jobs), page.cursor), ((), None), "the page")


@subject()
async def by_state(harness: Harness) -> None:
    """Each state alone, and several together."""
    states = await _every_state(harness)
    for state, job_id in states.items():
        jobs = await _pages(harness.store, JobFilter(states=frozenset({state})), 10)
        equal([each.id for each in jobs], [job_id], f"jobs that are {state}")
    both = frozenset({JobState.READY, JobState.FAILED})
    jobs = await _pages(harness.store, JobFilter(states=both), 1)
    equal([each.id for each in jobs], [states[JobState.READY], states[JobState.FAILED]], "jobs in two states")
    equal(await _pages(harness.store, JobFilter(states=frozenset({JobState.CONTINUED})), 10), [], "a state without jobs")


@subject()
async def by_type_key_and_tag(harness: Harness) -> None:
    """Exactly the type, exactly the key, one of the tags, live and archived; all that is given must fit."""
    store = harness.store
    one = await insert_one(store, job("a", key="k", tags=("x", "y")))
    two = await insert_one(store, job("b", key="k", tags=("y",)))
    three = await end_as(store, job("c", key="K", tags=("x", 'o"dd, %_')), SettlementKind.COMPLETED)
    four = await end_as(store, job("c", key="k"), SettlementKind.FAILED)
    wanted: list[tuple[JobFilter, list[UUID]]] = [
        (JobFilter(types=frozenset({"a"})), [one]),
        (JobFilter(types=frozenset({"a", "c"})), [four, three, one]),
        (JobFilter(key="k"), [four, two, one]),
        (JobFilter(key="K"), [three]),
        (JobFilter(key=""), []),
        (JobFilter(tag="x"), [three, one]),
        (JobFilter(tag="y"), [two, one]),
        (JobFilter(tag='o"dd, %_'), [three]),
        (JobFilter(tag="%"), []),
        (JobFilter(tag="X"), []),
        (JobFilter(key="k", tag="y", types=frozenset({"b", "c"})), [two]),
        (JobFilter(key="k", types=frozenset({"c"}), states=frozenset({JobState.FAILED})), [four]),
        (JobFilter(key="k", types=frozenset({"c"}), states=frozenset({JobState.COMPLETED})), []),
    ]
    for where, expected in wanted:
        equal([each.id for each in await _pages(store, where, 2)], expected, f"jobs for {where!r}")


@subject()
async def cursors_are_stable_while_jobs_come(harness: Harness) -> None:
    """New jobs between two pages neither repeat nor hide any; finished ones stay at their place."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    old = [await insert_one(store, job()) for _ in range(9)]
    seen: list[UUID] = []
    cursor: str | None = None
    for _ in range(50):
        page = await store.list(EVERYTHING, 2, cursor)
        seen += [each.id for each in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
        await insert_one(store, job())
        await store.claim(lease_id, ["a"], 1)
    equal(seen, sorted(old, reverse=True), "the jobs that were there at the first page")


@subject()
async def bad_cursors(harness: Harness) -> None:
    """What isn't a cursor is a ValueError, whatever it looks like."""
    store = harness.store
    for _ in range(2):
        await insert_one(store, job())
    cursor = (await store.list(EVERYTHING, 1)).cursor
    if cursor is None:
        raise AssertionError("the first of two pages must have a cursor")
    for bad in ("", "x", "'; drop table job; --", "AAAA", "0" * 32 + "zz", "\0", "ü", cursor + "!", cursor[:-3]):
        await raises(ValueError, store.list(EVERYTHING, 1, bad), f"the cursor {bad!r}")


@subject()
async def odd_stored_rows(harness: Harness) -> None:
    """A strange row is shown as well as it can be, and doesn't break its page."""

    async def look(_: list[UUID]) -> list[Job]:
        jobs = await _pages(harness.store, EVERYTHING, 2)
        equal([each.id for each in jobs], sorted((each.id for each in jobs), reverse=True), "the order")
        return jobs

    await _odd(harness, look)


async def _odd(harness: Harness, look: Callable[[list[UUID]], Awaitable[Sequence[Job | None]]]) -> None:
    store = harness.store
    ids = [await insert_one(store, job(key=f"k{number}")) for number in range(2 * len(Fault))]
    spoilt = [job_id for job_id, fault in zip(ids[::2], Fault, strict=True) if await harness.spoil(job_id, fault)]
    found = {each.id: each for each in await look(ids) if each is not None}
    for place, job_id in enumerate(ids):
        if job_id not in found:
            raise AssertionError(f"the job {job_id} must be shown, though {spoilt!r} were damaged")
        equal((found[job_id].type, found[job_id].key), ("a", f"k{place}"), "type and key")
        check(repr(found[job_id]), "a strange job must have a repr")
    await store.stats()
