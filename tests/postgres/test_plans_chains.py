"""What the store's statements about chains cost over a big backlog, and with a chain of 100,000 steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from aioqueue.postgres._insert_columns import job_columns
from aioqueue.postgres._options_schema import Schema
from tests.postgres.backlog import FILL, FILL_CHAIN, explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import job
from tests.postgres.test_plans import bounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())
ROWS, STEPS = 50_000, 100_000
FEW = """UPDATE aioqueue.job SET chain_id = id, id = gen_random_uuid(), position = 1, state = 2, claims = 1, attempt = 1,
    started_at = now(), lease_id = 1, unique_key = gen_random_uuid() FROM (
    SELECT id AS old FROM aioqueue.job WHERE type = 'busy' AND run_at < now() ORDER BY id LIMIT 100) AS first WHERE old = id"""


async def _fill(url: str, *, analyze: bool) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(FILL.replace("@rows@", str(ROWS)))
        await connection.execute(FILL_CHAIN)
        if analyze:
            await connection.execute("ANALYZE")
        await connection.execute("INSERT INTO aioqueue.lease (worker, expires_at) VALUES ('living', now() + interval '1 hour')")
        # A hundred chains whose second steps are running.
        await connection.execute(FEW)
    finally:
        await connection.close()


@pytest.fixture(scope="module", params=[pytest.param(False, id="unknown"), pytest.param(True, id="analyzed")])
def backlog_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres_databases.fresh() as url:
        asyncio.run(_fill(url, analyze=request.param))
        yield url


@pytest.fixture
async def connection(anyio_backend: str, backlog_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(backlog_url)
    try:
        yield connection
    finally:
        await connection.close()


async def long_chain(connection: asyncpg.Connection[Any]) -> tuple[UUID, UUID, UUID]:
    """The ids of its first, of a middle and of its last step."""
    ids = await connection.fetchval(
        "SELECT array_agg(id ORDER BY position) FROM aioqueue.archive WHERE type = 'step' AND position = ANY($1)",
        [0, STEPS // 2, STEPS],
    )
    return ids[0], ids[1], ids[2]


async def running(connection: asyncpg.Connection[Any]) -> list[Any]:
    return list(await connection.fetch("SELECT id, chain_id FROM aioqueue.job WHERE state = 2 AND lease_id = 1"))


@pytest.mark.parametrize("name", ["settle_continued", "settle_slowly_continued"])
async def test_settle(connection: asyncpg.Connection[Any], name: str) -> None:
    rows = await running(connection)
    assert len(rows) == 100
    count, nothing = len(rows), [None] * len(rows)
    arguments = [
        [row[0] for row in rows],
        [1] * count,
        [1] * count,
        [5] * count,
        *[nothing] * 5,
        "somebody",
        [row[0] for row in rows],
        *job_columns([job() for _ in rows]),
        *([[0] * count, []] if name == "settle_slowly_continued" else []),
    ]
    plan = await explain(connection, STATEMENTS[name], arguments)
    bounded(plan, buffers=9_000, rows=10_000)


@pytest.mark.parametrize("many", [False, True])
async def test_fetch_ends(connection: asyncpg.Connection[Any], many: bool) -> None:
    """By any step's id, of a long chain too; of a thousand others."""
    if many:
        ids = [row[0] for row in await connection.fetch("SELECT id FROM aioqueue.archive WHERE chain_id IS NULL LIMIT 400")]
        ids += [row[0] for row in await connection.fetch("SELECT id FROM aioqueue.job ORDER BY id DESC LIMIT 400")]
        ids += [each for row in await running(connection) for each in row]
    else:
        ids = list(await long_chain(connection))
    bounded(await explain(connection, STATEMENTS["fetch_ends"], [ids]), buffers=24 * len(ids) + 50)


@pytest.mark.parametrize("after", [-1, STEPS // 2, STEPS - 10])
async def test_a_page_of_a_long_chain(connection: asyncpg.Connection[Any], after: int) -> None:
    chain_id, _, _ = await long_chain(connection)
    bounded(await explain(connection, STATEMENTS["list_chain"], [chain_id, after, 101]), buffers=250)


@pytest.mark.parametrize("name", ["retry_find", "run_now", "delete_lock"])
async def test_operating_on_a_long_chain(connection: asyncpg.Connection[Any], name: str) -> None:
    bounded(await explain(connection, STATEMENTS[name], [list(await long_chain(connection))]), buffers=200)


async def test_deleting_chains(connection: asyncpg.Connection[Any]) -> None:
    """What is deleted is read, nothing else."""
    first, _, _ = await long_chain(connection)
    bounded(await explain(connection, STATEMENTS["delete"], [[first], 1_000, False]), buffers=20_000, rows=4_000)
    bounded(await explain(connection, STATEMENTS["delete_steps"], [[first], 999]), buffers=20_000, rows=4_000)
    pending = await connection.fetch("SELECT id FROM aioqueue.job WHERE state = 1 ORDER BY id DESC LIMIT 100")
    bounded(await explain(connection, STATEMENTS["delete"], [[row[0] for row in pending], 1_000, False]), buffers=4_000)


async def test_a_repeated_insert(connection: asyncpg.Connection[Any]) -> None:
    """Of what is there, of what isn't, and of the first step of a long chain."""
    first, _, _ = await long_chain(connection)
    jobs = [job() for _ in range(100)]
    columns = job_columns(jobs)
    columns[0] = [first, *(row[0] for row in await running(connection))][: len(jobs)]
    nothing = [None] * len(jobs)
    bounded(await explain(connection, STATEMENTS["insert_repeated"], [*columns, nothing, nothing, None]), buffers=8_000)
    bounded(await explain(connection, STATEMENTS["insert_holders"], [columns[0], [first]]), buffers=4_000)
    bounded(await explain(connection, STATEMENTS["insert_take_back"], [columns[0]]), buffers=4_000)
