"""What upkeep's walk over gates costs where jobs are held at many, none of which has room: no locks, and few rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.postgres._gates_room import ALL_GATES, ALL_SEQUENCES
from aioqueue.postgres._options_schema import Schema
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.test_plans import bounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())

# 2,000 gates of a limit with one running job and four that are held each; 1,000 of a rate without a start; and 2,000
# sequences of whose five members the first one runs. Keys that are paused, and lanes, are walked past.
FILL = """
ALTER TABLE aioqueue.job SET (autovacuum_enabled = off);
INSERT INTO aioqueue.gate_limit (name, places, per) VALUES ('job:a', 1, NULL), ('rate:r', 3, 3600);
INSERT INTO aioqueue.job (id, type, state, gates) SELECT gen_random_uuid(), 'a', 2, ARRAY['job:a=' || n]
FROM generate_series(1, 2000) AS n;
INSERT INTO aioqueue.job (id, type, state, gate) SELECT gen_random_uuid(), 'a', 0, 'job:a=' || 1 + n % 2000
FROM generate_series(1, 8000) AS n;
INSERT INTO aioqueue.gate_rate (gate, arrival, wake_at)
SELECT 'rate:r=' || n, now(), now() + interval '1 h' FROM generate_series(1, 1000) AS n;
INSERT INTO aioqueue.job (id, type, state, gate) SELECT gen_random_uuid(), 'r', 0, 'rate:r=' || 1 + n % 1000
FROM generate_series(1, 5000) AS n;
INSERT INTO aioqueue.job (id, type, key, state, gate) SELECT gen_random_uuid(), 'p', n % 500, 0, 'pause:' || n % 500
FROM generate_series(1, 5000) AS n;
INSERT INTO aioqueue.job (id, type, state, gate) SELECT gen_random_uuid(), 'f', 0, 'fair:f=' || n % 500
FROM generate_series(1, 5000) AS n;
WITH made AS (
    INSERT INTO aioqueue.job (id, type, state, gates, gate)
    SELECT gen_random_uuid(), 's', CASE WHEN n <= 2000 THEN 2 ELSE 0 END, '{}', 'sequence=' || n % 2000
    FROM generate_series(1, 10000) AS n RETURNING id, state, gate)
INSERT INTO aioqueue.gate_member (chain_id, sequence) SELECT id, split_part(gate, '=', 2) FROM made ORDER BY state DESC;
UPDATE aioqueue.job SET gate = NULL, gates = ARRAY[gate] WHERE type = 's' AND state = 2;
INSERT INTO aioqueue.gate_place (gate, job_id) SELECT gates[1], id FROM aioqueue.job WHERE state = 2;
"""


@pytest.fixture(scope="module", params=["unknown", "analyzed"])
def full_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    async def fill(url: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(FILL)
            if request.param == "analyzed":
                await connection.execute("ANALYZE")
        finally:
            await connection.close()

    with postgres_databases.fresh() as url:
        asyncio.run(fill(url))
        yield url


@pytest.fixture
async def connection(anyio_backend: str, full_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(full_url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize(("walk", "gates", "buffers"), [(ALL_GATES, 5_002, 50_000), (ALL_SEQUENCES, 2_000, 20_000)])
async def test_nobody_has_room(connection: asyncpg.Connection[Any], walk: tuple[str, str], gates: int, buffers: int) -> None:
    """Some ten pages a gate."""
    found, last = (await connection.fetchrow(STATEMENTS["gates_with_room"], *walk, gates)) or ((), None)
    assert found == []
    assert last == "sequence=999"
    plan = await explain(connection, STATEMENTS["gates_with_room"], [*walk, gates])
    bounded(plan, buffers=buffers, rows=15_000)


async def test_the_first_that_have_room(connection: asyncpg.Connection[Any]) -> None:
    """As many as one transaction locks, and the walk ends with those."""
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("UPDATE aioqueue.gate_limit SET places = 2 WHERE name = 'job:a'")
    found, last = (await connection.fetchrow(STATEMENTS["gates_with_room"], *ALL_GATES, 5_000)) or ((), None)
    await transaction.rollback()
    assert len(found) == 200
    assert found == sorted(found)
    assert last == found[-1]
