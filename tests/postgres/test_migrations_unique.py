"""The migration for unique keys: the index over many jobs is built beside running ones; code from before goes on meanwhile."""

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

BEFORE, THIS = known_migrations()[:6], known_migrations()[6]
EVEN_FEW = replace(THIS, sql=THIS.sql.replace("1073741824", "-1"))


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_many_jobs_need_their_index_first(empty_postgres_url: str, name: str) -> None:
    """The error has the statements for it, with which the next try succeeds. What a broken build has left isn't accepted."""
    schema = Schema(name)
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, schema, BEFORE)
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
            await _migrations.migrate(connection, schema, [EVEN_FEW])
        column, rest = str(caught.value).split(", by ")[1].split("; CREATE", 1)
        index = f"CREATE{rest}"
        await connection.execute(column)
        await connection.execute(index)
        await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text ~ 'job_key_held'")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="after DROP INDEX") as caught:
            await _migrations.migrate(connection, schema, [EVEN_FEW])
        await connection.execute(str(caught.value).split("(after ")[1].split(",")[0])
        await connection.execute(index)
        assert await _migrations.migrate(connection, schema, [EVEN_FEW]) == [THIS.name]


async def test_whoever_looks_for_a_key_alone_finds_its_holder_by_the_index(empty_postgres_url: str) -> None:
    """As code from before does: also where others have freed the key, which come behind it."""
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), known_migrations())
        add = "INSERT INTO aioqueue.job (id, type, unique_key, until_started, claims) VALUES "
        key = "'11111111-1111-1111-1111-111111111111'"
        await connection.execute(f"{add} (gen_random_uuid(), 'freed', {key}, true, 1)")
        await connection.execute(f"{add} (gen_random_uuid(), 'holder', {key}, true, 0)")
        await connection.execute(f"{add} (gen_random_uuid(), 'freed', {key}, true, 1)")
        with pytest.raises(asyncpg.UniqueViolationError, match="job_key_held"):
            await connection.execute(f"{add} (gen_random_uuid(), 'another', {key}, false, 1)")
        await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        found = f"SELECT type FROM aioqueue.job WHERE unique_key = {key}"
        assert [row[0] for row in await connection.fetch(found)] == ["holder", "freed", "freed"]
        assert any("job_key_held" in row[0] for row in await connection.fetch(f"EXPLAIN {found}"))
