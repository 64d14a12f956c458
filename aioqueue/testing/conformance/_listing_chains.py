"""The cases of `Store.fetch_ends` and `Store.list_chain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioqueue.testing.conformance._case import Subject
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    failure,
    insert_one,
    job,
    next_step,
    raises,
    settlement,
    start,
    start_chain,
    start_one,
    written,
)
from aioqueue.vocabulary._abilities import SupportsPrune
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Inserted, JobState, SettlementKind, StoredState
from aioqueue.vocabulary._listing import JobFilter
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness
    from aioqueue.vocabulary._job import Job

__all__ = ["subject"]

subject = Subject("chains")


async def _ends(store: Store, ids: Sequence[UUID]) -> list[tuple[UUID, JobState] | None]:
    return [None if each is None else (each.id, each.state) for each in await store.fetch_ends(ids)]


@subject()
async def ends_by_any_steps_id(harness: Harness) -> None:
    """The first, a middle and the last step's id lead to the live or last step; plain, unknown and repeated ids keep places."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    first, second, third = await start_chain(store, lease_id, 3)
    plain, done = await insert_one(store, job("plain")), await end_as(store, job("done"), SettlementKind.CANCELLED)
    other = await start_chain(store, lease_id, 2, job("other"))
    ids = [second.id, plain, first.id, new_id(), done, third.id, first.id, other[0].id]
    others = {plain: (plain, JobState.READY), done: (done, JobState.CANCELLED), other[0].id: (other[1].id, JobState.RUNNING)}
    steps = {first.id, second.id, third.id}

    async def expect(state: JobState) -> None:
        expected = [(third.id, state) if each in steps else others.get(each) for each in ids]
        equal(await _ends(store, ids), expected, f"the ends while the third is {state}")

    await expect(JobState.RUNNING)
    await written(store, settlement(third, SettlementKind.RETRIED, delay=HOUR, error=failure()))
    await expect(JobState.SCHEDULED)
    await store.run_now([third.id])
    await expect(JobState.READY)
    (third,) = await store.claim(lease_id, ["a"], 1)
    await written(store, settlement(third, SettlementKind.COMPLETED, output=b'{"n":3}'))
    await expect(JobState.COMPLETED)
    found = (await store.fetch_ends([first.id]))[0]
    equal((found and found.output, found and found.chain_id, found and found.position), ({"n": 3}, first.id, 2), "the end")
    equal(await _ends(store, []), [], "the ends of nothing")


@subject()
async def many_ends_at_once(harness: Harness) -> None:
    """Thousands of ids in one call, of chains and of others."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    claimed = await start(store, lease_id, *(job() for _ in range(500)))
    batch = [settlement(each, SettlementKind.CONTINUED) for each in claimed]
    await store.settle(batch)
    plain = [job("plain") for _ in range(500)]
    await store.insert(plain)
    ids = [*(each.id for each in claimed), *(new_id() for _ in range(500)), *(each.id for each in plain)]
    following = [each.next and each.next.id for each in batch]
    found = [each and each.id for each in await store.fetch_ends(ids)]
    equal(found, [*following, *([None] * 500), *(each.id for each in plain)], "the ends")


@subject()
async def the_end_after_its_first_steps_were_removed(harness: Harness) -> None:
    """Continued steps may be pruned while their chain lives: its id and those of steps that are left find the end."""
    store = harness.store
    if not isinstance(store, SupportsPrune):
        return
    lease_id = await store.open_lease("w", HOUR)
    first, second, third = await start_chain(store, lease_id, 3)
    gone = await store.prune(StoredState.CONTINUED, 0.0, None, 100)
    equal(sorted(gone.ids), sorted([first.id, second.id]), "what is pruned")
    running = (third.id, JobState.RUNNING)
    equal(await _ends(store, [first.id, third.id]), [running, running], "the ends while the third is running")
    fourth = await next_step(store, third)
    await written(store, settlement(fourth, SettlementKind.COMPLETED, output=b"4"))
    done = (fourth.id, JobState.COMPLETED)
    equal(await _ends(store, [first.id, third.id, fourth.id]), [done, done, done], "the ends when it's over")
    page = await store.list_chain(first.id, 10)
    equal([each.position for each in page.jobs], [2, 3], "positions that are left")
    equal(list(await store.fetch([first.id])), [None], "the first step itself")


@subject()
async def repeating_an_insert_after_its_chain_went_on(harness: Harness) -> None:
    """What was stored by an insert whose answer was lost is found, though its chain has gone on, and it was pruned."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    plain, unique, fresh = job(), job("b", key="k", unique=Unique()), job("c")
    for new in (plain, unique):
        await next_step(store, await start_one(store, lease_id, new))
    expected = [Inserted(plain.id, created=False), Inserted(unique.id, created=False)]
    equal(list(await store.insert([plain, unique], repeated=True)), expected, "a repetition")
    if not isinstance(store, SupportsPrune):
        return
    await store.prune(StoredState.CONTINUED, 0.0, None, 100)
    equal(list(await store.fetch([plain.id, unique.id])), [None, None], "the first steps")
    repeated = list(await store.insert([plain, fresh, unique], repeated=True))
    equal(repeated, [expected[0], Inserted(fresh.id, created=True), expected[1]], "a repetition after the pruning")
    equal(list(await store.fetch([plain.id, unique.id])), [None, None], "the first steps after it")


@subject()
async def an_end_never_falls_between_two_steps(harness: Harness) -> None:
    """Whoever looks while a chain goes on and ends sees the step that counts: never a continued one, none, or an older one."""
    store, second = harness.store, await harness.second_store()
    lease_id = await store.open_lease("w", HOUR)
    chain_id, ended = await insert_one(store, job("step")), False
    seen: list[Job | None] = []
    older: list[str] = []

    async def look(where: Store) -> None:
        latest: dict[UUID, int] = {}
        while not ended:
            asked = chain_id
            (found,) = await where.fetch_ends([asked])
            seen.append(found)
            if found is not None and found.position < latest.get(asked, 0):
                older.append(f"step {found.position} after step {latest[asked]}")
            elif found is not None:
                latest[asked] = found.position

    async with anyio.create_task_group() as group:
        group.start_soon(look, second)
        group.start_soon(look, store)
        for _ in range(10):
            claimed = await claim_one(store, lease_id, "step")
            for _ in range(3):
                claimed = await next_step(store, claimed)
            await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1"))
            chain_id = await insert_one(store, job("step"))
        ended = True
    equal(older, [], "older steps that were seen")
    check(None not in seen, "a chain must be found all the while that it goes on")
    states = {each.state for each in seen if each is not None}
    wrong = states - {JobState.READY, JobState.RUNNING, JobState.COMPLETED}
    check(not wrong, f"the end of a chain that goes on was seen as {wrong!r}")


@subject()
async def listed_from_the_first_step(harness: Harness) -> None:
    """The steps by their positions, live and archived, over pages of any size; others' steps aren't among them."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    steps = [each.id for each in await start_chain(store, lease_id, 7)]
    await start_chain(store, lease_id, 3, job("other"))
    for limit in (1, 2, 3, 7, 100):
        found = await _pages(store, steps[0], limit)
        equal([each.id for each in found], steps, f"pages of {limit}")
        equal([each.position for each in found], list(range(7)), f"positions in pages of {limit}")
        equal({each.chain_id for each in found}, {steps[0]}, "the chain of each")
        equal([each.state for each in found], [JobState.CONTINUED] * 6 + [JobState.RUNNING], "the states")
    plain = await insert_one(store, job("plain"))
    equal([each.id for each in await _pages(store, plain, 10)], [plain], "a plain job's chain")
    equal(await _pages(store, new_id(), 10), [], "a chain that doesn't exist")
    everywhere = await store.list(JobFilter(states=frozenset({JobState.CONTINUED}), types=frozenset({"a"})), 100)
    equal([each.id for each in everywhere.jobs], sorted(steps[:-1], reverse=True), "continued jobs among all")


async def _pages(store: Store, chain_id: UUID, limit: int) -> list[Job]:
    jobs: list[Job] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await store.list_chain(chain_id, limit, cursor)
        check(len(page.jobs) <= limit, f"limit {limit} gave {len(page.jobs)}")
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            return jobs
    raise AssertionError("a chain must come to an end")


@subject()
async def cursors_last_while_a_chain_goes_on(harness: Harness) -> None:
    """Steps that come or go between two pages neither repeat nor hide any other."""
    store = harness.store
    claimed = await start_chain(store, await store.open_lease("w", HOUR), 4)
    page = await store.list_chain(claimed[0].id, 2)
    check(page.cursor is not None, "the first of two pages must have a cursor")
    claimed.append(await next_step(store, claimed[-1]))
    if isinstance(store, SupportsPrune):
        await store.prune(StoredState.CONTINUED, 0.0, None, 1)
    rest = await store.list_chain(claimed[0].id, 100, page.cursor)
    equal([each.id for each in rest.jobs], [each.id for each in claimed[2:]], "what follows the first page")
    equal(rest.cursor, None, "the cursor of the last page")


@subject()
async def bad_cursors_of_a_chain(harness: Harness) -> None:
    """What isn't a cursor of a chain is a ValueError, whatever it looks like."""
    store = harness.store
    claimed = await start_chain(store, await store.open_lease("w", HOUR), 2)
    cursor = (await store.list_chain(claimed[0].id, 1)).cursor
    if cursor is None:
        raise AssertionError("the first of two pages must have a cursor")
    for bad in ("", "x", "'; drop table job; --", "1", "-1", "3.-1", "3.9999999999", "\0", "3.٣", cursor + "!", new_id().hex):
        await raises(ValueError, store.list_chain(claimed[0].id, 1, bad), f"the cursor {bad!r}")
