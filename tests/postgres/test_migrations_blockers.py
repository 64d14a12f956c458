"""The migration for blockers: workers of older code stop; the index over many jobs is built beside running ones."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest

from aioqueue.errors import StoreIncompatible
from aioqueue.postgres import _migrations, make_store
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._job import SettleResult
from tests.postgres.stores import claimed, completed, connected, opened
from tests.postgres.test_statements import ODD_NAMES

pytestmark = pytest.mark.anyio

BEFORE, THIS = known_migrations()[:5], known_migrations()[5]
EVEN_FEW = replace(THIS, sql=THIS.sql.replace("1073741824", "-1"))


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_many_jobs_need_their_index_first(empty_postgres_url: str, name: str) -> None:
    """The error has the statement for it, with which the next try succeeds. What a broken build has left isn't accepted."""
    schema = Schema(name)
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, schema, BEFORE)
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as caught:
            await _migrations.migrate(connection, schema, [EVEN_FEW])
        statement = str(caught.value).split(", by ")[1]
        await connection.execute(statement)
        await connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text ~ 'job_expiring'")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="after DROP INDEX") as caught:
            await _migrations.migrate(connection, schema, [EVEN_FEW])
        await connection.execute(str(caught.value).split("(after ")[1].split(",")[0])
        await connection.execute(statement)
        assert await _migrations.migrate(connection, schema, [EVEN_FEW]) == [THIS.name]


async def test_what_was_there_is_run_and_settled(empty_postgres_url: str) -> None:
    """Also where an older one has marked it."""
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), BEFORE)
        await connection.execute("""SELECT aioqueue.enqueue_v1('[{"type": "a"}, {"type": "a"}]')""")
        await connection.execute("UPDATE aioqueue.job SET slow_settle = true WHERE ctid = '(0,1)'")
        await _migrations.migrate(connection, Schema(), known_migrations())
    async with opened(empty_postgres_url) as store:
        lease_id = await store.open_lease("w", 600)
        jobs = await store.claim(lease_id, ["a"], 10)
        assert [each.blockers for each in jobs] == [(), ()]
        assert await store.settle([completed(each) for each in jobs]) == [SettleResult()] * 2


async def test_older_workers_stop(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settlement of theirs names the column that has another name now, and none opens its store any more."""
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        settler = store._opened.settler
        older = {name: text.replace("j.marked", "j.slow_settle") for name, text in settler._statements.items()}
        monkeypatch.setattr(settler, "_statements", older)
        with pytest.raises(StoreIncompatible, match="slow_settle"):
            await store.settle([completed(claim)])
    monkeypatch.setattr(_migrations, "known_migrations", lambda: BEFORE)
    with pytest.raises(StoreIncompatible, match="too new"):
        await make_store(postgres_url).open()
