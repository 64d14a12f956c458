"""What a dry run enqueues in its user's own transaction, or by a statement of SQL, is part of it."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from aioqueue import Client, Registry, Retry, Worker, current_attempt

pytestmark = pytest.mark.anyio


async def test_by_the_users_connection_and_by_a_statement(postgres_url: str) -> None:
    registry = Registry()

    @registry.job(dry_run=True)
    async def child() -> bool:
        return current_attempt().dry_run

    @registry.job(dry_run=True, retry=Retry(max_attempts=1))
    async def parent() -> None:
        connection: Any = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await client.enqueue(child(), tx=connection)
                await client.using(connection).enqueue(child())
                sql, arguments = client.statement(child(), placeholder="$1")
                await connection.execute(sql, *arguments)
        finally:
            await connection.close()

    async with Client(postgres_url) as client:
        handle = await client.enqueue(parent())
        await Worker(client, registry, dry_run=True, types=[parent]).run_once()
        await handle.result(timeout=60)
        await Worker(client, registry).run_once()
        jobs = [job for job in (await client.list_jobs()).jobs if job.type == "child"]
        assert [job.output for job in jobs] == [True, True, True]
