"""Schedules on PostgreSQL: who waits for whom, what is held for how long, and what becomes of strange rows."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import RowRejected, ScheduleOwned, StoreContended, StoreUnavailable
from aioqueue.postgres import _schedules_tick
from aioqueue.vocabulary._schedules import Generation, ScheduleChange, TickOutcome
from aioqueue.vocabulary._unique import Unique
from tests.postgres.schedules import SECOND, fetched, schedule, tick_of, tick_once
from tests.postgres.stores import connected, job, opened, port_of, proxied
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.postgres import PostgresStore
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._insert import Written
    from aioqueue.vocabulary._job import NewJob
    from aioqueue.vocabulary._notification import Notification

pytestmark = pytest.mark.anyio

BRIEFLY = 2.0
"""What is waited for briefly takes a tenth of a second, and a busy machine more."""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store, asyncio.timeout(60):
        yield store


def nominal_times(url: str) -> list[tuple[str, str]]:
    rows = execute(
        url,
        "SELECT coalesce(json_agg(json_build_array(origin::json ->> 'schedule', origin::json ->> 'nominal_time')), '[]') "
        "FROM (SELECT origin FROM aioqueue.job UNION ALL SELECT origin FROM aioqueue.archive) AS all_jobs",
    )
    ((found,),) = rows
    return [(name, at) for name, at in found]


# -- who waits for whom -----------------------------------------------------------------------------------------------


async def test_a_schedule_that_somebody_has_locked_stops_no_other(postgres_url: str, store: PostgresStore) -> None:
    """Those that are free are decided at once; one that isn't is waited for briefly, if there's nothing else to decide."""
    await store.put_schedules([schedule("a"), schedule("b")])
    stored = await fetched(store, "a", "b")
    async with connected(postgres_url) as other, other.transaction():
        await other.execute("SELECT FROM aioqueue.schedule WHERE name = 'a' FOR UPDATE")
        assert [each.decided for each in await store.tick([tick_of(each) for each in stored])] == [False, True]
        began = time.monotonic()
        with pytest.raises(StoreContended):
            await store.tick([tick_of(stored[0])])
        assert time.monotonic() - began < BRIEFLY
    assert [each.decided for each in await store.tick([tick_of(stored[0])])] == [True]


async def test_who_comes_second_waits_and_decides_nothing(postgres_url: str, store: PostgresStore) -> None:
    """Whoever finds all of its schedules locked by one that is about to commit hears that they were decided."""
    names = [f"s{number}" for number in range(20)]
    await store.put_schedules([schedule(name) for name in names])
    ticks = [tick_of(each) for each in await fetched(store, *names)]
    async with connected(postgres_url) as other:
        await other.execute("BEGIN; UPDATE aioqueue.schedule SET next_at = now()")
        waiting = asyncio.create_task(store.tick(ticks))
        async with connected(postgres_url) as third:
            while not await third.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
                if waiting.done():
                    break  # on a busy machine: then it has said that it's held
        await other.execute("COMMIT")
        try:
            assert not any(each.decided for each in await waiting)
        except StoreContended:
            assert not any(each.decided for each in await store.tick(ticks))
    assert nominal_times(postgres_url) == []


async def test_opposite_orders_dont_deadlock(postgres_url: str, store: PostgresStore) -> None:
    """Of two who decide the same ticks in opposite orders, with serial keys besides, each tick is decided once."""
    names = [f"s{number:02}" for number in range(30)]
    keys = Unique(until="started")
    await store.put_schedules([schedule(name, template=job(key=name, unique=keys)) for name in names])
    rounds = 20
    async with opened(postgres_url) as second:

        async def all_of(each: PostgresStore, names: list[str]) -> int:
            decided = 0
            for number in range(rounds):
                while behind := [
                    stored
                    for stored in await fetched(each, *names)
                    if stored.last_at in (None, stored.anchor + number * SECOND)
                ]:
                    decided += sum(ticked.decided for ticked in await each.tick([tick_of(stored) for stored in behind]))
            return decided

        counts = await asyncio.gather(all_of(store, names), all_of(second, names[::-1]))
    assert sum(counts) == rounds * len(names)
    assert {each.last_at for each in await fetched(store, *names)} == {
        each.anchor + rounds * SECOND for each in await fetched(store, *names)
    }


async def test_a_key_that_is_contended_stops_only_itself(postgres_url: str, store: PostgresStore) -> None:
    """A tick whose unique key is in somebody's open transaction fails within a moment; nothing of its batch is decided."""
    key = job(key="k", unique=Unique())
    await store.put_schedules([schedule("a", template=key), schedule("b")])
    contended, free = await fetched(store, "a", "b")
    async with connected(postgres_url) as other, other.transaction():
        await store.insert([key], tx=other)
        began = time.monotonic()
        with pytest.raises(StoreContended):
            await store.tick([tick_of(contended), tick_of(free)])
        assert time.monotonic() - began < BRIEFLY
        assert [each.next_at for each in await fetched(store, "a", "b")] == [None, None]
        assert [each.decided for each in await store.tick([tick_of(free)])] == [True]
    (ticked,) = await store.tick([tick_of(contended)])
    assert [(each.outcome, each.chain_id) for each in ticked.ticks] == [(TickOutcome.DUPLICATE, key.id)]


async def test_a_job_that_the_database_refuses_stops_its_batch_and_nothing_is_decided(
    postgres_url: str, store: PostgresStore
) -> None:
    await store.put_schedules([schedule("a", template=job(metadata=b'"\\u0000"')), schedule("b")])
    bad, good = await fetched(store, "a", "b")
    execute(postgres_url, "ALTER TABLE aioqueue.job ADD CONSTRAINT odd CHECK (type <> 'odd')")
    odd = schedule("odd", template=job("odd"))
    await store.put_schedules([odd])
    (refused,) = await fetched(store, "odd")
    with pytest.raises(RowRejected):
        await store.tick([tick_of(good), tick_of(refused), tick_of(bad)])
    assert [each.next_at for each in await fetched(store, "a", "b", "odd")] == [None] * 3
    assert nominal_times(postgres_url) == []


class Frozen:
    """Stops deciding between two statements, until it's told to go on."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._insert = store._schedules._inserter.insert_ticks
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(store._schedules._inserter, "insert_ticks", self._frozen)

    async def _frozen(self, connection: Connection, jobs: list[NewJob]) -> Written:
        self.reached.set()
        await self.go_on.wait()
        return await self._insert(connection, jobs)


async def test_whoever_is_frozen_loses_what_it_was_deciding(
    postgres_url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others go on with the rest at once, and with its schedules soon; when it thaws it decides nothing."""
    shorter = re.sub(r"'\d+ms'$", "'300ms'", _schedules_tick.HOLD_BRIEFLY)
    monkeypatch.setattr(_schedules_tick, "HOLD_BRIEFLY", shorter)
    await store.put_schedules([schedule("a"), schedule("b")])
    stored = await fetched(store, "a", "b")
    async with opened(postgres_url) as second:
        frozen = Frozen(store, monkeypatch)
        deciding = asyncio.create_task(store.tick([tick_of(stored[0])]))
        await frozen.reached.wait()
        assert [each.decided for each in await second.tick([tick_of(each) for each in stored])] == [False, True]
        while True:
            try:
                (ticked,) = await second.tick([tick_of(stored[0])])
            except StoreContended:
                continue
            assert ticked.decided
            break
        frozen.go_on.set()
        with pytest.raises(StoreUnavailable):
            await deciding
        assert not (await store.tick([tick_of(stored[0])]))[0].decided
    assert sorted(name for name, _ in nominal_times(postgres_url)) == ["a", "b"]


async def test_a_tick_whose_answer_is_lost_is_decided_once(postgres_url: str) -> None:
    async with Proxy(port_of(postgres_url)) as proxy, opened(proxied(postgres_url, proxy), notify=False) as store:
        await store.put_schedules([schedule("a")])
        (stored,) = await fetched(store, "a")
        proxy.swallow("^commit")
        with pytest.raises(StoreUnavailable):
            await store.tick([tick_of(stored)])
        assert [each.decided for each in await store.tick([tick_of(stored)])] == [False]
    assert len(nominal_times(postgres_url)) == 1


async def test_a_call_that_is_cancelled_has_decided_all_of_it_or_nothing(postgres_url: str, store: PostgresStore) -> None:
    """Wherever it's cancelled: each schedule is as far as it has jobs, and nothing is left locked."""
    names = ["a", "b"]
    await store.put_schedules([schedule("a"), schedule("b", template=job(key="k", unique=Unique(on_conflict="replace")))])
    for number in range(40):
        ticks = [tick_of(each) for each in await fetched(store, *names)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(number / 4_000):
                await store.tick(ticks)
    await tick_once(store, *names)
    stored = await fetched(store, *names)
    assert stored[0].last_at == stored[1].last_at
    assert stored[0].last_at is not None
    jobs = [name for name, _ in nominal_times(postgres_url)]
    assert jobs.count("a") * SECOND == stored[0].last_at - stored[0].anchor
    assert jobs.count("b") == 1


# -- what is kept -----------------------------------------------------------------------------------------------------


async def test_ticks_that_a_clock_ahead_has_decided_arent_enqueued_again(postgres_url: str, store: PostgresStore) -> None:
    """Also those that are still to come when as many others have been decided as are kept."""
    await store.put_schedules([schedule("a")])
    (stored,) = await fetched(store, "a")
    ahead = stored.anchor + timedelta(hours=1)
    await tick_once(store, "a", at=ahead, jobs=5)
    assert await store.recompute_schedules(["a"]) == 1
    (stored,) = await fetched(store, "a")
    assert stored.next_at is None
    assert stored.last_at is not None
    assert stored.last_at < ahead
    before = stored.anchor - timedelta(days=1)
    for number in range(6):
        await tick_once(store, "a", at=before + 5 * number * SECOND, jobs=5)
    (stored,) = await fetched(store, "a")
    (ticked,) = await store.tick([tick_of(stored, at=ahead, jobs=6)])
    assert [each.outcome for each in ticked.ticks] == [TickOutcome.SKIPPED] * 5 + [TickOutcome.ENQUEUED]
    (stored,) = await fetched(store, "a")
    assert [each.outcome for each in stored.ticks[:6]] == [TickOutcome.ENQUEUED] * 6
    assert len(nominal_times(postgres_url)) == 36
    assert execute(postgres_url, "SELECT count(*) FROM aioqueue.schedule_tick") == [(26,)]


async def test_strange_rows_are_shown_and_stop_nobody(postgres_url: str, store: PostgresStore) -> None:
    """Times that Python can't hold, and outcomes that nobody knows: each schedule can be listed, and its ticks decided."""
    names = ["early", "infinite", "late", "plain"]
    await store.put_schedules([schedule(name) for name in names])
    execute(
        postgres_url,
        """UPDATE aioqueue.schedule SET next_at = CASE name WHEN 'early' THEN '-infinity' WHEN 'infinite' THEN 'infinity'
               WHEN 'late' THEN '4000-01-01 BC' END::timestamptz, since = '-infinity', anchor = '294276-01-01'""",
    )
    execute(
        postgres_url,
        """INSERT INTO aioqueue.schedule_tick (schedule, nominal_at, decided_at, outcome)
           SELECT 'plain', at::timestamptz, at::timestamptz, 99 FROM unnest(ARRAY['-infinity', 'infinity', 'now']) AS at""",
    )
    page = await store.list_schedules(10)
    assert [each.name for each in page.schedules] == names
    assert [len(each.ticks) for each in page.schedules] == [0, 0, 0, 3]
    due = await store.due_schedules(10)
    assert sorted(each.name for each in due.schedules) == ["early", "late", "plain"]
    now = due.now
    ticked = await store.tick([tick_of(each, at=now) for each in due.schedules])
    assert [each.decided for each in ticked] == [True] * 3
    assert (await store.next_due([])).tick is not None


async def test_what_a_registry_owns_isnt_put(store: PostgresStore) -> None:
    """Nor is anything that was put with it; once no worker lives that has it, it can be deleted."""
    shop = Generation(owner="shop", digest="1")
    await store.reconcile_schedules(shop, [schedule("shop/a", owner="shop")], 60)
    with pytest.raises(ScheduleOwned, match="'shop/a' is defined in the code of the registry 'shop'") as caught:
        await store.put_schedules([schedule("b"), schedule("shop/a")])
    assert caught.value.name == "shop/a"
    assert await store.fetch_schedules(["b"]) == [None]
    assert await store.delete_schedules(["shop/a", "b"]) == [ScheduleChange.OWNED, ScheduleChange.NOT_FOUND]


async def test_workers_that_start_together_reconcile_one_after_the_other(postgres_url: str, store: PostgresStore) -> None:
    shop = Generation(owner="shop", digest="1")
    schedules = [schedule(f"shop/{number}", owner="shop") for number in range(20)]
    async with opened(postgres_url) as second:
        stores = [store, second] * 5
        results = await asyncio.gather(*(each.reconcile_schedules(shop, schedules, 60) for each in stores))
    assert sorted(len(each.changed) for each in results) == [0] * 9 + [20]
    assert all(each.current for each in results)


# -- who hears of it --------------------------------------------------------------------------------------------------


async def test_others_hear_of_schedules_and_of_their_jobs(postgres_url: str, store: PostgresStore) -> None:
    async with opened(postgres_url) as second:
        heard: asyncio.Queue[Notification] = asyncio.Queue()

        async def hears(what: Any) -> None:
            while not what(await heard.get()):
                pass

        with second.subscribe(heard.put_nowait):
            await hears(lambda told: told.types is None)  # it listens
            await store.put_schedules([schedule("a")])
            await hears(lambda told: told.schedules)
            await tick_once(store, "a")
            await hears(lambda told: told.types == {"a"})
            await store.pause_schedules(["a"], "", "")
            await store.resume_schedules(["a"])
            await hears(lambda told: told.schedules)
            shop = Generation(owner="shop", digest="1")
            await store.reconcile_schedules(shop, [schedule("shop/a", owner="shop")], 60)
            await hears(lambda told: told.schedules)
