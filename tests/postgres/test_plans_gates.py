"""What looking at gates costs where many jobs are held and run at them, whatever the planner knows of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from aioqueue.postgres._gates_room import ALL_GATES, ALL_LANES
from aioqueue.postgres._options_schema import Schema
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.test_plans import bounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_databases import Databases

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())

# 2,000 lanes, 2,000 gates with jobs that are held, one with 20,000, and 2,000 that run; 20,000 members of 200 sequences. Or 14
# times as many jobs.
FILL = """
ALTER TABLE aioqueue.job SET (autovacuum_enabled = off);
INSERT INTO aioqueue.gate_limit (name, places) VALUES ('job:a', 3), ('wide', 100);
INSERT INTO aioqueue.job (id, type, state, gate) SELECT gen_random_uuid(), 'a', 0, 'job:a=' || n % 2000
FROM generate_series(1, 10000 * @times@) AS n;
INSERT INTO aioqueue.job (id, type, state, gate) SELECT gen_random_uuid(), 'f', 0, 'fair:f=' || n % 2000
FROM generate_series(1, 20000 * @times@) AS n;
INSERT INTO aioqueue.job (id, type, state, gate) SELECT gen_random_uuid(), 't' || n % 5, 0, 'wide'
FROM generate_series(1, 20000 * @times@) AS n;
INSERT INTO aioqueue.job (id, type, state, gates) SELECT gen_random_uuid(), 'a', 2, ARRAY['job:a=' || n]
FROM generate_series(1, 2000 * @times@) AS n;
INSERT INTO aioqueue.gate_place (gate, job_id) SELECT gates[1], id FROM aioqueue.job WHERE state = 2;
INSERT INTO aioqueue.job (id, type, state, gates) SELECT gen_random_uuid(), 's', 1, '{}'
FROM generate_series(1, 20000 * @times@) AS n;
INSERT INTO aioqueue.gate_member (chain_id, sequence)
SELECT id, 's' || row_number() OVER () % 200 FROM aioqueue.job WHERE type = 's';
INSERT INTO aioqueue.gate_past_member SELECT chain_id, sequence, number, strict, block FROM aioqueue.gate_member;
INSERT INTO aioqueue.gate_limit (name, places, per) VALUES ('rate:r', 3, 1);
INSERT INTO aioqueue.gate_mark (gate) SELECT 'job:a=' || n % 3000 FROM generate_series(1, 10000) AS n;
INSERT INTO aioqueue.gate_rate (gate, arrival, wake_at)
SELECT 'rate:r=' || n, now(), CASE n % 5 WHEN 0 THEN now() + interval '1 h' END
FROM generate_series(1, 10000) AS n;
"""
FIFTY = [f"job:a={number}" for number in range(50)]
NOBODY = UUID(int=0)
SEQUENCES = [f"sequence=s{number}" for number in range(50)]
RATES = [f"rate:r={number}" for number in range(50)]
ARGUMENTS: dict[str, list[Any]] = {
    "gates_lock": [FIFTY],
    "gates_lock_unlocked": [FIFTY],
    "gates_look_places": [FIFTY, FIFTY, [0] * 50, ["{1}"] * 50],
    "gates_clear_marks": [0, ["nowhere"], 200],
    "gates_look_sequences": [SEQUENCES],
    "gates_let_come": [[*FIFTY, "wide"], [1] * 51, [NOBODY] * 20],
    "gates_list_coming": [[*FIFTY, "wide"], [1] * 51, [NOBODY] * 20],
    "gates_let_come_these": [[NOBODY] * 50],
    "gates_take_marks": [0, FIFTY, 200],
    "gates_waiting": [0, FIFTY],
    "gates_pick": [["s"], [2], [None], [None], [100], [True]],
    "gates_pick_one": [NOBODY],
    "gates_park": [[NOBODY] * 50, FIFTY, [NOBODY] * 50],
    "gates_begin": [[NOBODY] * 50, [NOBODY] * 50, SEQUENCES, [False] * 50, [False] * 50],
    "gates_look_rates": [RATES],
    "gates_spend": [RATES, [1] * 50, [True] * 50],
    "gates_wake": [RATES, [1] * 50],
    "gates_let_come_heads": [[NOBODY] * 50, FIFTY],
    "gates_mark_again": [FIFTY, [1] * 50],
    "next_due": [["f", "s"], [2, 2], [1], True, None, ["f"], FIFTY, 0],
    "gates_with_room": [*ALL_GATES, 5_000],
    "lanes_held": [*ALL_LANES],
    "gates_places": ["", 0],
    "gates_members": ["00000000-0000-0000-0000-000000000000"],
    "fair_lanes": ["f", "fair:f=1", 100],
    "fair_heads": [["f"], [f"fair:f={number}" for number in range(50)], [None] * 50, [None] * 50, [None] * 50, 2, 100],
    "fair_let_come": [[NOBODY] * 50],
    "fair_are_unsorted": [["f", "s"], [2, 2], [None] * 2, [None] * 2],
    "fair_unsorted": [["f", "s"], [2, 2], [None] * 2, [None] * 2],
    "fair_full": [["a"] * 50, FIFTY],
    "fair_sort": [[NOBODY] * 50, FIFTY],
    "gates_rates": [""],
    "gates_drop_rates": [RATES],
    "gates_drop_places": [FIFTY, list(range(50))],
    "gates_drop_members": [[NOBODY] * 50],
    "gates_status": [[*FIFTY, "wide"], ["job:a"] * 50 + ["wide"]],
    "gates_turn": [[f"s{number}" for number in range(50)]],
    "gates_resume": [[f"s{number}" for number in range(50)]],
    "limits_new": [["job:a"], ["{}"]],
    "limits_remove": [["job:a", "wide"]],
    "limits_mark": [["job:a", "wide"]],
    "limits_running": [["job:a", "wide"], 10_000],
    "limits_waiting": [["job:a", "wide"], 10_000],
    "order_sequences": [[NOBODY] * 50],
    "pauses_waiting": [["all", "type"], ["", "a"], 10_000],
}
COUNTING = frozenset({"gates_status", "limits_running", "limits_waiting", "pauses_waiting"})
"""These count up to 10,000 of each."""
# What the triggers do for a row that leaves its gates.
OF_TRIGGERS = (
    "DELETE FROM aioqueue.gate_place p WHERE p.job_id = $1::uuid",
    "SELECT m.sequence FROM aioqueue.gate_member m WHERE m.chain_id = $1::uuid",
    "DELETE FROM aioqueue.gate_past_member m WHERE m.chain_id = $1::uuid",
)
BUFFERS = {
    "fair_unsorted": 6_000,
    "gates_places": 25_000,
    "gates_members": 30_000,
    "gates_rates": 15_000,
    "limits_mark": 10_000,
    "limits_running": 50_000,
    "limits_waiting": 25_000,
    "gates_status": 15_000,
    "pauses_waiting": 25_000,
    "gates_let_come": 6_000,
    "gates_list_coming": 6_000,
    "fair_heads": 4_000,
    "gates_pick": 4_000,
}


# Statistics of a quiet hour: nothing is held.
QUIET = """INSERT INTO aioqueue.job (id, type, state) SELECT gen_random_uuid(), 'f', 1 FROM generate_series(1, 5000);
ANALYZE; DELETE FROM aioqueue.job"""


async def _fill(url: str, times: int, analyzed: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        if analyzed == "quiet":
            await connection.execute(QUIET)
        await connection.execute(FILL.replace("@times@", str(times)))
        if analyzed == "full":
            await connection.execute("ANALYZE")
    finally:
        await connection.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((1, "never"), id="72000-unknown"),
        pytest.param((1, "quiet"), id="72000-analyzed_while_nothing_was_held"),
        pytest.param((1, "full"), id="72000-analyzed"),
        pytest.param((14, "never"), id="1000000-unknown", marks=pytest.mark.soak),
        pytest.param((14, "full"), id="1000000-analyzed", marks=pytest.mark.soak),
    ],
)
def held_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    times, analyzed = request.param
    with postgres_databases.fresh() as url:
        asyncio.run(_fill(url, times, analyzed))
        yield url


@pytest.fixture
async def connection(anyio_backend: str, held_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(held_url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_gates(connection: asyncpg.Connection[Any], name: str) -> None:
    plan = await explain(connection, STATEMENTS[name], ARGUMENTS[name])
    bounded(plan, buffers=BUFFERS.get(name, 3_000), rows=21_000 if name in COUNTING else 10_000)


async def test_the_oldest_that_waits_for_its_turn(connection: asyncpg.Connection[Any]) -> None:
    """One row of each lane is read, 10,000 at most, by its place in the index, however many are in it."""
    plan = await explain(connection, STATEMENTS["stats"], [])
    bounded(plan, buffers=250_000, rows=150_000)
    (walk,) = [each for each in nodes(json.loads(plan.text)[0]["Plan"]) if each.get("Subplan Name") == "CTE lane_head"]
    behind = [each for each in nodes(walk) if each.get("Index Name") == "job_gate"]
    assert len(behind) == 2
    assert all(each["Actual Rows"] == 1 and not each.get("Rows Removed by Filter") for each in behind), plan.text
    assert sum(each["Actual Loops"] for each in behind) <= 2_002
    assert walk["Shared Hit Blocks"] + walk["Shared Read Blocks"] < 15_000


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's node, and those below it."""
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


@pytest.mark.parametrize("sql", OF_TRIGGERS)
async def test_what_triggers_do(connection: asyncpg.Connection[Any], sql: str) -> None:
    """A few pages, however many places and members there are."""
    plan = await explain(connection, sql, [NOBODY])
    bounded(plan, buffers=20, rows=1)
    assert all(scan[0] != "Seq Scan" for scan in plan.scans), plan.text


async def test_what_a_trigger_does_for_what_is_gone(connection: asyncpg.Connection[Any]) -> None:
    """Of a hundred jobs a few pages each."""
    text = await connection.fetchval("SELECT prosrc FROM pg_proc WHERE oid = 'aioqueue.gone_from_gates'::regproc")
    statement = text[text.index("WITH member") + len("WITH ") : text.index(";", text.index("WITH member"))]
    sql = f"WITH gone AS MATERIALIZED (SELECT * FROM aioqueue.job WHERE id = ANY($1::uuid[])), {statement}"
    ids = await connection.fetch(
        "(SELECT id FROM aioqueue.job WHERE type = 's' LIMIT 50) "
        "UNION ALL (SELECT id FROM aioqueue.job WHERE state = 2 LIMIT 50)"
    )
    plan = await explain(connection, sql, [[row[0] for row in ids]])
    bounded(plan, buffers=6_000, rows=1_000)
    assert {scan[1] for scan in plan.scans} >= {"gate_member", "gate_place", "archive"}, plan.text
