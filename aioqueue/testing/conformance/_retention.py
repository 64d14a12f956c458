"""The cases of `SupportsRetention.find_old` and `purge`, and of how long chains are kept; a store without them passes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.testing.conformance._case import Capability, Subject
from aioqueue.testing.conformance._progress import phase_of, progress_of
from aioqueue.testing.conformance._tools import (
    HOUR,
    check,
    claim_one,
    end_as,
    equal,
    failure,
    insert_one,
    job,
    listening,
    near,
    settlement,
    snapshot,
    start_chain,
    start_one,
    written,
)
from aioqueue.testing.conformance._waiting import after, complete, completed, failed, settled_after, tend_all, told
from aioqueue.vocabulary._abilities import SupportsRetention
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import SettlementKind, StoredState
from aioqueue.vocabulary._phases import PhaseState
from aioqueue.vocabulary._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.testing.conformance._case import Harness

__all__ = ["subject"]

subject = Subject("retention")

_ALL = (StoredState.COMPLETED, StoredState.CONTINUED, StoredState.FAILED, StoredState.CANCELLED)
AT_ONCE: Mapping[StoredState, float] = dict.fromkeys(_ALL, 0.0)
"""Whatever has ended is old enough."""


async def _old(store: SupportsRetention, ages: Mapping[StoredState, float], limit: int = 100) -> list[UUID]:
    """All portions of what is old enough."""
    found: list[UUID] = []
    cursor: str | None = None
    for _ in range(100):
        page = await store.find_old(ages, limit, cursor)
        found += page.ids
        if (cursor := page.cursor) is None:
            return found
    raise AssertionError("the portions must come to an end")


async def _purge(store: SupportsRetention, *chain_ids: UUID, ages: Mapping[StoredState, float] = AT_ONCE) -> set[UUID]:
    """Remove chains as they are found, until none of them is left that is old enough."""
    removed = set(await store.purge(chain_ids, ages))
    while again := [each for each in await _old(store, ages) if each in removed]:
        check(await store.purge(again, ages), f"what is left of chains that were removed must be removed too: {again!r}")
    return removed


async def _left(store: Store, *ids: UUID) -> list[bool]:
    return [found is not None for found in await store.fetch(ids)]


@subject()
async def by_state_and_age(harness: Harness) -> None:
    """Each state has an age of its own; a state without one stays, and so does what hasn't ended."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    lease_id = await store.open_lease("w", HOUR)
    live = [
        (await start_one(store, lease_id)).id,
        await insert_one(store, job(delay=HOUR)),
        await insert_one(store, job()),
    ]
    live.append(await insert_one(store, after(job("waits"), live[0])))
    ended = {
        StoredState(int(kind)): await end_as(store, job("b"), kind)
        for kind in (SettlementKind.COMPLETED, SettlementKind.FAILED, SettlementKind.CANCELLED)
    }
    equal(await _old(store, {}), [], "what is old without any age")
    equal(await _old(store, dict.fromkeys(_ALL, HOUR)), [], "what is older than an hour")
    for state, chain_id in ended.items():
        ages = {**dict.fromkeys(_ALL, HOUR), state: 0.0}
        for given in ({state: 0.0}, ages):
            equal(await _old(store, given), [chain_id], f"what is old enough of {state.name}")
    equal(await _old(store, AT_ONCE), list(ended.values()), "what is old enough, by the time from which it is")
    everything = [*live, *ended.values()]
    equal(
        list(await store.purge(everything, {StoredState.FAILED: 0.0})), [ended[StoredState.FAILED]], "what is removed of failed"
    )
    equal(list(await store.purge(everything, dict.fromkeys(_ALL, HOUR))), [], "what is removed that is older than an hour")
    left = {ended[StoredState.COMPLETED], ended[StoredState.CANCELLED]}
    equal(set(await store.purge(everything, AT_ONCE)), left, "what is removed at last")
    equal(await _left(store, *everything), [True] * 4 + [False] * 3, "what is left")
    equal(list(await store.purge([], AT_ONCE)), [], "what is removed of none")


@subject()
async def keep_says_more_than_age(harness: Harness) -> None:
    """A chain whose job says how long it's kept has the time from which it may be removed; no age matters for it."""
    store = harness.store
    long, short, plain = [await end_as(store, job(keep=keep), SettlementKind.FAILED) for keep in (5 * HOUR, 0.0, None)]
    kept = await snapshot(store, long)
    if kept.finished_at is None or kept.purge_at is None:
        raise AssertionError(f"a job that says how long it's kept must know until when: {kept!r}")
    near(kept.purge_at, kept.finished_at + timedelta(hours=5), "until when it's kept", within=1.0)
    equal((await snapshot(store, plain)).purge_at, None, "until when one is kept that doesn't say")
    live = await insert_one(store, job(keep=0.0))
    equal((await snapshot(store, live)).purge_at, None, "until when one is kept that hasn't ended")
    if not isinstance(store, SupportsRetention):
        return
    equal(await _old(store, {}), [short], "what is old enough without an age")
    equal(await _old(store, dict.fromkeys(_ALL, HOUR)), [short], "what is old enough after an hour")
    equal(await _old(store, AT_ONCE), [short, plain], "what is old enough at once")
    equal(await _purge(store, long, short, plain, live, ages={}), {short}, "what is removed without an age")
    equal(await _purge(store, long, plain, live), {plain}, "what is removed at once")
    await store.retry([long])
    equal((await snapshot(store, long)).purge_at, None, "until when one is kept that lives again")


@subject()
async def the_next_step_takes_it_over(harness: Harness) -> None:
    """A chain's next job is kept as long as the one before, unless it says so itself; the end of the chain is what counts."""
    store = harness.store
    lease_id = await store.open_lease("w", HOUR)
    hours: dict[UUID, float | None] = {}
    for first, second in ((5, None), (5, 9), (None, 9), (None, None), (0, None)):
        claimed = await start_one(store, lease_id, job(keep=None if first is None else first * HOUR))
        new = job("next", keep=None if second is None else second * HOUR)
        await written(store, settlement(claimed, SettlementKind.CONTINUED, next=new))
        await complete(store, await claim_one(store, lease_id, "next"))
        (end,) = await store.fetch_ends([claimed.id])
        if end is None or end.finished_at is None:
            raise AssertionError(f"the chain must have ended: {end!r}")
        kept = None if end.purge_at is None else (end.purge_at - end.finished_at).total_seconds() / HOUR
        equal(kept, first if second is None else second, f"the hours after {first} and {second}")
        hours[claimed.id] = kept
    if isinstance(store, SupportsRetention):
        old = set(await _old(store, {StoredState.CONTINUED: 0.0}))
        equal(old, {each for each, kept in hours.items() if kept == 0}, "what is old enough, as far as it says so")
        old = set(await _old(store, {StoredState.COMPLETED: 0.0}))
        equal(old, {each for each, kept in hours.items() if kept in (0, None)}, "what is old enough by the state of its end")


@subject()
async def a_chain_goes_whole_or_not_at_all(harness: Harness) -> None:
    """Of a chain with a live step nothing is removed, however old its other steps are; of one that has ended, all."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    lease_id = await store.open_lease("w", HOUR)
    running = await start_chain(store, lease_id, 3, job(keep=0.0))
    waiting = await start_one(store, lease_id, job(keep=0.0))
    await written(store, settlement(waiting, SettlementKind.CONTINUED, next=job("waits", delay=HOUR)))
    ended = await start_chain(store, lease_id, 3, job("ended"))
    await written(store, settlement(ended[-1], SettlementKind.FAILED, error=failure()))
    chains = (running[0].id, waiting.id, ended[0].id)
    equal(await _old(store, AT_ONCE), [ended[0].id], "what is old enough")
    equal(list(await store.purge(chains, AT_ONCE)), [ended[0].id], "what is removed")
    equal(await _left(store, ended[-1].id), [False], "the end of a chain that is removed")
    await _purge(store, ended[0].id)
    equal(await _left(store, *(each.id for each in running), waiting.id), [True] * 4, "the steps of live chains")
    equal(await _left(store, *(each.id for each in ended)), [False] * 3, "the steps of the chain that has ended")


@subject()
async def steps_whose_end_is_gone(harness: Harness) -> None:
    """Continued steps count by their own times once the end of their chain is gone."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    steps = await start_chain(store, await store.open_lease("w", HOUR), 3)
    await complete(store, steps[-1])
    await harness.erase(steps[-1].id)
    chain_id = steps[0].id
    equal(await _old(store, {StoredState.COMPLETED: 0.0}), [], "what is old enough of those that completed")
    equal(set(await _old(store, AT_ONCE)), {chain_id}, "what is old enough")
    equal(list(await store.purge([chain_id], {StoredState.COMPLETED: 0.0})), [], "what is removed of those that completed")
    equal(await _purge(store, chain_id), {chain_id}, "what is removed")
    equal(await _left(store, *(each.id for each in steps)), [False] * 3, "what is left")


@subject()
async def what_lives_again_stays(harness: Harness) -> None:
    """What was retried, or has failed anew, since it was found is looked at again."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    again, fresh = [await end_as(store, job(), SettlementKind.FAILED) for _ in range(2)]
    found = await _old(store, AT_ONCE)
    equal(found, [again, fresh], "what is old enough")
    await store.retry([again])
    equal(await _purge(store, *found), {fresh}, "what is removed")
    equal(await _left(store, again, fresh), [True, False], "what is left")


@subject()
async def portions_are_bounded(harness: Harness) -> None:
    """A portion looks at as many rows as its limit says; with its cursor the next one goes on, and each chain comes once."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    lease_id = await store.open_lease("w", HOUR)
    ids: list[UUID] = []
    for number in range(7):
        claimed = await start_one(store, lease_id, job(keep=0.0 if number in (2, 5) else None))
        if number == 4:
            await written(store, settlement(claimed, SettlementKind.CONTINUED, next=job("live", delay=HOUR)))
            continue
        await complete(store, claimed)
        ids.append(claimed.id)
    for limit in (1, 2, 3, 100):
        page = await store.find_old(AT_ONCE, limit)
        check(len(page.ids) <= limit, f"a portion of {limit} must not be larger: {page!r}")
        found = await _old(store, AT_ONCE, limit)
        equal((len(found), set(found)), (6, set(ids)), f"all portions of {limit}")
    removed: set[UUID] = set()
    cursor: str | None = None
    for _ in range(20):
        page = await store.find_old(AT_ONCE, 2, cursor)
        removed |= set(await store.purge(page.ids, AT_ONCE))
        if (cursor := page.cursor) is None:
            break
    equal(removed, set(ids), "what is removed portion by portion")


@subject()
async def all_that_is_beside_it_goes(harness: Harness) -> None:
    """Phases, progress and logs of all of a chain's steps go with it, and its unique key's window keeps nobody out."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    unique = Unique(window=HOUR)
    claimed = await start_one(store, await store.open_lease("w", HOUR), job(key="k", unique=unique))
    await store.write_phases([phase_of(claimed, "one", PhaseState.COMPLETED)])
    await store.write_progress([progress_of(claimed, 50)])
    await written(store, settlement(claimed, SettlementKind.COMPLETED, output=b"1", attempt=1, logs=b"[]"))
    equal(await _purge(store, claimed.id), {claimed.id}, "what is removed")
    equal(list(await store.fetch_phases(claimed.id)), [], "what is left of its phases")
    equal(list(await store.fetch_logs(claimed.id)), [], "what is left of its logs")
    await insert_one(store, job(id=claimed.id, key="k", unique=unique))
    found = await snapshot(store, claimed.id)
    equal((found.phases, found.progress), ((), None), "what another job with its id has of them")


@subject()
async def what_dependents_need_stays(harness: Harness) -> None:
    """Whoever waits, or is retried later, hears how the chains ended that were removed since, and gets their outputs."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    good, bad = await completed(store, b'"kept"'), await failed(store)
    held = await start_one(store, await store.open_lease("w", HOUR), job("holds"))
    waits = after(job("waits"), good, held.id)
    waits_anyway = settled_after(job("anyway"), bad, held.id)
    await store.insert([waits, waits_anyway])
    equal(await _purge(store, good, bad), {good, bad}, "what is removed")
    await tend_all(store)
    await complete(store, held, b"2")
    await tend_all(store)
    lease_id = await store.open_lease("w", HOUR)
    expected = [(good, ChainEnd.COMPLETED, b'"kept"'), (held.id, ChainEnd.COMPLETED, b"2")]
    first = await claim_one(store, lease_id, "waits")
    equal(told(first), expected, "what it's told that waits for outputs")
    equal([each[1] for each in told(await claim_one(store, lease_id, "anyway"))], [ChainEnd.FAILED, ChainEnd.COMPLETED], "ends")
    await written(store, settlement(first, SettlementKind.FAILED, error=failure()))
    equal(await _purge(store, held.id), {held.id}, "what is removed behind it")
    await tend_all(store)
    equal(list(await store.retry([first.id])), [Changed.DONE], "the retry")
    equal(told(await claim_one(store, lease_id, "waits")), expected, "what it's told when it's retried")


@subject(Capability.LOCKS_ROWS)
async def what_is_locked_stops_no_other(harness: Harness) -> None:
    """A chain whose row somebody has locked may stay, whole; the others are removed."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    lease_id = await store.open_lease("w", HOUR)
    steps = await start_chain(store, lease_id, 2)
    await complete(store, steps[-1])
    free = await end_as(store, job(), SettlementKind.COMPLETED)
    async with harness.locked(steps[-1].id):
        equal(list(await store.purge([steps[0].id, free], AT_ONCE)), [free], "what is removed while it's locked")
    equal(await _left(store, steps[0].id, steps[1].id, free), [True, True, False], "what is left")
    equal(await _purge(store, steps[0].id), {steps[0].id}, "what is removed once it's free")


@subject(Capability.NAMES_FINISHED)
async def whoever_waits_is_told(harness: Harness) -> None:
    """Whoever waits in the store for the result of a chain that is removed hears of it, by the chain's id."""
    store = harness.store
    if not isinstance(store, SupportsRetention):
        return
    steps = await start_chain(store, await store.open_lease("w", HOUR), 2)
    await complete(store, steps[-1])
    with listening(store, finished=True) as heard:
        await store.purge([steps[0].id], AT_ONCE)
        await heard.wait_for_end(steps[0].id)
