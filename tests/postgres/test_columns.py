"""A job takes all its columns along into the archive, and back when it's retried: a new column isn't forgotten there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from aioqueue.abc import Changed
from aioqueue.vocabulary._job import Settlement, SettlementKind, SettleResult
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened

if TYPE_CHECKING:
    from uuid import UUID

    import asyncpg

pytestmark = pytest.mark.anyio

LIVE_ONLY = {
    "gate": "of held jobs",
    "open_blockers": "of held jobs",
    "marked": "how it's settled, and it is settled",
    "until_started": "its key isn't archived",
    "cancel_reason": "its chain has ended",
    "gates": "its next claim says where it waits",
}
ARCHIVED_ANEW = {"state": "how it ended"}
RETRIED_ANEW = {
    "state": "pending",
    "run_at": "due now",
    "attempt": "all attempts again",
    "reschedules": "all of them again",
    "lease_id": "nobody's",
    "started_at": "wasn't started",
    "expires_at": "doesn't expire any more",
}
ARCHIVED_ONLY = {"finished_at", "outcome", "output", "purge_at", "settled_kind"}

GIVEN = {"until_started": "false", "errors": """ARRAY['{"attempt":1}'::json]""", "metadata": """'{"m":1}'""", "retry": "'{}'"}
KEPT = {"id", "type", "priority", "state", "lease_id", "unique_key", "payload"}
VALUES = {
    "text": "'text {place}'",
    "smallint": "{place}",
    "integer": "{place} + 100",
    "bigint": "{place} + 100",
    "boolean": "true",
    "double precision": "{place} + 0.5",
    "uuid": "gen_random_uuid()",
    "timestamp with time zone": "now() - interval '{place} hours'",
    "text[]": "ARRAY['t']",
    "json": """'{{"place":{place}}}'""",
}


async def row(connection: asyncpg.Connection[Any], table: str, job_id: UUID) -> dict[str, Any]:
    found = await connection.fetchval(f"SELECT to_json(found) FROM aioqueue.{table} AS found WHERE id = $1", job_id)
    return dict(orjson.loads(found))


async def filled(connection: asyncpg.Connection[Any], job_id: UUID) -> dict[str, Any]:
    """Give each column of a running job a value of its own."""
    columns = await connection.fetch(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'aioqueue.job'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    for place, (name, kind) in enumerate(columns):
        if name not in KEPT:
            value = GIVEN[name] if name in GIVEN else VALUES[kind].format(place=place)
            await connection.execute(f"UPDATE aioqueue.job SET {name} = {value} WHERE id = $1", job_id)
    return await row(connection, "job", job_id)


async def check(postgres_url: str, *changes: str) -> None:
    """Send a job to the archive and back, once the schema was changed, and compare its columns."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        for change in changes:
            await connection.execute(change)
        new = job(payload=b'{"n":1}', priority=3, key="k", unique=Unique())
        await store.insert([new])
        lease_id = await store.open_lease("w", 600)
        await store.claim(lease_id, ["a"], 1)
        before = await filled(connection, new.id)
        assert [name for name, value in before.items() if value is None] == []

        end = Settlement(id=new.id, claims=before["claims"], lease_id=lease_id, kind=SettlementKind.FAILED)
        assert await store.settle([end]) == [SettleResult()]
        archived = await row(connection, "archive", new.id)
        assert archived.keys() == (before.keys() - LIVE_ONLY.keys()) | ARCHIVED_ONLY
        expected = {name: value for name, value in before.items() if name not in LIVE_ONLY.keys() | ARCHIVED_ANEW.keys()}
        assert {name: archived[name] for name in expected} == expected

        assert await store.retry([new.id]) == [Changed.DONE]
        retried = await row(connection, "job", new.id)
        expected = {name: value for name, value in before.items() if name not in LIVE_ONLY.keys() | RETRIED_ANEW.keys()}
        assert {name: retried[name] for name in expected} == expected

        fresh = job()
        await store.insert([fresh])
        begun = await row(connection, "job", fresh.id)
        assert retried["marked"], "its webhook is seen to by the slow way"
        anew = (LIVE_ONLY.keys() | RETRIED_ANEW.keys()) - {"run_at", "marked"}
        assert {name: retried[name] for name in anew} == {name: begun[name] for name in anew}


async def test_every_column_goes_to_the_archive_and_comes_back(postgres_url: str) -> None:
    await check(postgres_url)


@pytest.mark.parametrize("tables", [("job",), ("job", "archive")])
async def test_a_forgotten_column_is_found(postgres_url: str, tables: tuple[str, ...]) -> None:
    """One that only the live table has, and that nobody named here; and one that isn't copied."""
    with pytest.raises(AssertionError, match="colour"):
        await check(postgres_url, *(f"ALTER TABLE aioqueue.{table} ADD COLUMN colour text" for table in tables))
