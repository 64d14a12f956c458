"""Upkeep of gates on PostgreSQL: how soon all are looked at, and what refuses to be let come."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import StoreError
from aioqueue.postgres._gates_lock import MOST_GATES
from aioqueue.postgres._gates_sweep import GateSweep
from aioqueue.vocabulary._gates import SequenceMember
from aioqueue.vocabulary._identifiers import new_id
from tests.postgres.stores import connected, job, opened

if TYPE_CHECKING:
    import asyncpg

pytestmark = pytest.mark.anyio

HELD = """INSERT INTO aioqueue.job (id, type, state, gate)
SELECT gen_random_uuid(), 'a', 0, 'job:a=' || n FROM generate_series(1, $1::integer) AS n"""
STALE = """INSERT INTO aioqueue.gate_place (gate, job_id)
SELECT 'job:a=' || n, gen_random_uuid() FROM generate_series(1, $1::integer) AS n"""
REFUSING = """CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'integrity_constraint_violation'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON aioqueue.job FOR EACH ROW WHEN (OLD.gate = 'job:a=7')
    EXECUTE FUNCTION pg_temp.refuse()"""


async def held(connection: asyncpg.Connection[Any]) -> list[str]:
    return [row["gate"] for row in await connection.fetch("SELECT gate FROM aioqueue.job WHERE state = 0")]


async def test_each_look_goes_on_where_the_last_one_ended(postgres_url: str) -> None:
    """No marks were left, as where triggers were switched off. Those with room come, 200 gates at a time, without a wait."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        gates = 2 * MOST_GATES + 1
        await connection.execute("INSERT INTO aioqueue.gate_limit (name, places) VALUES ('job:a', 1)")
        await connection.execute(HELD, gates)
        for left in (gates - MOST_GATES, gates - 2 * MOST_GATES, 0):
            tended = await store.tend(100)
            assert len(await held(connection)) == left
            assert tended.more == (left > 0)


async def test_thousands_of_gates_without_room_are_passed_by_one_look(postgres_url: str) -> None:
    """Whoever waits behind them waits no longer than a look for each 5,000 gates; for those no lock is taken."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await connection.execute("INSERT INTO aioqueue.gate_limit (name, places) VALUES ('job:a', 0)")
        await connection.execute(HELD, 6_000)
        await connection.execute("UPDATE aioqueue.job SET gate = 'open' WHERE gate = 'job:a=1'")
        assert (await store.tend(100)).resumed == 0
        assert (await store.tend(100)).resumed == 1
        assert "open" not in await held(connection)


async def test_a_look_that_fails_stops_only_itself(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the other looks at gates, nor what else upkeep does; and it's told where nothing else was to do."""

    async def failing(*_: object) -> None:
        raise StoreError("it takes too long")

    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await store.insert([late := job("late", expires=0.0)])
        await connection.execute(HELD, 1)
        await connection.execute(STALE, 1)
        monkeypatch.setattr(GateSweep, "_look_at_lanes", failing)
        tended = await store.tend(100)
        assert (tended.expired, tended.resumed) == (1, 1)
        assert await connection.fetchval("SELECT count(*) FROM aioqueue.gate_place") == 0
        await store.insert([replace(late, id=new_id())])
        monkeypatch.setattr(GateSweep, "look", failing)
        assert (await store.tend(100)).expired == 1
        with pytest.raises(StoreError, match="it takes too long"):
            await store.tend(100)


async def test_one_that_refuses_keeps_no_others(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await connection.execute(REFUSING)
        await connection.execute(HELD, 20)
        await store.tend(100)
        assert await held(connection) == ["job:a=7"]
        await store.tend(100)
        await connection.execute("DROP TRIGGER refuse ON aioqueue.job")


async def test_what_is_left_behind_is_removed(postgres_url: str) -> None:
    """Places of jobs that are gone, and members, by one look each; who waits there is let come by the marks of that."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await store.insert([new := job(sequence=SequenceMember(name="s"))])
        await connection.execute("ALTER TABLE aioqueue.job DISABLE TRIGGER USER")
        await connection.execute("DELETE FROM aioqueue.job WHERE id = $1", new.id)
        await connection.execute("ALTER TABLE aioqueue.job ENABLE TRIGGER USER")
        await connection.execute(STALE, 20)
        await store.tend(100)
        for table in ("gate_place", "gate_member"):
            assert await connection.fetchval(f"SELECT count(*) FROM aioqueue.{table}") == 0
        assert await connection.fetchval("SELECT count(DISTINCT gate) FROM aioqueue.gate_mark") == 21


async def test_rates_that_are_full_again_are_forgotten(postgres_url: str) -> None:
    """For each value there's a row: not those that somebody waits for, nor of a rate whose starts may not be forgotten yet."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await connection.execute(
            """INSERT INTO aioqueue.gate_limit (name, places, per, burst)
            VALUES ('rate:a', 10, 3600, 5), ('rate:none', 0, 3600, 5)"""
        )
        await connection.execute(
            """INSERT INTO aioqueue.gate_rate (gate, arrival, wake_at)
            VALUES ('rate:a=1', now() - interval '1801 s', NULL), ('rate:a=2', now() - interval '1799 s', NULL),
                   ('rate:a=3', now() - interval '1801 s', now() + interval '1 h'),
                   ('rate:none', now() - interval '1 day', NULL), ('rate:gone', now() - interval '1 s', NULL)"""
        )
        await store.tend(100)
        left = [row["gate"] for row in await connection.fetch("SELECT gate FROM aioqueue.gate_rate ORDER BY gate")]
        assert left == ["rate:a=2", "rate:a=3", "rate:none"]


async def test_a_gate_that_cant_be_looked_at_is_passed(postgres_url: str) -> None:
    """Such as one whose limit somebody has written by hand so that nothing can be worked out of it."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await connection.execute("INSERT INTO aioqueue.gate_limit (name, places, per) VALUES ('rate:a', 1, 1e300)")
        await connection.execute(HELD, 3)
        await connection.execute("UPDATE aioqueue.job SET gate = 'rate:a' WHERE gate = 'job:a=2'")
        await connection.execute("UPDATE aioqueue.job SET gate = 'shared' WHERE gate = 'job:a=3'")
        for _ in range(2 * (5_000).bit_length()):
            with suppress(StoreError):
                await store.tend(100)
        assert await held(connection) == ["rate:a"]
