"""`tx=` and `client.using` with the real libraries, and a worker that must not start too early."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import anyio
import psycopg
import pytest

from aioqueue import CallAlreadyEnqueued, Client, ConfigurationError, JobNotFound, JobState, Registry, Worker

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def double(number: int) -> int:
    return 2 * number


async def test_it_starts_after_the_commit_and_at_once(postgres_url: str, library: Any) -> None:
    """The worker never polls: what tells it is part of the transaction."""
    async with Client(postgres_url) as client, Worker(client, registry, poll_interval=3600):
        async with library(postgres_url) as opened:
            first = await client.enqueue(double(1), tx=opened.tx)
            second, third = await client.using(opened.tx).enqueue_many([double(2), double(3)])
            # The worker has been awake, and has looked for jobs, after the enqueue and before the commit.
            assert await (await client.enqueue(double(0))).result(timeout=120) == 0
            with pytest.raises(JobNotFound):
                await first.snapshot()
            await opened.commit()
        with anyio.fail_after(120):
            assert [await handle.result() for handle in (first, second, third)] == [2, 4, 6]


async def test_what_is_rolled_back_never_was(postgres_url: str, library: Any) -> None:
    async with Client(postgres_url, uncommitted_grace=0.1) as client, Worker(client, registry, poll_interval=3600):
        async with library(postgres_url) as opened:
            lost = await client.using(opened.tx).enqueue(double(1))
            await opened.rollback()
        assert await (await client.enqueue(double(2))).result(timeout=120) == 4
        with pytest.raises(JobNotFound):
            await lost.result(timeout=120)
        assert [job.state for job in (await client.list_jobs()).jobs] == [JobState.COMPLETED]


async def test_synchronous_code_enqueues_with_a_statement(postgres_url: str) -> None:
    client = Client(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        rows = [connection.execute(*statement(client.statement(double(number)))).fetchall() for number in range(3)]
    numbered, parameters = client.statement(double(3), placeholder="$1")
    call = double(4)
    assert "$1" in numbered
    assert len(parameters) == 1
    client.statement(call)
    with pytest.raises(CallAlreadyEnqueued):
        client.statement(call)
    async with client, Worker(client, registry):
        handles = [client.handle(double, UUID(str(row[0]))) for ((*row,),) in rows]
        assert [await handle.result(timeout=120) for handle in handles] == [0, 2, 4]


def statement(given: tuple[str, tuple[str, ...]]) -> tuple[bytes, tuple[str, ...]]:
    """psycopg's types want a literal text, or bytes."""
    return given[0].encode(), given[1]


def test_sqlite_has_no_such_statement() -> None:
    call = double(1)
    with pytest.raises(ConfigurationError, match="tx="):
        Client("sqlite:///nowhere.db").statement(call)
    assert call == call.copy()
