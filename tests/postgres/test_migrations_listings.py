"""The migration for listings: indexes of what is large are built beside running jobs."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest

from aioqueue.postgres import _migrations
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from tests.postgres.stores import connected
from tests.postgres.test_statements import ODD_NAMES

pytestmark = pytest.mark.anyio

BEFORE, THIS = known_migrations()[:8], known_migrations()[8]
EVEN_FEW = replace(THIS, sql=THIS.sql.replace("419430400", "-1"))
NAMES = ["job_blocked", "archive_uncompleted", "archive_outcome", "archive_error"]
_INDEXES = "SELECT c.relname, pg_get_indexdef(c.oid) FROM pg_class c WHERE c.relname = ANY($1::text[]) ORDER BY c.relname"


def _statements(error: asyncpg.PostgresError) -> list[str]:
    return [line for line in str(error).split(", by ", 1)[1].splitlines() if line.strip()]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_what_is_large_needs_its_indexes_first(empty_postgres_url: str, name: str) -> None:
    """The error has the statements for them, with which the next try succeeds. What a broken build has left isn't accepted."""
    schema = Schema(name)
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, schema, BEFORE)
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
            await _migrations.migrate(connection, schema, [EVEN_FEW])
        statements = _statements(caught.value)
        assert [each.split()[3] for each in statements] == NAMES
        for each in statements:
            await connection.execute(each)
        await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text ~ 'archive_error'")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
            await _migrations.migrate(connection, schema, [EVEN_FEW])
        drop, create = _statements(caught.value)
        assert create == statements[3]
        await connection.execute(drop)
        await connection.execute(create)
        assert await _migrations.migrate(connection, schema, [EVEN_FEW]) == [THIS.name]


async def test_both_ways_lead_to_the_same_indexes(empty_postgres_url: str) -> None:
    found = []
    async with connected(empty_postgres_url) as connection:
        for few in (True, False):
            await _migrations.migrate(connection, Schema(), BEFORE)
            if few:
                await _migrations.migrate(connection, Schema(), [THIS])
            else:
                with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
                    await _migrations.migrate(connection, Schema(), [EVEN_FEW])
                for each in _statements(caught.value):
                    await connection.execute(each)
            found.append([tuple(row) for row in await connection.fetch(_INDEXES, NAMES)])
            await connection.execute("DROP SCHEMA aioqueue CASCADE")
    assert len(found[0]) == len(NAMES)
    assert found[0] == found[1]


async def test_a_job_that_just_completes_enters_none_of_them(empty_postgres_url: str) -> None:
    """But whatever has a long label, or a strange error, does, and isn't refused."""
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), known_migrations())
        add = """INSERT INTO aioqueue.archive (id, type, priority, run_at, state, attempt, claims, reschedules, position,
            created_at, finished_at, outcome, tags, metadata, payload, errors)
            VALUES (gen_random_uuid(), 'a', 2, now(), $1, 1, 1, 0, 0, now(), now(), $2, '{}', '{}', '{}', $3::text[]::json[])"""

        async def sizes() -> list[int]:
            for name in NAMES:
                await connection.execute(f"ANALYZE aioqueue.{name.partition('_')[0]}")
            query = "SELECT reltuples::int FROM pg_class WHERE relname = ANY($1::text[]) ORDER BY relname"
            return [row[0] for row in await connection.fetch(query, NAMES[1:])]

        await connection.execute(add, 4, None, [])
        assert await sizes() == [0, 0, 0]
        await connection.execute(add, 6, "x" * 100_000, ['{"message":"\\u0000","type":"' + "y" * 100_000 + '"}'])
        await connection.execute(add, 9, "é" * 1_000, ['{"type":1}', "null"])
        assert await sizes() == [2, 2, 2]
