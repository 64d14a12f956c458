"""Limits on PostgreSQL, with many workers at once: cut connections, and rows that somebody deletes."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import StoreUnavailable
from aioqueue.vocabulary._gates import GateRules
from aioqueue.vocabulary._job import Claim
from tests.postgres.stores import completed, connected, job, opened

if TYPE_CHECKING:
    import asyncpg

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

PLACES = 3
STORES = 5
SLOTS = 4
RULES = {name: GateRules(type=name, shared="few") for name in ("a", "b")}
RUNNING = "SELECT id, claims, lease_id FROM aioqueue.job WHERE state = 2"
LEFT = "SELECT count(*) FROM aioqueue.job"
CUT = """SELECT pg_terminate_backend(pid) FROM (
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'looks' AND query LIKE $1
    ORDER BY random() LIMIT 1) AS one"""
DELETE = """DELETE FROM aioqueue.job WHERE id IN (
    SELECT id FROM aioqueue.job WHERE state = $1 ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)"""


class Samples:
    """Looks who runs, again and again. Each body runs until the next look is over."""

    def __init__(self, connection: asyncpg.Connection[Any], seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._next = asyncio.Event()
        self.most = 0
        self.cut = 0

    async def wait(self) -> None:
        """Wait for the next look."""
        await self._next.wait()

    async def run(self, *, troubles: bool) -> None:
        """Look until no job is left."""
        while await self._connection.fetchval(LEFT):
            running = len(await self._connection.fetch(RUNNING))
            self.most = max(self.most, running)
            self._next.set()
            self._next = asyncio.Event()
            if troubles and self._random.random() < 0.1:
                self.cut += len(await self._connection.fetch(CUT, self._random.choice(["%job%", "%gate%", "COMMIT"])))
            if troubles and self._random.random() < 0.05:
                await self._connection.execute(DELETE, self._random.randrange(3))
            await asyncio.sleep(0)
        self._next.set()


class Runner:
    """A worker with a few slots, whose bodies last until somebody has looked."""

    def __init__(self, store: PostgresStore, lease_id: int, samples: Samples) -> None:
        self._store = store
        self._lease_id = lease_id
        self._samples = samples
        self._slots: set[asyncio.Task[None]] = set()
        self._held: set[Any] = set()

    async def run(self, connection: asyncpg.Connection[Any]) -> None:
        """Claim and settle until it's cancelled."""
        while True:
            try:
                claims = await self._store.claim(self._lease_id, list(RULES), SLOTS - len(self._slots) or 1, gates=RULES)
            except StoreUnavailable:
                await self._give_back(connection)
                continue
            self._held |= {each.id for each in claims}
            self._slots |= {asyncio.create_task(self._body(each)) for each in claims}
            if len(self._slots) >= SLOTS:
                _, self._slots = await asyncio.wait(self._slots, return_when=asyncio.FIRST_COMPLETED)
            elif not claims:
                await self._samples.wait()
            self._slots = {each for each in self._slots if not each.done()}

    async def _body(self, claim: ClaimedJob) -> None:
        await self._samples.wait()
        while True:
            try:
                await self._store.settle([completed(claim)])
            except StoreUnavailable:
                continue
            self._held.discard(claim.id)
            return

    async def _give_back(self, connection: asyncpg.Connection[Any]) -> None:
        """As the lease thread does: what was taken by a claim whose answer was lost."""
        rows = await connection.fetch(f"{RUNNING} AND lease_id = $1", self._lease_id)
        lost = [Claim(row[0], row[1]) for row in rows if row[0] not in self._held]
        while lost:
            try:
                await self._store.release(self._lease_id, lost)
            except StoreUnavailable:
                continue
            return


async def drained(url: str, jobs: int, *, troubles: bool, seed: int = 1) -> Samples:
    async with AsyncExitStack() as stack:
        sampling = await stack.enter_async_context(connected(f"{url}?application_name=looks"))
        await sampling.execute("INSERT INTO aioqueue.gate_limit (name, places) VALUES ('few', $1)", PLACES)
        samples = Samples(sampling, seed)
        stores = [await stack.enter_async_context(opened(url)) for _ in range(STORES)]
        await stores[0].insert([job("ab"[number % 2]) for number in range(jobs)])
        async with asyncio.timeout(120):
            runners = [Runner(store, await store.open_lease("w", 600), samples) for store in stores]
            looking = [await stack.enter_async_context(connected(f"{url}?application_name=looks")) for _ in runners]
            running = [asyncio.create_task(each.run(own)) for each, own in zip(runners, looking, strict=True)]
            try:
                await samples.run(troubles=troubles)
            finally:
                for each in running:
                    each.cancel()
                ended = await asyncio.gather(*running, return_exceptions=True)
        assert [each for each in ended if not isinstance(each, asyncio.CancelledError)] == []
        assert await sampling.fetch("SELECT * FROM aioqueue.gate_place") == []
    return samples


async def test_never_more_than_the_limit_run(postgres_url: str) -> None:
    samples = await drained(postgres_url, 40, troubles=False)
    assert samples.most == PLACES


@pytest.mark.parametrize("jobs", [pytest.param(50, id="brief"), pytest.param(3_000, id="long", marks=pytest.mark.soak)])
async def test_cut_connections_and_deleted_rows(postgres_url: str, jobs: int) -> None:
    samples = await drained(postgres_url, jobs, troubles=True)
    assert samples.most == PLACES
    assert samples.cut > 0
