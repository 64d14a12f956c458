"""Ticks on PostgreSQL, decided by five at once: with old looks, cut connections, and schedules that come, change and go."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import StoreContended, StoreUnavailable
from aioqueue.vocabulary._unique import Unique
from tests.postgres.schedules import SECOND, fetched, schedule, tick_of
from tests.postgres.stores import job, opened, port_of, proxied
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._schedules import NewSchedule, StoredSchedule

pytestmark = pytest.mark.anyio

WORKERS = 5
CUT_OFF = 3
"""Of the workers: the lines of these are cut."""
SCHEDULES = 300
LATE_SECONDS = 5
"""For so long nobody has decided anything: each schedule has so many ticks that are due, and each is decided by itself."""


CUTS = ("^commit", "insert into .*schedule_tick", "insert into .*job", "for update")
"""What a line is cut after: the server has carried it out, and whoever sent it doesn't know."""


class Ticker:
    """Decides ticks as a worker does, one of each schedule at a time, and often those of a look that is over.

    Arguments:
        store: Its own.
        until: Where it ends.
        seed: For the order in which it takes them, and for how old its looks are.
        proxy: Its line to the server, if that is cut now and then.
    """

    def __init__(self, store: PostgresStore, until: datetime, seed: int, proxy: Proxy | None = None) -> None:
        self.store = store
        self._until = until
        self._random = random.Random(seed)
        self._proxy = proxy
        self._cuts = list(CUTS)
        self.cut = 0
        self.reasons: set[str] = set()

    async def run(self) -> None:
        old: list[StoredSchedule] = []
        while True:
            try:
                due = await self.store.due_schedules(SCHEDULES)
                new = [each for each in due.schedules if next_of(each) <= self._until]
                if not new:
                    return
                for looked in (new, old) if self._random.random() < 0.5 else (new,):
                    if self._proxy is not None and self._cuts and self._random.random() < 0.5:
                        self._proxy.swallow(self._cuts.pop())
                    taken = self._random.sample(looked, len(looked))
                    ticked = await self.store.tick([tick_of(each, at=next_of(each)) for each in taken])
                    self.reasons.update(tick.reason for each in ticked for tick in each.ticks)
                old = new
            except StoreContended:
                pass
            except StoreUnavailable:
                self.cut += 1


def next_of(stored: StoredSchedule) -> datetime:
    return stored.next_at or (stored.last_at or stored.anchor) + SECOND


def keyed(number: int) -> NewSchedule:
    """Some of the schedules' jobs have unique keys that are free again when they start, of which some are others' too."""
    template = job(key=f"k{number % 50}", unique=Unique(until="started")) if number % 3 == 0 else job()
    return schedule(f"s{number:03}", template=template)


@pytest.fixture
async def tickers(postgres_url: str) -> AsyncIterator[list[Ticker]]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(postgres_url))
        await store.put_schedules([keyed(number) for number in range(SCHEDULES)])
        ((until,),) = execute(
            postgres_url,
            f"WITH late AS (UPDATE aioqueue.schedule SET anchor = now() - interval '{LATE_SECONDS + 1} seconds',"
            f"since = now() - interval '{LATE_SECONDS + 1} seconds' RETURNING anchor)"
            f"SELECT max(anchor) + interval '{LATE_SECONDS} seconds' FROM late",
        )
        assert isinstance(until, datetime)
        tickers: list[Ticker] = []
        for number in range(WORKERS):
            proxy = await stack.enter_async_context(Proxy(port_of(postgres_url)))
            own = await stack.enter_async_context(opened(proxied(postgres_url, proxy), notify=False))
            tickers.append(Ticker(own, until, number, proxy if number < CUT_OFF else None))
        yield tickers


def enqueued(url: str) -> dict[str, list[float]]:
    """The jobs and the duplicates by schedule: how many seconds behind the anchor their ticks are."""
    rows = execute(
        url,
        "SELECT t.schedule, coalesce(extract(epoch FROM t.nominal_at - s.anchor), -1)::float8 FROM aioqueue.schedule_tick t "
        "LEFT JOIN aioqueue.schedule s ON s.name = t.schedule ORDER BY t.nominal_at",
    )
    found: dict[str, list[float]] = {}
    for name, second in rows:
        found.setdefault(str(name), []).append(float(str(second)))
    return found


def jobs_of(url: str, where: str = "true") -> list[tuple[object, ...]]:
    """How often each tick has made a job, for those that have made more than one, and how many jobs there are."""
    return execute(
        url,
        "SELECT sum(jobs)::integer, max(jobs)::integer FROM (SELECT count(*) AS jobs FROM aioqueue.job "
        f"WHERE {where} GROUP BY origin::json ->> 'schedule', origin::json ->> 'nominal_time') AS each",
    )


async def patiently(change: Callable[..., Awaitable[object]], *arguments: object) -> None:
    """Change schedules, as a client does: again, where somebody else had locked one for too long."""
    while True:
        try:
            await change(*arguments)
        except StoreUnavailable:
            continue
        return


async def test_each_tick_is_decided_once(postgres_url: str, tickers: list[Ticker]) -> None:
    """Whoever is cut off goes on, whatever became of what it had sent. None is missing, and none has two jobs."""
    async with asyncio.timeout(120):
        await asyncio.gather(*(each.run() for each in tickers))
    wanted = [float(number + 1) for number in range(LATE_SECONDS)]
    decided = enqueued(postgres_url)
    assert {name: times for name, times in decided.items() if times != wanted} == {}
    assert len(decided) == SCHEDULES
    plain = "key IS NULL"
    assert jobs_of(postgres_url, plain) == [(LATE_SECONDS * SCHEDULES * 2 // 3, 1)]
    # Nobody starts any: of those with keys each key has one job.
    assert jobs_of(postgres_url, "key IS NOT NULL") == [(50, 1)]
    assert sum(each.cut for each in tickers) > 0
    # None was decided a second time, to find then that it was enqueued before.
    assert set().union(*(each.reasons for each in tickers)) == {""}


async def test_schedules_that_change_and_go_meanwhile(postgres_url: str, tickers: list[Ticker]) -> None:
    """Those that are changed have all their ticks once, by whichever definition; those that go leave nothing behind."""
    store = tickers[-1].store
    changing = [f"s{number:03}" for number in range(0, SCHEDULES, 7)]
    going = [f"s{number:03}" for number in range(1, SCHEDULES, 7)]
    pausing = [f"s{number:03}" for number in range(2, SCHEDULES, 7)]
    async with asyncio.timeout(120):
        running = [asyncio.create_task(each.run()) for each in tickers]
        rounds = 0
        while not all(each.done() for each in running):
            rounds += 1
            definitions = [schedule(name, template=job(tags=(f"{rounds}",))) for name in changing]
            await patiently(store.put_schedules, definitions)
            await patiently(store.delete_schedules, going[:rounds])
            await patiently(store.pause_schedules, pausing, "", "")
            await patiently(store.resume_schedules, pausing)
        await asyncio.gather(*running)
    decided = enqueued(postgres_url)
    wanted = [float(number + 1) for number in range(LATE_SECONDS)]
    staying = [f"s{number:03}" for number in range(SCHEDULES) if number % 7 not in (1, 2)]
    assert {name: decided[name] for name in staying if decided[name] != wanted} == {}
    assert jobs_of(postgres_url)[0][1] == 1
    gone = going[:rounds]
    assert await store.fetch_schedules(gone) == [None] * len(gone)
    assert not decided.keys() & set(gone)
    assert {each.version > 1 for each in await fetched(store, *changing)} == {True}
