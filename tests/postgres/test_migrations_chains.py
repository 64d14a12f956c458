"""The migration for chains: the index over a large archive is built beside the running workers; code from before goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue.postgres import _migrations, make_store
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from tests.postgres.stores import connected
from tests.postgres.test_statements import ODD_NAMES

if TYPE_CHECKING:
    from aioqueue.store_rules._migrations import Migration

pytestmark = pytest.mark.anyio

BEFORE, AFTER = known_migrations()[:4], known_migrations()[4:5]


def with_limit(limit: int) -> list[Migration]:
    """The migrations, where an archive of so many bytes is a large one."""
    return [replace(each, sql=each.sql.replace("1073741824", str(limit))) for each in AFTER]


async def indexes(connection: asyncpg.Connection[Any]) -> dict[str, bool]:
    rows = await connection.fetch(
        "SELECT c.relname::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE c.relname IN ('archive_chain', 'archive_steps')"
    )
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_large_archive_needs_its_index_first(empty_postgres_url: str, name: str) -> None:
    """The error has the statement for it, with which the next try succeeds. What a broken build has left isn't accepted."""
    schema = Schema(name)
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, schema, BEFORE)
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
            await _migrations.migrate(connection, schema, with_limit(-1))
        assert await indexes(connection) == {"archive_chain": True}
        statement = str(caught.value).split(", by ")[1]
        await connection.execute(statement)
        await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text ~ 'archive_steps'")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="after DROP INDEX") as caught:
            await _migrations.migrate(connection, schema, with_limit(-1))
        await connection.execute(str(caught.value).split("(after ")[1].split(",")[0])
        await connection.execute(statement)
        assert len(await _migrations.migrate(connection, schema, with_limit(-1))) == len(AFTER)
        assert await indexes(connection) == {"archive_chain": True, "archive_steps": True}


async def test_a_small_archive_gets_it(empty_postgres_url: str) -> None:
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), BEFORE)
        await make_store(empty_postgres_url).migrate()
        assert await indexes(connection) == {"archive_chain": True, "archive_steps": True}


async def test_readers_of_the_view_keep_their_columns_and_rights(empty_postgres_url: str) -> None:
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), BEFORE)
        columns = (
            "SELECT array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns "
            "WHERE table_schema = 'aioqueue' AND table_name = 'jobs'"
        )
        before = await connection.fetchval(columns)
        await connection.execute("GRANT SELECT ON aioqueue.jobs TO public")
        await make_store(empty_postgres_url).migrate()
        assert await connection.fetchval(columns) == [*before, "chain_id", "position", "open_blockers", "held_by", "origin"]
        assert await connection.fetchval("SELECT has_table_privilege('pg_monitor', 'aioqueue.jobs', 'SELECT')")


async def test_whoever_reads_the_archive_isnt_waited_for(empty_postgres_url: str) -> None:
    """Reports and dumps read for hours: the code that comes with the migrations starts meanwhile."""
    async with connected(empty_postgres_url) as connection, connected(empty_postgres_url) as reader:
        await _migrations.migrate(connection, Schema(), BEFORE)
        async with reader.transaction():
            await reader.fetch("SELECT FROM aioqueue.archive")
            assert len(await _migrations.migrate(connection, Schema(), AFTER)) == len(AFTER)
