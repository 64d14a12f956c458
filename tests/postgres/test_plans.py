"""What the store's statements cost over a big backlog, whatever the planner knows of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from aioqueue.postgres._claim_lanes import lanes_of
from aioqueue.postgres._options_schema import Schema
from tests.postgres.backlog import FILL, Plan, explain
from tests.postgres.statements import all_statements

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

SCHEMA = Schema()
STATEMENTS = all_statements(SCHEMA)
BATCH = 100


async def _fill(url: str, rows: int, *, analyze: bool) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(FILL.replace("@rows@", str(rows)))
        if analyze:
            await connection.execute("ANALYZE")
        lease = "INSERT INTO aioqueue.lease (worker, expires_at) VALUES ($1, now() + $2 * interval '1 hour')"
        await connection.execute(lease, "living", 1)
        await connection.execute(lease, "dead", -1)
        # A hundred running jobs for each of the two.
        await connection.execute(
            "UPDATE aioqueue.job SET state = 2, claims = 1, attempt = 1, started_at = now(), lease_id = half FROM ("
            "SELECT id, 1 + row_number() OVER (ORDER BY id) % 2 AS half FROM aioqueue.job "
            "WHERE type = 'busy' AND state = 1 AND run_at < now() ORDER BY id LIMIT 200) AS first WHERE first.id = job.id"
        )
    finally:
        await connection.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((100_000, False), id="100000-unknown"),
        pytest.param((100_000, True), id="100000-analyzed"),
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
    connection = await asyncpg.connect(backlog_url)
    try:
        yield connection
    finally:
        await connection.close()


def bounded(plan: Plan, *, buffers: int, rows: int = 2_000) -> None:
    """No scan of a whole table, no sort of one, and no more pages than this."""
    whole = [scan for scan in plan.scans if scan[0] == "Seq Scan" and scan[1] in ("job", "archive")]
    assert not whole, plan.text
    assert max((scan[2] for scan in plan.scans), default=0) <= rows, plan.text
    assert plan.sorted <= rows, plan.text
    assert plan.buffers <= buffers, f"{plan.buffers} buffers: {plan.text}"


def claim_arguments(types: Sequence[str], heads: int) -> list[Any]:
    names, priorities = lanes_of(types)
    return [[1], BATCH, names, priorities, [None] * len(names), [None] * len(names), heads, [], [], [0] * len(names)]


@pytest.mark.parametrize(("types", "buffers"), [(1, 3_000), (10, 4_000), (50, 6_000)])
async def test_claim(connection: asyncpg.Connection[Any], types: int, buffers: int) -> None:
    names = ["busy", *(f"other{4 * number}" for number in range(types - 1))]
    heads = BATCH if types < 3 else BATCH // 4
    bounded(await explain(connection, STATEMENTS["claim"], claim_arguments(names, heads)), buffers=buffers, rows=5_000)


async def test_a_claim_of_nothing(connection: asyncpg.Connection[Any]) -> None:
    bounded(await explain(connection, STATEMENTS["claim"], claim_arguments(["nothing"], BATCH)), buffers=200)


async def test_next_due(connection: asyncpg.Connection[Any]) -> None:
    bounded(
        await explain(
            connection, STATEMENTS["next_due"], [*lanes_of(["busy", "other0", "nothing"]), [1], True, None, [], [], 0]
        ),
        buffers=400,
    )


async def running(connection: asyncpg.Connection[Any], lease_id: int) -> list[Any]:
    return list(await connection.fetch("SELECT id, claims FROM aioqueue.job WHERE state = 2 AND lease_id = $1", lease_id))


@pytest.mark.parametrize("kind", [4, 6, 8, 9])
@pytest.mark.parametrize("name", ["settle", "settle_orphaned", "settle_slowly"])
async def test_settle(connection: asyncpg.Connection[Any], name: str, kind: int) -> None:
    lease_id = 2 if name == "settle_orphaned" else 1
    rows = await running(connection, lease_id)
    assert len(rows) == BATCH
    nothing = [None] * len(rows)
    arguments = [
        [row[0] for row in rows],
        [row[1] for row in rows],
        [lease_id] * len(rows),
        [kind] * len(rows),
        nothing,
        nothing,
        [1.0] * len(rows),
        nothing,
        nothing,
        "somebody",
        *([nothing] if name == "settle_slowly" else []),
    ]
    bounded(await explain(connection, STATEMENTS[name], arguments), buffers=6_000)


async def test_fates(connection: asyncpg.Connection[Any]) -> None:
    rows = await running(connection, 1)
    bounded(await explain(connection, STATEMENTS["fates"], [[row[0] for row in rows], [1] * len(rows)]), buffers=2_500)


async def test_renew(connection: asyncpg.Connection[Any]) -> None:
    bounded(await explain(connection, STATEMENTS["renew"], [1, 60.0]), buffers=600)


async def test_take_expired(connection: asyncpg.Connection[Any]) -> None:
    bounded(await explain(connection, STATEMENTS["take_expired"], [50, [1], None]), buffers=1_500)


async def test_release(connection: asyncpg.Connection[Any]) -> None:
    rows = await running(connection, 1)
    claims = [[row[0] for row in rows], [row[1] for row in rows]]
    bounded(await explain(connection, STATEMENTS["release"], [1, None, *claims]), buffers=4_000, rows=BATCH**2)
    bounded(await explain(connection, STATEMENTS["release_all"], [1, None]), buffers=4_000)


@pytest.mark.parametrize(
    "name", ["retry_find", "retry_edges", "retry_revive", "run_now", "delete_lock", "delete", "held", "fetch"]
)
async def test_looking_and_operating(connection: asyncpg.Connection[Any], name: str) -> None:
    failed = await connection.fetch("SELECT id FROM aioqueue.archive WHERE state = 6 ORDER BY id LIMIT 10")
    pending = await connection.fetch("SELECT id FROM aioqueue.job WHERE state = 1 ORDER BY id DESC LIMIT 10")
    ids = [row[0] for row in [*failed, *pending]]
    more: dict[str, list[Any]] = {"delete": [1_000, False], "retry_revive": [[None] * len(ids)], "held": [None, None]}
    bounded(await explain(connection, STATEMENTS[name], [ids, *more.get(name, [])]), buffers=2_000)


@pytest.mark.parametrize(
    "name", ["cancel_lock", "cancel_wait", "cancel_request", "cancel_mark", "cancel_leases", "cancel_reasons"]
)
async def test_asking_to_end(connection: asyncpg.Connection[Any], name: str) -> None:
    ids = [row[0] for row in await running(connection, 1)]
    reason = ["why"] if name in {"cancel_request", "cancel_mark"} else []
    bounded(await explain(connection, STATEMENTS[name], [ids, *reason]), buffers=4_000)


async def test_requests_that_are_left(connection: asyncpg.Connection[Any]) -> None:
    """Those are looked at, and no jobs that nobody asked to end."""
    some = [row[0] for row in await running(connection, 1)][:10]
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(STATEMENTS["cancel_request"], some, "why")
        bounded(await explain(connection, STATEMENTS["tend_requests"], [100, []]), buffers=200)
        bounded(await explain(connection, STATEMENTS["settle_not_asked"], [some]), buffers=100)
    finally:
        await transaction.rollback()


@pytest.mark.parametrize("state", [4, 6])
@pytest.mark.parametrize("types", [None, ["nothing"], ["busy"]])
@pytest.mark.parametrize("begin", [0, 20_000], ids=["first", "later"])
async def test_prune(connection: asyncpg.Connection[Any], state: int, types: list[str] | None, begin: int) -> None:
    """A portion looks at as many as its limit, wherever it begins, however few of them are of its types."""
    after = await connection.fetchval(
        "SELECT to_json(finished_at) #>> '{}' FROM aioqueue.archive WHERE state = 4 ORDER BY finished_at OFFSET $1 LIMIT 1",
        begin,
    )
    arguments = [state, 3600, types, after, UUID(int=0), 1_000]
    bounded(await explain(connection, STATEMENTS["prune"], arguments), buffers=20_000)


async def test_stats(connection: asyncpg.Connection[Any]) -> None:
    """Counting stops at 10,000 for each type, priority and state."""
    plan = await explain(connection, STATEMENTS["stats"], [])
    bounded(plan, buffers=250_000, rows=150_000)
