"""What statements about schedules cost where there are many, where there are none, and while somebody keeps an old snapshot."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._options_schema import Schema
from tests.postgres.backlog import Plan, explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import connected, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())
MANY = 20_000
BATCH = 300
START = datetime(2026, 1, 1, tzinfo=UTC)
# Every 200th is due, every 1000th isn't known, and every 7th is paused. Every 20th has ticks.
FILL = f"""
ALTER TABLE aioqueue.schedule SET (autovacuum_enabled = off);
ALTER TABLE aioqueue.schedule_tick SET (autovacuum_enabled = off);
INSERT INTO aioqueue.schedule (name, owner, job_type, template, cron, every, timezone, catch_up, grace, catch_up_limit, overlap,
                               next_at, paused)
SELECT 's' || lpad(n::text, 6, '0'), CASE WHEN n % 100 = 0 THEN 'owner' || n % 1000 END, 'a', '{{}}',
       CASE WHEN n % 2 = 0 THEN '@daily' END, CASE WHEN n % 2 = 1 THEN 60 END, 'UTC', 'latest', 60, 10, 'allow',
       CASE WHEN n % 1000 = 1 THEN NULL WHEN n % 200 = 0 THEN now() - n * interval '1 millisecond'
            ELSE now() + n * interval '1 minute' END, n % 7 = 0
FROM generate_series(1, {MANY}) AS n;
INSERT INTO aioqueue.schedule_tick (schedule, nominal_at, decided_at, outcome)
SELECT 's' || lpad((20 * n)::text, 6, '0'), '2026-01-01 UTC'::timestamptz + tick * interval '1 minute', now(), 1
FROM generate_series(1, {MANY} / 20) AS n CROSS JOIN generate_series(0, 24) AS tick;
"""


def name(number: int) -> str:
    return f"s{number:06}"


NAMES = [name(number) for number in range(20, 20 * BATCH + 1, 20)]


@pytest.fixture(scope="module", params=["unknown", "analyzed"])
def schedules_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    async def fill(url: str) -> None:
        async with connected(url) as connection:
            await connection.execute(FILL)
            if request.param == "analyzed":
                await connection.execute("ANALYZE")

    with postgres_databases.fresh() as url:
        asyncio.run(fill(url))
        yield url


@asynccontextmanager
async def examining(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection that keeps no statements: `explain` drops all that there are."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def connection(anyio_backend: str, schedules_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with examining(schedules_url) as connection:
        yield connection


def bounded(plan: Plan, *, buffers: int, rows: int) -> None:
    """No more rows of any table, and no more pages, than this."""
    assert max((scan[2] for scan in plan.scans), default=0) <= rows, plan.text
    assert plan.sorted <= rows, plan.text
    assert plan.buffers <= buffers, f"{plan.buffers} buffers: {plan.text}"


def definitions(names: list[str]) -> list[Any]:
    count = len(names)
    columns: list[Any] = [None, "a", "{}", None, 60.0, "UTC", "all", 1.0, 5, "skip"]
    return [names, *([each] * count for each in columns)]


MOMENTS = [START + number * timedelta(minutes=1) for number in range(BATCH)]
COSTS: dict[str, tuple[list[Any], int, int]] = {
    "schedules_due": ([BATCH, True, [name(200)], None], 1_000, 1_000),
    "schedules_lock": ([NAMES, [1] * BATCH, [None] * BATCH, [True] * BATCH], 9 * BATCH, BATCH),
    "schedules_first": ([NAMES, [1] * BATCH, [None] * BATCH, [True] * BATCH], 5 * BATCH, BATCH),
    "schedules_wait": ([name(1)], 20, 1),
    "schedules_look": ([NAMES, MOMENTS, []], 8 * BATCH, BATCH),
    "schedules_forget": ([NAMES], 50 * BATCH, 25 * BATCH),
    "schedules_list": (["s010000", 50], 600, 51 * 25),
    "schedules_fetch": ([NAMES], 25 * BATCH, 25 * BATCH),
    "schedules_names": (["s010000", 500], 600, 500),
    "schedules_recompute": ([NAMES], 40 * BATCH, 2 * BATCH),
    "schedules_pause": ([NAMES, "why", "who"], 40 * BATCH, 2 * BATCH),
    "schedules_resume": ([[name(7 * number) for number in range(1, BATCH + 1)]], 40 * BATCH, 2 * BATCH),
    "schedules_lock_named": ([NAMES], 9 * BATCH, BATCH),
    "schedules_delete": ([NAMES], 60 * BATCH, 25 * BATCH),
    "schedules_add": (definitions([f"new{number}" for number in range(BATCH)]), 40 * BATCH, BATCH),
    "schedules_lock_defined": ([NAMES], 9 * BATCH, BATCH),
    "schedules_of_owner": ([[name(100)], "owner100"], 200, 100),
    "schedules_change": (definitions(NAMES), 40 * BATCH, BATCH),
    "schedules_remove": ([[name(1000 * number + 100) for number in range(20)], "owner100"], 1_500, 20 * 25),
    "generations_known": (["owner100"], 10, 1),
    "generations_live": (["owner100", 1, "digest", None, 90.0], 20, 1),
    "generations_forget": (["owner100"], 10, 1),
}
"""Statements with their arguments: how many pages, and rows of one table, they may look at."""


@pytest.mark.parametrize("name", ["next_due", "schedules_due"])
async def test_the_next_tick_is_found_at_once(connection: asyncpg.Connection[Any], name: str) -> None:
    """First of all: others leave behind what they have written and taken back."""
    lanes = [*lanes_of(["a"]), [], True, None, [], [], 0] if name == "next_due" else [1, True, [], None]
    bounded(await explain(connection, STATEMENTS[name], lanes), buffers=60, rows=120)


@pytest.mark.parametrize("statement", COSTS)
async def test_what_a_statement_costs(connection: asyncpg.Connection[Any], statement: str) -> None:
    arguments, buffers, rows = COSTS[statement]
    bounded(await explain(connection, STATEMENTS[statement], arguments), buffers=buffers, rows=rows)


async def test_writing_what_was_decided(connection: asyncpg.Connection[Any]) -> None:
    """300 schedules that are moved on, with a tick each."""
    nothing = [None] * BATCH
    schedules = [NAMES, [True] * BATCH, [START] * BATCH, [START] * BATCH, nothing]
    ticks = [NAMES, [START - timedelta(days=1)] * BATCH, [START] * BATCH, [1] * BATCH, [""] * BATCH, nothing, [1] * BATCH]
    plan = await explain(connection, STATEMENTS["schedules_keep"], [*schedules, *ticks])
    bounded(plan, buffers=60 * BATCH, rows=BATCH)


async def test_what_the_chains_before_have_become(postgres_url: str) -> None:
    """Looked up by index among the live jobs."""
    async with examining(postgres_url) as connection:
        await connection.execute(
            "INSERT INTO aioqueue.job (id, type, chain_id) SELECT gen_random_uuid(), 'a', gen_random_uuid() "
            "FROM generate_series(1, 5000)"
        )
        chains = await connection.fetchval(
            "SELECT array_agg(chain_id) FROM (SELECT chain_id FROM aioqueue.job LIMIT 300) AS few"
        )
        plan = await explain(connection, STATEMENTS["schedules_look"], [NAMES, MOMENTS, list(chains)])
    bounded(plan, buffers=20 * BATCH, rows=BATCH)


async def test_every_statement_is_examined() -> None:
    examined = {*COSTS, "schedules_keep", "schedules_now", "schedules_lock_owner"}
    assert {each for each in STATEMENTS if each.startswith(("schedule", "generation"))} == examined


async def test_without_schedules_looking_for_their_ticks_costs_next_to_nothing(postgres_url: str) -> None:
    """The idle loop asks an empty index twice by the way."""
    statement = STATEMENTS["next_due"]
    before = statement[: statement.index("ELSE false END") + len("ELSE false END")]
    lanes = [*lanes_of(["a"]), [], True]
    async with examining(postgres_url) as connection:
        spent: list[int] = []
        for sql, arguments in ((before, lanes), (statement, [*lanes, None, [], [], 0])):
            await explain(connection, sql, arguments)  # what a session reads of the catalogs only once
            spent.append((await explain(connection, sql, arguments)).buffers)
    assert spent[1] - spent[0] <= 10  # half of it for what may wait at gates


async def test_an_old_snapshot_doesnt_make_looking_dearer(postgres_url: str) -> None:
    """What was decided while somebody keeps one stays in the index: a look that begins behind it doesn't meet it."""
    async with opened(postgres_url, notify=False) as store, examining(postgres_url) as connection:
        await connection.execute(
            "INSERT INTO aioqueue.schedule (name, job_type, template, every, timezone, catch_up, grace, catch_up_limit, "
            "overlap, next_at) SELECT 's' || n, 'a', '{}', 1, 'UTC', 'latest', 60, 10, 'allow', now() - interval '1 hour' "
            "FROM generate_series(1, 100) AS n"
        )
        async with connected(postgres_url) as reader, reader.transaction(isolation="repeatable_read"):
            await reader.fetch("SELECT FROM aioqueue.schedule")
            for _ in range(50):
                await connection.execute("UPDATE aioqueue.schedule SET next_at = next_at + interval '1 second'")
            floor = await connection.fetchval("SELECT min(next_at) FROM aioqueue.schedule")
            lanes = [*lanes_of(["a"]), [], True]
            dear = await explain(connection, STATEMENTS["next_due"], [*lanes, None, [], [], 0])
            assert dear.buffers > 1_000, dear.text
            bounded(await explain(connection, STATEMENTS["next_due"], [*lanes, floor, [], [], 0]), buffers=300, rows=300)
            bounded(await explain(connection, STATEMENTS["schedules_due"], [1, True, [], floor]), buffers=300, rows=300)
            # A store looks from there once looking from the beginning has become slow, and says the same.
            first = await store.next_due(["a"])
            for _ in range(8):
                store._opened.floor._looks.done(time.monotonic() - 1, time.monotonic())
            assert store._opened.floor.begin() is not None
            assert await store.next_due(["a"]) == first
            assert first.tick == 0
