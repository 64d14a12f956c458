"""Pruning on PostgreSQL: beside others who retry, in portions along the index, by the database's clock."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind, StoredState
from tests.postgres.stores import opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

PATIENCE = 60.0
DAY = 86_400.0


async def failed(store: PostgresStore, number: int) -> list[UUID]:
    await store.insert([NewJob(id=new_id(), type="a") for _ in range(number)])
    lease = await store.open_lease("w", 600)
    claimed = await store.claim(lease, ["a"], number)
    kind = SettlementKind.FAILED
    await store.settle([Settlement(id=each.id, claims=each.claims, lease_id=lease, kind=kind) for each in claimed])
    return [each.id for each in claimed]


@asynccontextmanager
async def outsider(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_job_that_is_being_retried_is_neither_waited_for_nor_removed(postgres_url: str) -> None:
    async with opened(postgres_url) as store, outsider(postgres_url) as other:
        first, second, third = await failed(store, 3)
        await other.execute("BEGIN")
        await other.execute("SELECT FROM aioqueue.archive WHERE id = $1 FOR UPDATE", second)
        with anyio.fail_after(PATIENCE):
            pruned = await store.prune(StoredState.FAILED, 0.0, None, 100)
        assert sorted(pruned.ids) == [first, third]
        await other.execute("COMMIT")
        assert (await store.prune(StoredState.FAILED, 0.0, None, 100)).ids == (second,)


async def test_two_who_prune_at_once_remove_each_job_once(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        ids = await failed(store, 500)
        removed: list[UUID] = []

        async def prune(store: PostgresStore) -> None:
            cursor: str | None = None
            begun = False
            while cursor is not None or not begun:
                pruned = await store.prune(StoredState.FAILED, 0.0, None, 20, cursor)
                removed.extend(pruned.ids)
                cursor, begun = pruned.cursor, True

        async with anyio.create_task_group() as group:
            group.start_soon(prune, store)
            group.start_soon(prune, other)
        assert sorted(removed) == sorted(ids)


async def test_by_age_whatever_the_session_writes_times_as(postgres_url: str) -> None:
    """Portions within one moment, and times of long ago or never; a cursor is read as it was meant."""
    async with opened(postgres_url) as store:
        ids = await failed(store, 9)
        database = execute(postgres_url, "select current_database()")[0][0]
        execute(postgres_url, f"alter database {database} set datestyle = 'SQL, DMY'")
        for times, which in (
            ("now() - interval '2 days'", ids[:4]),
            ("'-infinity'", ids[4:5]),
            ("'0044-03-15 BC'", ids[5:6]),
            ("'infinity'", ids[6:7]),
            ("now() - interval '23 hours'", ids[7:]),
        ):
            listed = ", ".join(f"'{each}'" for each in which)
            execute(postgres_url, f"update aioqueue.archive set finished_at = {times} where id in ({listed})")
    # Sessions of two settings take turns: one's cursor is the other's.
    async with opened(postgres_url) as day_first:
        await day_first.stats()
        execute(postgres_url, f"alter database {database} set datestyle = 'SQL, MDY'")
        async with opened(postgres_url) as month_first:
            removed: list[UUID] = []
            cursor: str | None = None
            for store in (day_first, month_first) * 2:
                pruned = await store.prune(StoredState.FAILED, DAY, None, 2, cursor)
                removed += pruned.ids
                cursor = pruned.cursor
    assert cursor is None
    assert removed == [ids[4], ids[5], *ids[:4]]
