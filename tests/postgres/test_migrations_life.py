"""The migration for the life of a job: what is large is indexed beside running workers; code from before goes on."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest

from aioqueue.postgres import _migrations
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from tests.postgres.stores import claimed, completed, connected, opened

pytestmark = pytest.mark.anyio

BEFORE, THIS = known_migrations()[:10], known_migrations()[10]
EVEN_FEW = replace(THIS, sql=THIS.sql.replace("419430400", "-1"))


@pytest.mark.parametrize("name", ["aioqueue", 'a"b'])
async def test_what_is_large_needs_its_index_first(empty_postgres_url: str, name: str) -> None:
    """The error has the statements for it, with which the next try succeeds; also where a broken build has left something."""
    schema = Schema(name)
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, schema, BEFORE)
        for broken in (False, True):
            with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
                await _migrations.migrate(connection, schema, [EVEN_FEW])
            statements = [line for line in str(caught.value).split(", by ", 1)[1].splitlines() if line.strip()]
            assert len(statements) == 2 + broken
            for each in statements:
                await connection.execute(each)
            if not broken:
                await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text ~ 'purge'")
        assert await _migrations.migrate(connection, schema, [EVEN_FEW]) == [THIS.name]


async def test_a_job_that_says_nothing_of_it_enters_no_new_index(postgres_url: str) -> None:
    """Of a million plain jobs nothing is beside them, and no entry says when they're removed."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        _, jobs = await claimed(store, jobs=50)
        await store.settle([completed(each) for each in jobs])
        await connection.execute("ANALYZE aioqueue.archive")
        assert await connection.fetchval("SELECT reltuples FROM pg_class WHERE relname = 'archive_purge'") == 0
        for table in ("phase", "progress", "job_log", "duty"):
            assert await connection.fetchval(f"SELECT count(*) FROM aioqueue.{table}") == 0
