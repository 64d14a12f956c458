"""Retention on PostgreSQL: beside others who retry, hold rows or do the same; in bounded portions, whole chains at last."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.postgres import _retention
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._answers import Changed
from aioqueue.vocabulary._job import Settlement, SettlementKind, StoredState
from tests.postgres.backlog import FILL_CHAIN, explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import claimed, connected, opened
from tests.postgres.test_plans import bounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

AT_ONCE = dict.fromkeys((StoredState.COMPLETED, StoredState.CONTINUED, StoredState.FAILED, StoredState.CANCELLED), 0.0)
ROWS = 60_000
FILL = f"""
ALTER TABLE aioqueue.archive SET (autovacuum_enabled = off);
INSERT INTO aioqueue.archive (id, type, priority, run_at, state, attempt, claims, reschedules, position, created_at,
                              finished_at, tags, metadata, payload, errors, keep, purge_at, chain_id)
SELECT gen_random_uuid(), 'a', 2, now(), CASE WHEN n % 100 = 0 THEN 6 WHEN n % 10 = 1 THEN 5 ELSE 4 END, 1, 1, 0, n % 10, now(),
       now() - n * interval '1 second', '{{}}', '{{}}', '{{}}', '{{}}', CASE WHEN n % 3 = 0 THEN 1e6 END,
       CASE WHEN n % 3 = 0 THEN now() - n * interval '1 second' + interval '1000000 seconds' END,
       CASE WHEN n % 10 = 1 THEN gen_random_uuid() END
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO aioqueue.job (id, type) SELECT gen_random_uuid(), 'a' FROM generate_series(1, 5000);
INSERT INTO aioqueue.phase (job_id, name, state, claims, started_at)
SELECT id, 'one', 4, 1, now() FROM aioqueue.archive WHERE state = 4 LIMIT 5000;
"""


async def failed(store: PostgresStore, number: int) -> list[UUID]:
    lease_id, jobs = await claimed(store, jobs=number)
    kind = SettlementKind.FAILED
    await store.settle([Settlement(id=each.id, claims=each.claims, lease_id=lease_id, kind=kind) for each in jobs])
    return [each.id for each in jobs]


async def test_whoever_retries_wins_or_comes_too_late(postgres_url: str) -> None:
    """A chain that an open transaction retries is neither waited for nor removed; what a trigger keeps stops no other."""
    async with opened(postgres_url) as store, connected(postgres_url) as other, asyncio.timeout(60):
        first, second, third = await failed(store, 3)
        await other.execute(
            "CREATE FUNCTION aioqueue.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$;"
            f"CREATE TRIGGER kept BEFORE DELETE ON aioqueue.archive FOR EACH ROW WHEN (OLD.id = '{third}')"
            "EXECUTE FUNCTION aioqueue.no()"
        )
        async with other.transaction():
            assert await store.within(other).retry([second]) == [Changed.DONE]
            assert list(await store.purge([first, second, third], AT_ONCE)) == [first]
        assert list(await store.purge([first, second, third], AT_ONCE)) == []
        assert [found is not None for found in await store.fetch([first, second, third])] == [False, True, True]


async def test_two_who_purge_at_once_remove_each_chain_once(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        ids = await failed(store, 300)
        removed: list[UUID] = []

        async def purge(store: PostgresStore) -> None:
            cursor: str | None = None
            begun = False
            while cursor is not None or not begun:
                page = await store.find_old(AT_ONCE, 20, cursor)
                removed.extend(await store.purge(page.ids, AT_ONCE))
                cursor, begun = page.cursor, True

        await asyncio.gather(purge(store), purge(other))
        assert sorted(removed) == sorted(ids)


async def test_a_long_chain_goes_in_portions_its_end_last(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several commits, in each of which the end is still there that the rest is found by; others beside it go, too."""
    monkeypatch.setattr(_retention, "_MOST_STEPS", 30_000)
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        (other,) = await failed(store, 1)
        await connection.execute(FILL_CHAIN.replace("100000", "70000"))
        found = await store.find_old({StoredState.FAILED: 0.0}, 100)
        assert len(found.ids) == 2
        assert other in found.ids
        monkeypatch.setattr(_retention, "_MOST_PORTIONS", 2)
        assert list(await store.purge(found.ids, {StoredState.FAILED: 0.0})) == [other]
        assert await connection.fetchval("SELECT count(*) FROM aioqueue.archive WHERE state = 6") == 1
        assert await connection.fetchval("SELECT count(*) FROM aioqueue.archive") in range(2, 20_000)
        (left,) = (await store.find_old({StoredState.FAILED: 0.0}, 100)).ids
        assert list(await store.purge([left], {StoredState.FAILED: 0.0})) == [left]
        assert await connection.fetchval("SELECT count(*) FROM aioqueue.archive") == 0


async def test_one_of_many_has_the_duty_and_nobody_waits(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as holder, asyncio.timeout(60):
        taken = await asyncio.gather(*[store.take_duty("retention", f"worker {number}", 600) for number in range(10)])
        assert sum(taken) == 1
        mine = f"worker {taken.index(True)}"
        async with holder.transaction():
            await holder.execute("SELECT FROM aioqueue.duty FOR UPDATE")
            assert not await store.take_duty("retention", mine, 600)
            assert await store.take_duty("another", mine, 600)
        assert await store.take_duty("retention", mine, 600)
        assert not await store.take_duty("retention", mine, 0)
        assert await store.take_duty("retention", "next", float("inf"))


@pytest.fixture
async def backlog(postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(postgres_url, statement_cache_size=0)  # the same text is explained twice
    try:
        await connection.execute(FILL)
        yield connection
    finally:
        await connection.close()


async def test_what_a_portion_looks_at_is_bounded(backlog: asyncpg.Connection[Any]) -> None:
    """Whatever the planner knows, whatever is passed by, from the beginning and from the middle."""
    statements = all_statements(Schema())
    ages = [4, 5, 6], ["604800", "600", "1000000"]
    middle = await backlog.fetchval("SELECT to_json(now() - interval '20000 s') #>> '{}'")
    for _ in range(2):
        for cursor in ("-infinity", middle):
            arguments = [*ages, cursor, "00000000-0000-0000-0000-000000000000", 500]
            bounded(await explain(backlog, statements["find_old"], arguments), buffers=12_000, rows=6_000)
        oldest = "SELECT id FROM aioqueue.archive WHERE state = 4 ORDER BY finished_at LIMIT 500"
        ids = [row[0] for row in await backlog.fetch(oldest)]
        plan = await explain(backlog, statements["purge"], [ids, [4], ["0"], 1_000])
        bounded(plan, buffers=40_000, rows=6_000)
        plan = await explain(backlog, statements["fetch"], [ids[:50]])
        bounded(plan, buffers=2_000, rows=500)
        await backlog.execute("ANALYZE")


async def test_leases_that_ended_long_ago_are_forgotten(postgres_url: str) -> None:
    """Not those that are still there, however old."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        old, living = [await store.open_lease(name, 600) for name in ("old", "living")]
        await store.release(old, [], end=True)
        await connection.execute("UPDATE aioqueue.past_lease SET opened_at = now() - interval '91 days'")
        new = await store.open_lease("new", 600)
        assert {row[0] for row in await connection.fetch("SELECT id FROM aioqueue.past_lease")} == {living, new}
