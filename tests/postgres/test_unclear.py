"""The connection is cut between a commit and its answer: what is called again finds what was written, and writes nothing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import StoreUnavailable
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import opened, port_of, proxied
from tests.postgres_server import execute
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

INSERT = r"insert into .*\bjob\b"
SETTLE = r"insert into .*\barchive\b"
SLOW_SETTLE = r"^(?!.*not j\.marked).*insert into .*\barchive\b"
GIVE_BACK = r"update .*set state = 1"
CLAIM = r"update .*set state = 2"


@asynccontextmanager
async def cut_off(url: str) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """A store whose line the test may cut."""
    async with Proxy(port_of(url)) as proxy, opened(proxied(url, proxy), notify=False) as store:
        yield store, proxy


async def lost(proxy: Proxy, pattern: str, call: Callable[[], Awaitable[object]]) -> None:
    """The call's answer is lost, and it says so."""
    proxy.swallow(pattern)
    with pytest.raises(StoreUnavailable):
        await call()
    await proxy.swallowed.wait()


async def claimed(store: PostgresStore, jobs: int = 2) -> tuple[int, list[ClaimedJob]]:
    await store.insert([NewJob(id=new_id(), type="a") for _ in range(jobs)])
    lease_id = await store.open_lease("w", 600)
    return lease_id, list(await store.claim(lease_id, ["a"], jobs))


@pytest.mark.parametrize("way", ["plain", "unique", "many", "ended since"])
async def test_an_insert(postgres_url: str, way: str) -> None:
    async with cut_off(postgres_url) as (store, proxy):
        count = 2_500 if way == "many" else 3
        jobs = [NewJob(id=new_id(), type="a", key=f"{n}", unique=Unique() if way == "unique" else None) for n in range(count)]
        await lost(proxy, INSERT if way in ("plain", "ended since") else "^commit", lambda: store.insert(jobs))
        if way == "ended since":
            lease_id = await store.open_lease("w", 600)
            for each in await store.claim(lease_id, ["a"], 1):
                done = Settlement(id=each.id, claims=1, lease_id=lease_id, kind=SettlementKind.COMPLETED)
                await store.settle([done])
        results = await store.insert(jobs, repeated=True)
        assert [result.id for result in results] == [job.id for job in jobs]
        rows = execute(postgres_url, "select id from aioqueue.job union all select id from aioqueue.archive")
        assert sorted(row[0] for row in rows) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("kind", list(SettlementKind))
@pytest.mark.parametrize("slow", [False, True])
async def test_a_settlement(postgres_url: str, kind: SettlementKind, slow: bool) -> None:
    async with cut_off(postgres_url) as (store, proxy):
        lease_id, jobs = await claimed(store)
        if slow:
            execute(postgres_url, "update aioqueue.job set marked = true")
        settlements = [
            Settlement(
                id=job.id,
                claims=job.claims,
                lease_id=lease_id,
                kind=kind,
                outcome="once",
                next=NewJob(id=new_id(), type="a") if kind is SettlementKind.CONTINUED else None,
            )
            for job in jobs
        ]
        await lost(proxy, SLOW_SETTLE if slow else SETTLE, lambda: store.settle(settlements))
        assert [result.lost for result in await store.settle(settlements)] == [None, None]
        (state,) = execute(
            postgres_url,
            "select (select count(*) from aioqueue.job where state = 1), (select count(*) from aioqueue.archive), "
            "(select max(reschedules) from aioqueue.job), (select max(attempt) from aioqueue.job)",
        )
    if kind is SettlementKind.CONTINUED:
        assert state == (2, 2, 0, 0)
    elif kind < SettlementKind.RETRIED:
        assert state == (0, 2, None, None)
    else:
        rescheduled = kind is SettlementKind.RESCHEDULED
        assert state == (2, 0, int(rescheduled), int(not rescheduled))


@pytest.mark.parametrize("end", [False, True])
async def test_a_release(postgres_url: str, end: bool) -> None:
    """No attempt is used, and none is given back twice."""
    async with cut_off(postgres_url) as (store, proxy):
        lease_id, jobs = await claimed(store)
        claims = [job.claim for job in jobs]
        await lost(proxy, "^commit" if end else GIVE_BACK, lambda: store.release(lease_id, claims, end=end))
        await store.release(lease_id, claims, end=end)
        assert execute(postgres_url, "select state, attempt, claims from aioqueue.job") == [(1, 0, 1)] * 2
        other = await store.open_lease("other", 600)
        again = await store.claim(other, ["a"], 10)
        await store.release(lease_id, claims, end=end)
        assert {job.id for job in again} == {job.id for job in jobs}
        assert execute(postgres_url, "select state, attempt, claims from aioqueue.job") == [(2, 1, 2)] * 2


async def test_a_claim(postgres_url: str) -> None:
    """Nobody runs what it took: the next renewal says so, and it's given back."""
    async with cut_off(postgres_url) as (store, proxy):
        await store.insert([NewJob(id=new_id(), type="a") for _ in range(3)])
        lease_id = await store.open_lease("w", 600)
        await lost(proxy, CLAIM, lambda: store.claim(lease_id, ["a"], 3))
        session = store.lease_session()
        try:
            renewal = await asyncio.to_thread(session.renew, lease_id, 600, [])
            assert len(renewal.unheld) == 3
        finally:
            await asyncio.to_thread(session.close)
        await store.release(lease_id, renewal.unheld)
        assert {(job.attempt, job.claims) for job in await store.claim(lease_id, ["a"], 5)} == {(1, 2)}
