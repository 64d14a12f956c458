"""The migration for the log of events: whoever may write jobs goes on, and logs what he does, without another grant."""

from __future__ import annotations

import pytest

from aioqueue.postgres import _migrations, make_store
from aioqueue.postgres._lease_rights import WORKER
from aioqueue.postgres._migrations import known_migrations
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._event_log import EventKind
from tests.postgres.stores import completed, connected, job
from tests.postgres.test_rights import role_with

pytestmark = pytest.mark.anyio


async def test_who_may_write_jobs_may_log_them(empty_postgres_url: str) -> None:
    """Also where nobody may execute a new function unless he is told so."""
    later = {"event", "event_mark", "reader", "delivery", "pause"}
    earlier = {
        table: rights for table, rights in WORKER.items() if not table.startswith(("schedule", "gate_")) and table not in later
    }
    async with connected(empty_postgres_url) as connection:
        await _migrations.migrate(connection, Schema(), known_migrations()[:11])
        await connection.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        async with role_with(empty_postgres_url, earlier) as (_, url):
            await _migrations.migrate(connection, Schema(), known_migrations())
            store = make_store(url)
            await store.open()
            try:
                reader = await store.open_reader(600)
                cursor = (await store.begin_events(reader)).cursor
                await store.insert([job(webhook="https://hooks.example/")])
                lease_id = await store.open_lease("w", 600)
                (claim,) = await store.claim(lease_id, ["a"], 1)
                await store.settle([completed(claim)])
                kinds = [each.kind for each in (await store.read_events(reader, cursor, 10)).events]
                assert kinds == [EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED]
                assert len(await store.take_deliveries(1, 60)) == 1
            finally:
                await store.close()
