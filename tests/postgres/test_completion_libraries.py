"""A job is completed in a transaction of each library that we know, with what was written in it, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Fixed, JobState, Registry, Retry, Worker, current_attempt
from tests.postgres.libraries import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio


async def test_each_library_commits_the_outcome_with_its_writes(postgres_url: str) -> None:
    registry = Registry()

    @registry.job
    async def child(library: str) -> None: ...

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def parent(library: str) -> str:
        attempt = current_attempt()
        attempt.enqueue(child(library))
        async with LIBRARIES[library](postgres_url) as opened:
            async with attempt.completion(tx=opened.tx) as tx:
                await opened.execute(f"insert into note values ('{library} {attempt.number}')")
                result = tx.done(library)
            if attempt.number == 1:
                await opened.rollback()
                raise ValueError("boom")
            await opened.commit()
        return result

    async with Client(postgres_url) as client:
        async with client.transaction() as tx:
            await tx.execute("create table note (text text)")
        handles = await client.enqueue_many([parent(library) for library in LIBRARIES])
        await Worker(client, registry).run_once()
        for handle, library in zip(handles, LIBRARIES, strict=True):
            job = await handle.snapshot()
            assert (job.state, job.output, [error.type for error in job.errors]) == (
                JobState.COMPLETED,
                library,
                ["ValueError"],
            )
        async with client.transaction() as tx:
            rows: Sequence[tuple[str]] = await tx.fetch("select text from note")
        assert sorted(row[0] for row in rows) == sorted(f"{library} 2" for library in LIBRARIES)
        assert len((await client.list_jobs(types=["child"])).jobs) == len(LIBRARIES)
