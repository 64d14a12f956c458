"""The cases of `Store.list` in each order and with each filter, and of `list_ids` and `find`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._keys import FINISHED, REPLACE, STARTED
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    failure,
    insert_one,
    job,
    raises,
    settlement,
    snapshot,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import complete, ending
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, SettlementKind
from aioqueue.vocabulary._listing import JobFilter, ListOrder

if TYPE_CHECKING:
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["finding", "subject"]

subject = Subject("list_orders")
finding = Subject("find")

EVERYTHING = JobFilter()
ORDERS = tuple(ListOrder)


async def _all(store: Operable, where: JobFilter, order: ListOrder = ListOrder.NEWEST, limit: int = 2) -> list[UUID]:
    found: list[Job] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await store.list(where, limit, cursor, order=order)
        check(len(page.jobs) <= limit, f"limit {limit} gave {len(page.jobs)}")
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return [each.id for each in found]
    raise AssertionError("a listing must come to an end")


async def _mixed(harness: Harness) -> list[Job]:
    """Some jobs in each state, in an order that is neither that of their ids nor that of their times."""
    store = harness.store
    ids = sorted((new_id() for _ in range(9)), key=lambda job_id: job_id.bytes[::-1])
    await store.insert([job("later", id=ids[place], delay=HOUR * (5 - place)) for place in range(3)])
    await store.insert([job("ready", id=each) for each in ids[3:5]])
    for each in (ids[5], ids[7], ids[6]):
        await end_as(store, job("done", id=each), SettlementKind.FAILED)
    await start_one(store, await store.open_lease("w", HOUR), job("running", id=ids[8]))
    return [await snapshot(store, each) for each in ids]


@subject()
async def each_order(harness: Harness) -> None:
    """By ids, from either end; unfinished ones by due times, finished ones by finish times; over pages of any size."""
    store, jobs = harness.store, await _mixed(harness)
    live = [each for each in jobs if each.finished_at is None]
    finished = [(each.finished_at, each.id) for each in jobs if each.finished_at is not None]
    expected: dict[ListOrder, list[UUID]] = {
        ListOrder.NEWEST: sorted((each.id for each in jobs), reverse=True),
        ListOrder.OLDEST: sorted(each.id for each in jobs),
        ListOrder.DUE: [job_id for _, job_id in sorted((each.run_at, each.id) for each in live)],
        ListOrder.FINISHED: [job_id for _, job_id in sorted(finished, reverse=True)],
    }
    for order in ORDERS:
        for limit in (1, 2, 100):
            equal(
                await _all(store, EVERYTHING, order, limit), expected[order], f"pages of {limit} in the order {order.value!r}"
            )
    states = JobFilter(states=[JobState.RUNNING, JobState.FAILED, JobState.SCHEDULED])
    for order, ids in expected.items():
        left = [each for each in ids if (await snapshot(store, each)).state in states.states]
        equal(await _all(store, states, order), left, f"in three states in the order {order.value!r}")


@subject()
async def while_rows_come_and_go(harness: Harness) -> None:
    """What is there all the time is shown once, though others are deleted, claimed, ended or added between the pages."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    for order in ORDERS:
        name = order.value
        stays = [job(name, delay=HOUR * (1 + place % 3)) for place in range(6)]
        goes = [job(f"{name} goes", delay=HOUR * (1 + place % 3)) for place in range(6)]
        await store.insert([each for pair in zip(stays, goes, strict=True) for each in pair])
        if order is ListOrder.FINISHED:
            await store.end([ending(each.id) for pair in zip(stays, goes, strict=True) for each in pair])
        where, seen, cursor = JobFilter(types=[name, f"{name} goes"]), list[UUID](), None
        for place in range(20):
            page = await store.list(where, 2, cursor, order=order)
            seen += [each.id for each in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
            added = await insert_one(store, job(f"{name} goes"))
            if place < len(goes):
                await store.delete([goes[place].id])
            await complete(store, await claim_one(store, lease_id, f"{name} goes"))
            await store.delete([added])
        equal(len(seen), len(set(seen)), f"jobs shown twice in the order {name!r}: {seen!r}")
        equal({each.id for each in stays} - set(seen), set[UUID](), f"jobs not shown in the order {name!r}")


@subject()
async def cursors_belong_to_their_order(harness: Harness) -> None:
    """One of another order is a ValueError, and so is what isn't one at all."""
    store = harness.store
    for _ in range(2):
        await insert_one(store, job())
        await end_as(store, job("done"), SettlementKind.COMPLETED)
    cursors = {order: (await store.list(EVERYTHING, 1, order=order)).cursor for order in ORDERS}
    for order in ORDERS:
        for other, cursor in cursors.items():
            if other is not order:
                await raises(ValueError, store.list(EVERYTHING, 1, cursor, order=order), f"a cursor of {other.value!r}")
        await raises(ValueError, store.list(EVERYTHING, 1, f"{cursors[order]}x", order=order), "what isn't a cursor")
    ids = await store.list_ids(EVERYTHING, 1)
    await raises(ValueError, store.list_ids(EVERYTHING, 1, f"{ids.cursor}x"), "what isn't a cursor of ids")


@subject()
async def each_filter(harness: Harness) -> None:
    """All that is given must fit, in every order, and where only the ids are asked for."""
    store = harness.store
    lease_id, other_id = await store.open_lease("one", HOUR), await store.open_lease("two", HOUR)
    running = await start_one(store, lease_id, job("a", key="k", tags=("t",)))
    elsewhere = await start_one(store, other_id, job("b"))
    steps = [await start_one(store, lease_id, job("a"))]
    await written(store, settlement(steps[0], SettlementKind.CONTINUED, next=job("next", delay=HOUR), outcome="went on"))
    (last,) = await _all(store, JobFilter(types=["next"]))
    done = await start_one(store, lease_id, job("c", key="k"))
    await written(store, settlement(done, SettlementKind.COMPLETED, output=b"1", outcome="good"))
    lost = await start_one(store, lease_id, job("c"))
    await written(store, settlement(lost, SettlementKind.FAILED, error=failure()))
    waits = await start_one(store, lease_id, job("c"))
    await written(store, settlement(waits, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    middle = (await snapshot(store, done.id)).created_at
    ended_at = (await snapshot(store, lost.id)).finished_at
    if ended_at is None:
        raise AssertionError("a job that has failed must have a time of finishing")
    ids = [running.id, elsewhere.id, steps[0].id, last, done.id, lost.id, waits.id]
    jobs = {each: await snapshot(store, each) for each in ids}
    ended = {each: at for each, shown in jobs.items() if (at := shown.finished_at) is not None}
    wanted: list[tuple[JobFilter, list[UUID]]] = [
        (JobFilter(chain_id=steps[0].id), [steps[0].id, last]),
        (JobFilter(chain_id=last), []),
        (JobFilter(worker="one"), [running.id]),
        (JobFilter(worker="one", types=["b"]), []),
        (JobFilter(outcome="good"), [done.id]),
        (JobFilter(outcome="went on", key="k"), []),
        (JobFilter(error_type="ValueError"), [lost.id, waits.id]),
        (JobFilter(error_type="ValueError", states=["failed"]), [lost.id]),
        (JobFilter(error_type="Value"), []),
        (JobFilter(key="k", tag="t"), [running.id]),
        (JobFilter(created_after=middle), [each for each in ids if jobs[each].created_at >= middle]),
        (JobFilter(created_before=middle), [each for each in ids if jobs[each].created_at < middle]),
        (JobFilter(finished_after=ended_at), [each for each in ended if ended[each] >= ended_at]),
        (JobFilter(finished_before=ended_at, types=["a", "c"]), [each for each in ended if ended[each] < ended_at]),
        (JobFilter(finished_before=ended_at + timedelta(hours=1), states=["completed"], outcome="good"), [done.id]),
        (JobFilter(first_id=done.id, last_id=lost.id), [done.id, lost.id]),
        (JobFilter(last_id=UUID(int=0)), []),
        (JobFilter(ends=True), [each for each in ids if each != steps[0].id]),
        (JobFilter(ends=True, chain_id=steps[0].id, states=["scheduled"]), [last]),
    ]
    for where, expected in wanted:
        for order in ORDERS:
            left = [each for each in expected if order is not ListOrder.DUE or jobs[each].finished_at is None]
            left = [each for each in left if order is not ListOrder.FINISHED or jobs[each].finished_at is not None]
            equal(sorted(await _all(store, where, order)), sorted(left), f"{where!r} in the order {order.value!r}")
        pages = [await store.list_ids(where, 1)]
        while (cursor := pages[-1].cursor) is not None:
            pages.append(await store.list_ids(where, 1, cursor))
        equal([each for page in pages for each in page.ids], sorted(expected, reverse=True), f"ids for {where!r}")


@finding()
async def by_its_key(harness: Harness) -> None:
    """Who holds it as a unique key, or else the newest unfinished one, or else the newest; of these types only."""
    store = harness.store

    async def expect(expected: UUID | None, when: str, *types: str) -> None:
        found = await store.find(types or ("a",), "k")
        equal(found and found.id, expected, f"the job with the key {when}")

    await expect(None, "that nobody has")
    _, old = [await end_as(store, job(key="k"), SettlementKind.FAILED) for _ in range(2)]
    await expect(old, "which two have had")
    await insert_one(store, job(key="other", delay=HOUR))
    label = await insert_one(store, job(key="k", delay=HOUR))
    await expect(label, "of an unfinished one before that of a finished one")
    holder = await insert_one(store, job(key="k", unique=FINISHED, delay=HOUR))
    newer = await insert_one(store, job(key="k", delay=HOUR))
    await expect(holder, "of the one that holds it")
    await expect(None, "of another type", "b")
    await expect(holder, "of several types", "b", "a")
    await store.delete([holder])
    await expect(newer, "of the newest unfinished one")


@finding()
async def of_a_chain(harness: Harness) -> None:
    """Its live or last step, by the first one's type; by the type of what is left when that is gone."""
    store = harness.store
    first = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=STARTED))
    following = job("next", delay=HOUR)
    await written(store, settlement(first, SettlementKind.CONTINUED, next=following))
    holder = await insert_one(store, job(key="k", unique=REPLACE, delay=HOUR))
    for types, expected in ((["a"], holder), (["next"], None)):
        found = await store.find(types, "k")
        equal(found and found.id, expected, f"the job with the key, of {types!r}")
    await store.delete([holder])
    found = await store.find(["a"], "k")
    equal(found and found.id, following.id, "the live step of the chain with the key")
    await store.end([ending(following.id)])
    found = await store.find(["a"], "k")
    equal(found and (found.id, found.state), (following.id, JobState.COMPLETED), "the last step")
    await harness.erase(first.id)
    found = await store.find(["next"], "k")
    equal(found and found.id, following.id, "what is left of a chain whose first step is gone")
