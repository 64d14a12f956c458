"""Marks at gates: those where nobody waits are taken away in one call, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.postgres._gates_look import GateLooks, look_statements
from aioqueue.postgres._options_schema import Schema
from aioqueue.store_rules._gates import GateState
from tests.postgres.stores import claimed, connected, opened

if TYPE_CHECKING:
    import asyncpg

pytestmark = pytest.mark.anyio

HOLD = "INSERT INTO aioqueue.job (id, type, state, gate) VALUES (gen_random_uuid(), 'a', 0, $1)"
MARK = "INSERT INTO aioqueue.gate_mark (gate) SELECT unnest($1::text[])"
CLEAR = "SELECT others, waiting FROM aioqueue.clear_gate_marks(0, $1, $2)"
LOCK = "SELECT aioqueue.lock_gates($1)"


async def left(connection: asyncpg.Connection[Any]) -> list[str]:
    """The gates at which marks are, in their order."""
    return [row[0] for row in await connection.fetch("SELECT gate FROM aioqueue.gate_mark ORDER BY id")]


async def cleared(connection: asyncpg.Connection[Any], passed_over: tuple[str, ...] = (), most: int = 200) -> tuple[bool, bool]:
    row = await connection.fetchrow(CLEAR, passed_over, most)
    assert row is not None
    return row[0], row[1]


async def test_where_nobody_waits(postgres_url: str) -> None:
    """Those at other gates, and of rates, are for whoever lets jobs come."""
    async with connected(postgres_url) as connection:
        await connection.execute(HOLD, "job:a=1")
        await connection.execute(MARK, ["job:a=1", "job:a=2", "job:a=2", "shared", "rate:a", "pause:", "sequence=s"])
        assert await cleared(connection) == (False, True)
        assert await left(connection) == ["job:a=1", "rate:a", "pause:"]


async def test_where_nobody_waits_anywhere(postgres_url: str) -> None:
    async with connected(postgres_url) as connection:
        assert await cleared(connection) == (False, False)
        await connection.execute(MARK, ["job:a=1", "job:a=2", "job:a=3"])
        assert await cleared(connection, most=2) == (True, False)
        assert await cleared(connection, passed_over=("job:a=3",)) == (False, False)
        assert await left(connection) == ["job:a=3"]


async def test_at_a_gate_that_somebody_has_locked(postgres_url: str) -> None:
    """They may be parking a job there. It isn't waited for."""
    async with connected(postgres_url) as connection, connected(postgres_url) as other:
        await connection.execute(MARK, ["job:a=1", "job:a=2", "job:b=1"])
        async with other.transaction():
            await other.execute(LOCK, ["job:a=1", "job:b"])
            assert await cleared(connection) == (False, True)
            assert await left(connection) == ["job:a=1", "job:b=1"]
            await other.execute(HOLD, "job:a=1")
        assert await cleared(connection) == (False, True)
        assert await left(connection) == ["job:a=1"]


async def test_a_rate_whose_next_start_is_due(postgres_url: str) -> None:
    async with connected(postgres_url) as connection:
        await connection.execute("INSERT INTO aioqueue.gate_rate VALUES ('rate:a', now(), now() - interval '1 s')")
        assert await cleared(connection) == (False, True)
        assert await cleared(connection, passed_over=("rate:a",)) == (False, False)


async def test_places_of_those_that_have_gone_arent_looked_at_again(postgres_url: str) -> None:
    """Also where nobody runs at the look: while somebody keeps an old snapshot they'd be gone past again with each."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        count = "SELECT numbers, highest FROM aioqueue.count_places(array[$1], array[$1], array[$2::bigint], array['{}'])"
        assert await connection.fetchrow(count, "job:a", 0) == ([], 0)
        _, jobs = await claimed(store, jobs=2)
        await connection.executemany(
            "INSERT INTO aioqueue.gate_place (gate, job_id) VALUES ($1, $2)", [("job:a", jobs[0].id), ("job:b", jobs[1].id)]
        )
        assert await connection.fetchrow(count, "job:a", 0) == ([1], 2)
        await connection.execute("DELETE FROM aioqueue.job WHERE id = $1", jobs[0].id)
        looks = GateLooks()
        async with connection.transaction():
            states = await looks.look(connection, look_statements(Schema()), ["job:a"], lock=["job:a"])
            states = await looks.look(connection, look_statements(Schema()), ["job:a"], lock=["job:a"])
        assert states == {"job:a": GateState()}
        assert looks._seen["job:a"].high == 2
