"""What the store's statements about blockers cost over a big backlog, with many edges, whatever the planner knows of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from aioqueue.postgres._insert_columns import job_columns
from aioqueue.postgres._insert_rows import waiting_arguments
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._identifiers import new_id
from tests.postgres.backlog import FILL, Plan, explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())
ROWS, MANY = 50_000, 10_000
TABLES = ("job", "archive", "blocker", "chain_end")
CROWD = "00000000-0000-7000-8000-00000000c0de"
"""The chain for which many wait; the last of them waits for as many others."""

EDGES = f"""
ALTER TABLE aioqueue.blocker SET (autovacuum_enabled = off);
ALTER TABLE aioqueue.chain_end SET (autovacuum_enabled = off);
CREATE TEMPORARY TABLE live AS SELECT id, row_number() OVER (ORDER BY id) AS n FROM aioqueue.job;
CREATE TEMPORARY TABLE past AS SELECT id, row_number() OVER (ORDER BY id) AS n FROM aioqueue.archive;
INSERT INTO aioqueue.job (id, type, marked) VALUES ('{CROWD}', 'crowd', true);
UPDATE aioqueue.job SET state = 0, open_blockers = 2 FROM live WHERE job.id = live.id AND n <= {MANY};
INSERT INTO aioqueue.blocker (job_id, ordinal, chain_id) SELECT id, 0, '{CROWD}' FROM live WHERE n <= {MANY};
INSERT INTO aioqueue.blocker (job_id, ordinal, chain_id)
SELECT one.id, 1, other.id FROM live AS one JOIN live AS other ON other.n = one.n + {MANY} WHERE one.n < {MANY};
INSERT INTO aioqueue.blocker (job_id, ordinal, chain_id)
SELECT (SELECT id FROM live WHERE n = {MANY}), n, id FROM live WHERE n BETWEEN {MANY} + 1 AND 2 * {MANY};
INSERT INTO aioqueue.blocker (job_id, ordinal, chain_id, resolved)
SELECT live.id, 0, past.id, true FROM live JOIN past USING (n) WHERE n BETWEEN 3 * {MANY} AND 4 * {MANY};
INSERT INTO aioqueue.chain_end (chain_id, state, type, output)
SELECT id, 4, 'past', '"output"' FROM past WHERE n BETWEEN 3 * {MANY} AND 4 * {MANY};
"""


async def _fill(url: str, *, analyze: bool) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(FILL.replace("@rows@", str(ROWS)))
        await connection.execute(EDGES)
        if analyze:
            await connection.execute("ANALYZE")
    finally:
        await connection.close()


@pytest.fixture(scope="module", params=[pytest.param(False, id="unknown"), pytest.param(True, id="analyzed")])
def edges_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres_databases.fresh() as url:
        asyncio.run(_fill(url, analyze=request.param))
        yield url


@pytest.fixture
async def connection(anyio_backend: str, edges_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(edges_url, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


def bounded(plan: Plan, *, buffers: int, rows: int) -> None:
    """No scan of a whole table, and no more pages and rows than these."""
    whole = [scan for scan in plan.scans if scan[0] == "Seq Scan" and scan[1] in TABLES]
    assert not whole, plan.text
    assert max((scan[2] for scan in plan.scans), default=0) <= rows, plan.text
    assert plan.buffers <= buffers, plan.text


async def ids(connection: asyncpg.Connection[Any], table: str, count: int, offset: int) -> list[UUID]:
    rows = await connection.fetch(f"SELECT id FROM aioqueue.{table} ORDER BY id LIMIT $1 OFFSET $2", count, offset)
    assert len(rows) == count
    return [UUID(str(row[0])) for row in rows]


async def test_insert(connection: asyncpg.Connection[Any]) -> None:
    jobs = [job() for _ in range(100)]
    arguments = waiting_arguments(jobs, None, [[1] * 100, [True] * 100])
    bounded(await explain(connection, STATEMENTS["insert_waiting"], arguments), buffers=2_500, rows=200)


@pytest.mark.parametrize("kind", ["live", "ended", "gone", "the crowd's"])
@pytest.mark.parametrize("name", ["blockers_mark", "ends_found", "blockers_left"])
async def test_finding_chains(connection: asyncpg.Connection[Any], name: str, kind: str) -> None:
    asked = {
        "live": await ids(connection, "job", 100, MANY),
        "ended": await ids(connection, "archive", 100, 3 * MANY),
        "gone": [new_id() for _ in range(100)],
        "the crowd's": [UUID(CROWD)],
    }[kind]
    bounded(await explain(connection, STATEMENTS[name], [asked]), buffers=40 * len(asked) + 50, rows=300)


async def test_storing_ends(connection: asyncpg.Connection[Any]) -> None:
    """Of which half are stored already."""
    ended = await ids(connection, "archive", 100, 3 * MANY - 50)
    arguments = [ended, ended, [""] * 100]
    bounded(await explain(connection, STATEMENTS["ends_stored"], arguments), buffers=3_000, rows=300)


async def test_adding_edges(connection: asyncpg.Connection[Any]) -> None:
    count = 1_000
    new, asked = [new_id() for _ in range(count)], await ids(connection, "job", count, MANY)
    arguments = [new, [0] * count, asked, [False] * count, ["[]"] * count]
    bounded(await explain(connection, STATEMENTS["blockers_add"], arguments), buffers=20 * count, rows=0)


async def test_walking(connection: asyncpg.Connection[Any]) -> None:
    """From a job that waits for many; what those wait for is all that is read."""
    (last,) = await ids(connection, "job", 1, MANY)
    bounded(await explain(connection, STATEMENTS["blockers_cycles"], [[last]]), buffers=14 * MANY, rows=2 * MANY + 10)
    bounded(await explain(connection, STATEMENTS["blockers_lead_on"], [[last], []]), buffers=14 * MANY, rows=2 * MANY + 10)
    first = await ids(connection, "job", 1, 1)
    bounded(await explain(connection, STATEMENTS["blockers_cycles"], [first]), buffers=100, rows=10)


async def test_what_claimed_jobs_have_waited_for(connection: asyncpg.Connection[Any]) -> None:
    """A hundred marked ones, and one that has waited for many."""
    some = await ids(connection, "job", 100, 3 * MANY + 5)
    bounded(await explain(connection, STATEMENTS["claim_blockers"], [some]), buffers=1_500, rows=200)
    many = await ids(connection, "job", 1, MANY)
    bounded(await explain(connection, STATEMENTS["claim_blockers"], [many]), buffers=20 * MANY, rows=MANY + 10)


async def test_listing(connection: asyncpg.Connection[Any]) -> None:
    (last,) = await ids(connection, "job", 1, MANY)
    for after in (-1, 2 * MANY - 100):
        bounded(await explain(connection, STATEMENTS["list_blockers"], [last, after, 101]), buffers=2_500, rows=500)
    bounded(await explain(connection, STATEMENTS["list_dependents"], [CROWD, 101]), buffers=2_500, rows=500)


async def test_operating(connection: asyncpg.Connection[Any]) -> None:
    for table, offset in (("job", 2 * MANY), ("archive", 3 * MANY)):
        some = await ids(connection, table, 100, offset)
        for name in ("retry_find", "retry_edges", "retry_ended", "delete_lock"):
            bounded(await explain(connection, STATEMENTS[name], [some]), buffers=6_000, rows=500)
        bounded(await explain(connection, STATEMENTS["retry_revive"], [some, [0] * 100]), buffers=8_000, rows=500)
        bounded(await explain(connection, STATEMENTS["retry_dependents"], [some]), buffers=6_000, rows=500)
        bounded(await explain(connection, STATEMENTS["delete"], [some, 1_000, False]), buffers=12_000, rows=500)


@pytest.mark.parametrize("name", ["replace_lock", "insert_holders", "windows_within"])
async def test_keys(connection: asyncpg.Connection[Any], name: str) -> None:
    keys = [new_id() for _ in range(100)]
    arguments = [keys, keys] if name == "insert_holders" else [keys]
    bounded(await explain(connection, STATEMENTS[name], arguments), buffers=4_000, rows=200)


async def test_windows_and_replacing(connection: asyncpg.Connection[Any]) -> None:
    live = await ids(connection, "job", 100, MANY)
    windows = [[new_id() for _ in live], live, [60.0] * 100, [False] * 100]
    bounded(await explain(connection, STATEMENTS["windows_keep"], windows), buffers=2_500, rows=200)
    jobs = [job(max_delay=1.0) for _ in live]
    empty: list[None] = [None] * 100
    arguments = [live, *job_columns(jobs), empty, [1.0] * 100, [False] * 100, [0] * 100, "somebody", [False] * 100]
    # One of them waits for that many.
    bounded(await explain(connection, STATEMENTS["replace"], arguments), buffers=15 * MANY, rows=MANY + 10)
    bounded(await explain(connection, STATEMENTS["over_windows"], [1_000]), buffers=5_000, rows=1_000)


async def test_ids_that_may_be_there(connection: asyncpg.Connection[Any]) -> None:
    """Chosen ones are looked for everywhere."""
    jobs = [job(key=str(number)) for number in range(100)]
    arguments = waiting_arguments(jobs, None, [[0] * 100, [False] * 100])
    bounded(await explain(connection, STATEMENTS["insert_waiting_repeated"], arguments), buffers=4_000, rows=200)
    live = await ids(connection, "job", 100, MANY)
    for name in ("insert_lock", "insert_take_back", "unique_types"):
        bounded(await explain(connection, STATEMENTS[name], [live]), buffers=2_500, rows=200)
