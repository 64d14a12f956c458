"""What pages of listings cost over a big backlog, whatever the planner knows of it: that of `benchmarks/listing.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.abc import ListOrder
from aioqueue.postgres._listing_page import PageQuery
from aioqueue.postgres._listing_parts import FEW, LOOK, WALK
from aioqueue.postgres._options_schema import Schema
from benchmarks.listing import ARCHIVED, LEASES, LIVE, filters, orders_of
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.test_plans import bounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

SCHEMA = Schema()
LIMIT = 50
# Of each table: a walk, the few, and the short walk before them; and once more what one page has of 80 ranges.
ROWS = 2 * (WALK + FEW + LOOK) + 80 * (LIMIT + 1)
SCANS = {
    "tag rare",
    "tag unknown",
    "created after",
    "created between",
    "error",
    "error rare",
    "error unknown",
    "finished after",
    "key, failed, no rows",
}
"""Filters of which pages are short."""


async def _fill(url: str, live: int, archived: int, *, analyze: bool) -> None:
    connection = await asyncpg.connect(url)
    try:
        for table in ("job", "archive"):
            await connection.execute(f"ALTER TABLE aioqueue.{table} SET (autovacuum_enabled = off)")
        await connection.execute(ARCHIVED, 1, archived)
        await connection.execute(LIVE, archived + 1, archived + live)
        await connection.execute(LEASES)
        if analyze:
            await connection.execute("ANALYZE")
    finally:
        await connection.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((50_000, 100_000, False), id="150000-unknown"),
        pytest.param((50_000, 100_000, True), id="150000-analyzed"),
        pytest.param((400_000, 1_000_000, False), id="1400000-unknown", marks=pytest.mark.soak),
        pytest.param((400_000, 1_000_000, True), id="1400000-analyzed", marks=pytest.mark.soak),
    ],
)
def backlog(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    live, archived, analyze = request.param
    with postgres_databases.fresh() as url:
        asyncio.run(_fill(url, live, archived, analyze=analyze))
        yield url, archived


@pytest.fixture
async def connection(anyio_backend: str, backlog: tuple[str, int]) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(backlog[0])
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("name", filters(0))
async def test_a_page_looks_at_a_bounded_number_of_rows(
    connection: asyncpg.Connection[Any], backlog: tuple[str, int], name: str
) -> None:
    """The first one, and one in the middle."""
    where = filters(backlog[1])[name]
    for order in orders_of(where):
        cursor = None
        for _ in range(2):
            query = PageQuery(SCHEMA, where, LIMIT, cursor, order=order)
            plan = await explain(connection, query.sql, query.arguments)
            bounded(plan, buffers=40_000, rows=ROWS)
            page = query.read(await connection.fetch(query.sql, *query.arguments))
            assert len(page.jobs) == LIMIT or page.cursor is None or name in SCANS or order in by_time(name), order
            cursor = page.cursor
            if cursor is None:
                break


def by_time(name: str) -> set[ListOrder]:
    """Orders in which pages of this filter are short, too."""
    return set() if name in {"all", "ends"} or name.startswith("state") else {ListOrder.DUE, ListOrder.FINISHED}


async def test_ids_for_changes_to_many(connection: asyncpg.Connection[Any], backlog: tuple[str, int]) -> None:
    for name in ("type", "types, 20", "state failed", "ends"):
        query = PageQuery(SCHEMA, filters(backlog[1])[name], 1_000, None, only_ids=True)
        plan = await explain(connection, query.sql, query.arguments)
        bounded(plan, buffers=80_000, rows=30_000)


@pytest.mark.parametrize("key", ["common", "rare", "nothing"])
async def test_finding(connection: asyncpg.Connection[Any], key: str) -> None:
    plan = await explain(connection, all_statements(SCHEMA)["find"], [["bench.type3", "bench.type4"], key, []])
    bounded(plan, buffers=2_000)
