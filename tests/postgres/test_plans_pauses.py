"""What pauses cost over a big backlog: claims with thousands of paused keys, parking, coming back, counting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import JobFilter, ListOrder
from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._claim_parking import _PARKED_AT_ONCE
from aioqueue.postgres._options_schema import Schema
from aioqueue.postgres._tend_parked import _SWEPT_KEYS
from aioqueue.store_rules._counts import MOST_COUNTED_JOBS
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import connected, opened
from tests.postgres.test_plans import BATCH, bounded, claim_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import asyncpg

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())
PAUSED = 3_000
"""Keys that are paused, each of a few jobs; half of the pauses end sometime. One more has a third of all jobs."""

# Of the type that is claimed the first ones that are due have the large key, and are pending. Others are parked.
FILL = f"""
ALTER TABLE aioqueue.job SET (autovacuum_enabled = off);
INSERT INTO aioqueue.job (id, type, run_at, key, state, gate)
SELECT gen_random_uuid(), CASE n % 7 WHEN 0 THEN 'other' ELSE 'busy' END, now() - interval '1 day' + n * interval '1 ms',
       own.key, CASE WHEN own.parked THEN 0 ELSE 1 END, CASE WHEN own.parked THEN 'pause:' || own.key END
FROM generate_series(1, @rows@) AS n
CROSS JOIN LATERAL (
    SELECT CASE WHEN n <= @rows@ / 3 THEN 'large' WHEN n % 3 = 0 THEN 'key' || n % {PAUSED} END AS key,
           n > @rows@ / 3 AND n % 3 = 0 OR n <= @rows@ / 10 AS parked) AS own;
INSERT INTO aioqueue.pause (target, value, by, reason, until)
SELECT 'key', 'key' || n, '', '', CASE WHEN n % 2 = 0 THEN now() + n * interval '1 hour' END
FROM generate_series(1, {PAUSED}) AS n
UNION ALL SELECT 'key', 'large', '', '', NULL
UNION ALL SELECT 'type', 'none' || n, '', '', NULL FROM generate_series(1, 200) AS n;
INSERT INTO aioqueue.lease (worker, expires_at) VALUES ('living', now() + interval '1 hour');
"""


async def _fill(url: str, rows: int, *, analyze: bool) -> None:
    async with connected(url) as connection:
        await connection.execute(FILL.replace("@rows@", str(rows)))
        if analyze:
            await connection.execute("ANALYZE")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((60_000, False), id="60000-unknown"),
        pytest.param((60_000, True), id="60000-analyzed"),
        pytest.param((1_000_000, False), id="1000000-unknown", marks=pytest.mark.soak),
        pytest.param((1_000_000, True), id="1000000-analyzed", marks=pytest.mark.soak),
    ],
)
def backlog_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    rows, analyze = request.param
    with postgres_databases.fresh() as url:
        asyncio.run(_fill(url, rows, analyze=analyze))
        yield url


@pytest.fixture
async def connection(anyio_backend: str, backlog_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(backlog_url) as connection:
        yield connection


async def test_a_claim_that_only_sees_that_there_are_pauses(connection: asyncpg.Connection[Any]) -> None:
    """It looks at no jobs."""
    plan = await explain(connection, STATEMENTS["claim"], claim_arguments(["busy", "other"], BATCH))
    bounded(plan, buffers=30, rows=1)


@pytest.mark.parametrize("name", ["claim_pausing", "claim_pausing_dry"])
async def test_a_claim_that_meets_nothing_but_a_paused_key(connection: asyncpg.Connection[Any], name: str) -> None:
    bounded(await explain(connection, STATEMENTS[name], claim_arguments(["busy"], BATCH)), buffers=1_500)


async def test_a_claim_of_others_among_many_types(connection: asyncpg.Connection[Any]) -> None:
    names = ["busy", "other", *(f"none{number}" for number in range(50))]
    bounded(await explain(connection, STATEMENTS["claim_pausing"], claim_arguments(names, BATCH // 4)), buffers=3_000)


async def test_parking(connection: asyncpg.Connection[Any]) -> None:
    """A portion looks at as many as it parks, and at none twice."""
    arguments = [["busy", "other"], [2, 2], [None, None], [None, None], _PARKED_AT_ONCE]
    plan = await explain(connection, STATEMENTS["claim_park"], arguments)
    bounded(plan, buffers=100 * _PARKED_AT_ONCE, rows=2 * _PARKED_AT_ONCE)


async def test_one_by_one(connection: asyncpg.Connection[Any]) -> None:
    bounded(await explain(connection, STATEMENTS["claim_candidates"], [*lanes_of(["busy", "other"]), BATCH]), buffers=300)
    job_id = await connection.fetchval("SELECT id FROM aioqueue.job WHERE state = 1 AND key = 'large' LIMIT 1")
    bounded(await explain(connection, STATEMENTS["claim_one"], [[1], job_id, [], []]), buffers=60)
    bounded(await explain(connection, STATEMENTS["claim_park_one"], [job_id]), buffers=120)


async def test_next_due(connection: asyncpg.Connection[Any]) -> None:
    """Of the pauses that end only the first ones are looked at."""
    plan = await explain(
        connection, STATEMENTS["next_due"], [*lanes_of(["busy", "other", "nothing"]), [1], True, None, [], [], 0]
    )
    bounded(plan, buffers=2_000, rows=400)


async def test_keys_that_are_free(connection: asyncpg.Connection[Any]) -> None:
    """A look goes through a bounded number of keys, however many jobs there are of each."""
    plan = await explain(connection, STATEMENTS["tend_free_keys"], ["", _SWEPT_KEYS])
    bounded(plan, buffers=12 * _SWEPT_KEYS, rows=2 * _SWEPT_KEYS)


async def test_coming_back(connection: asyncpg.Connection[Any]) -> None:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("DELETE FROM aioqueue.pause WHERE value = 'large'")
        plan = await explain(connection, STATEMENTS["parked_lock"], [["large", "key3"], 500, []])
        bounded(plan, buffers=4_000, rows=1_000)
        ids = [row[0] for row in await connection.fetch("SELECT id FROM aioqueue.job WHERE gate = 'pause:large' LIMIT 500")]
        bounded(await explain(connection, STATEMENTS["unpark"], [ids]), buffers=60_000, rows=1_000)
    finally:
        await transaction.rollback()


async def test_who_waits(connection: asyncpg.Connection[Any]) -> None:
    """Each is counted to a bound, and so is what is looked at for it."""
    targets, values = ["all", "type", "key"], ["", "busy", "large"]
    plan = await explain(connection, STATEMENTS["pauses_waiting"], [targets, values, MOST_COUNTED_JOBS])
    bounded(plan, buffers=20 * MOST_COUNTED_JOBS, rows=3 * MOST_COUNTED_JOBS)
    bounded(await explain(connection, STATEMENTS["list_pauses"], []), buffers=2_000, rows=2 * PAUSED)


async def test_stored_and_lifted(connection: asyncpg.Connection[Any]) -> None:
    values = [f"key{number}" for number in range(100)]
    names = [["key"] * 100, values, [""] * 100, [""] * 100, [None] * 100]
    bounded(await explain(connection, STATEMENTS["pause"], names), buffers=2_000)
    bounded(await explain(connection, STATEMENTS["resume"], ["key", values, None]), buffers=2_000)


@pytest.mark.parametrize("order", [ListOrder.NEWEST, ListOrder.DUE])
async def test_a_page_of_what_is_held(backlog_url: str, order: ListOrder) -> None:
    """With thousands of keys it's full, and begins with what comes first."""
    async with opened(backlog_url) as store:
        page = await store.list(JobFilter(states=frozenset({"held"})), 50, order=order)
        assert len(page.jobs) == 50
        at = [each.id if order is ListOrder.NEWEST else each.run_at for each in page.jobs]
        assert at == sorted(at, reverse=order is ListOrder.NEWEST)
