"""The migration for requests to end: whoever may read or write jobs needs nothing more, and code from before goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.postgres import _migrations, make_store
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._answers import Cancellation
from aioqueue.vocabulary._job import JobState
from tests.postgres.stores import connected, job
from tests.postgres.test_rights import role_with
from tests.postgres.test_statements import ODD_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pytestmark = pytest.mark.anyio

ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
EARLIER: Mapping[str, Sequence[str]] = dict.fromkeys(("job", "lease", "subscriber", "blocker", "chain_end", "dedup"), ALL) | {
    "archive": ("SELECT", "INSERT", "DELETE")
}


async def test_who_may_write_jobs_may_ask_them_to_end(empty_postgres_url: str) -> None:
    """Without another grant."""
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), known_migrations()[:9])
        async with role_with(empty_postgres_url, EARLIER) as (_, url):
            await _migrations.migrate(connection, Schema(), known_migrations())
            store = make_store(url)
            await store.open()
            try:
                await store.insert([new := job(), other := job()])
                lease_id = await store.open_lease("w", 600)
                await store.claim(lease_id, ["a"], 1)
                answers = await store.cancel([new.id, other.id], "enough")
                assert answers == [Cancellation.CANCELLING, Cancellation.CANCELLED]
                await store.release(lease_id, [], end=True)
                assert [found and found.state for found in await store.fetch([new.id])] == [JobState.CANCELLED]
            finally:
                await store.close()


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_of_the_schema_and_of_roles(empty_postgres_url: str, name: str) -> None:
    schema = Schema(name)
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, schema, known_migrations()[:9])
        await connection.execute(f'CREATE ROLE "odd ""role"; GRANT SELECT ON {schema.quoted}.job TO PUBLIC, "odd ""role"')
        await _migrations.migrate(connection, schema, known_migrations())
        rows = await connection.fetch(
            "SELECT acl.grantee::regrole::text FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS acl "
            "WHERE c.relname = 'cancel_request' AND acl.privilege_type = 'SELECT' ORDER BY 1"
        )
        assert {"-", '"odd ""role"'} <= {row[0] for row in rows}
        await connection.execute(f'DROP OWNED BY "odd ""role"; DROP ROLE "odd ""role"; DROP SCHEMA {schema.quoted} CASCADE')
